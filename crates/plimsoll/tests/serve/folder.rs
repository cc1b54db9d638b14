//! Tests of `plimsoll serve FOLDER`: its models answer, a new file is served once it is complete, and a
//! removed one is not.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use plimsoll_specimens::{Changes, write};

use crate::daemon::{Daemon, Setup, fake_engine, until};
use crate::http::{chat, get};

/// Writes a model that nobody has touched for an hour.
fn model(path: &Path) {
    write("tiny", path, &Changes::default()).expect("the folder can be written");
    settle(path);
}

fn settle(path: &Path) {
    let file = File::options().write(true).open(path).expect("the model is there");
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("a time is set");
}

fn names(daemon: &Daemon) -> Vec<String> {
    let models = get(daemon.address, "/v1/models").json();
    let all = models["data"].as_array().expect("a list").iter();
    all.map(|model| model["id"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_folder_answers_and_follows_its_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    model(&path("first.gguf"));
    let daemon = Setup::new()
        .argument("--engine")
        .argument(&fake_engine().to_string_lossy())
        .argument(&folder.path().to_string_lossy())
        .start();
    daemon.reported("first: -c ");
    assert_eq!(names(&daemon), ["first"]);
    assert_eq!(chat(daemon.address, "first").status, 200);
    // The first half of a file is named, and not served.
    model(&path("whole"));
    let whole = fs::read(path("whole")).expect("the model is there");
    fs::write(path("größer.gguf"), &whole[..whole.len() / 2]).expect("the folder can be written");
    settle(&path("größer.gguf"));
    daemon.reported("größer.gguf: not served: ");
    assert_eq!(names(&daemon), ["first"]);
    fs::write(path("größer.gguf"), &whole).expect("the folder can be written");
    settle(&path("größer.gguf"));
    until("the whole file is served", || names(&daemon) == ["first", "größer"]);
    assert_eq!(chat(daemon.address, "größer").status, 200);
    fs::remove_file(path("first.gguf")).expect("the model is there");
    until("a file that went is served no more", || names(&daemon) == ["größer"]);
    assert_eq!(chat(daemon.address, "größer").status, 200);
}

#[test]
fn a_model_of_a_folder_that_cannot_fit_is_refused_with_what_it_lacks() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    model(&path("small.gguf"));
    write("llama-70b", &path("large.gguf"), &Changes::default()).expect("the folder can be written");
    settle(&path("large.gguf"));
    let daemon = Setup::new()
        .argument("--engine")
        .argument(&fake_engine().to_string_lossy())
        .argument(&folder.path().to_string_lossy())
        .start();
    daemon.reported("small: -c ");
    assert_eq!(names(&daemon), ["small"]);
    let refused = chat(daemon.address, "large");
    assert_eq!(refused.status, 413, "{}", refused.text());
    let error = &refused.json()["error"];
    assert_eq!(error["code"], "never_fits");
    let message = error["message"].as_str().expect("a message");
    assert!(message.starts_with("model 'large' is not served: no flags make the model fit: "), "{message}");
    let status = get(daemon.address, "/api/status").text();
    assert!(status.contains("no flags make the model fit"), "{status}");
    // Without a configuration, flags that were chosen can be read, and the refusal says what holds them.
    fs::remove_file(daemon.config_file()).expect("the configuration is there");
    let flags = get(daemon.address, "/api/flags?model=small").json();
    assert!(flags["flags"].as_str().is_some_and(|flags| flags.contains("--parallel 1")), "{flags}");
    let refusal = flags["refusal"].as_str().expect("a refusal");
    assert!(
        refusal.contains("write one with `plimsoll init ") && refusal.contains("`plimsoll reload`"),
        "{refusal}"
    );
}

/// `plimsoll` in a folder of its own, without any engine, cache or configuration.
fn alone(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(words)
        .current_dir(folder)
        .env_clear()
        .envs([("HOME", folder), ("PATH", Path::new("/nowhere")), ("OLLAMA_MODELS", folder)])
        .output()
        .expect("plimsoll starts")
}

#[test]
fn without_a_model_or_an_engine_one_screen_has_the_remedy() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let stated = |words: &[&str], status: i32| {
        let output = alone(folder.path(), words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{text}");
        text
    };
    let nothing = stated(&["serve"], 2);
    assert!(
        nothing.contains("there is nothing to serve") && nothing.contains("plimsoll serve -hf"),
        "{nothing}"
    );
    let empty = stated(&["serve", ".", "--check", "--card", "3090"], 2);
    assert!(empty.contains("no model that can be served was found in ."), "{empty}");
    let missing = stated(&["serve", "gone.gguf"], 2);
    assert!(missing.contains("there is no file gone.gguf"), "{missing}");
    model(&folder.path().join("a.gguf"));
    let engineless = stated(&["serve", "a.gguf", "--listen", "127.0.0.1:0"], 1);
    assert!(engineless.contains("plimsoll engine install"), "{engineless}");
    let written = stated(&["init", ".", "--card", "3090"], 0);
    assert!(written.contains("1 model written to plimsoll.toml"), "{written}");
    let again = stated(&["init", ".", "--card", "3090"], 2);
    assert!(again.contains("exists already; --force replaces it"), "{again}");
    // Without an argument, the file that is there now is served.
    let usual = alone(folder.path(), &["serve", "--check", "--card", "3090"]);
    let report = String::from_utf8_lossy(&usual.stdout);
    assert!(report.contains("model a ") && !report.contains("found  "), "{report}");
}
