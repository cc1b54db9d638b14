//! Tests of flags that are changed over HTTP: planned, saved into the configuration, refused, and undone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::daemon::{Daemon, Setup, fake_engine};
use crate::http::{self, Answer, chat, get, post};

/// A folder with a model and an engine for it.
fn yard() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let changes = plimsoll_specimens::Changes::default();
    plimsoll_specimens::write("tiny", &folder.path().join("m.gguf"), &changes).expect("the folder is ours");
    let engine = folder.path().join("llama-server");
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in\n--version) echo 'version: 8799 (abc)';;\n--help) echo usage;;\n*) exec '{}' \"$@\";;\nesac\n",
        fake_engine().display()
    );
    fs::write(&engine, script).expect("the folder can be written");
    fs::set_permissions(&engine, fs::Permissions::from_mode(0o755)).expect("it is ours");
    folder
}

/// A section with comments, for a model of this name.
fn section(folder: &Path, key: &str, flags: &str) -> String {
    let folder = folder.display();
    format!(
        "\n# about it\n[models.{key}] # the name\nmodel = \"{folder}/m.gguf\"\nprogram = \"{folder}/llama-server\"\nguard = {{ mode = \"off\" }}\nflags = \"{flags}\" # why\n# end\n"
    )
}

fn shown(daemon: &Daemon, model: &str) -> Value {
    let answer = get(daemon.address, &format!("/api/flags?model={model}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn save(daemon: &Daemon, model: &str, flags: &str, digest: &Value) -> Answer {
    post(daemon.address, "/api/flags", &json!({ "model": model, "flags": flags, "digest": digest }))
}

fn code(answer: &Answer) -> (u16, String) {
    (answer.status, answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
}

fn text(daemon: &Daemon) -> String {
    fs::read_to_string(daemon.config_file()).expect("the configuration is there")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn flags_are_planned_saved_with_comments_and_undone() {
    let folder = yard();
    let name = "a.b \\\"c\\\"";
    let other = section(folder.path(), "other", "-c 512");
    let daemon = Setup::new()
        .config(&section(folder.path(), &format!("\"{name}\""), "-c 512 -np 1"))
        .config(&other)
        .start();
    let file = daemon.config_file();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is ours");
    let (model, before) = ("a.b \"c\"", text(&daemon));
    let first = shown(&daemon, "a.b%20%22c%22");
    assert_eq!((&first["flags"], &first["undo"]), (&json!("-c 512 -np 1"), &json!(false)));
    assert_eq!(chat(daemon.address, "other").status, 200);

    let plan = |flags: &str| {
        let answer = post(daemon.address, "/api/flags/plan", &json!({ "model": model, "flags": flags }));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let shares = answer.json()["shares"].clone();
        (answer.json()["fits"].clone(), shares[0]["bytes"].as_u64().unwrap_or_default())
    };
    let (small, large) = (plan("-c 512 -np 1"), plan("-c 8192 -np 1"));
    assert!(small.0 == "now" && large.1 > small.1, "{small:?} {large:?}");
    assert_eq!(plan("-c 1073741824 -np 1").0, "never");
    assert_eq!(text(&daemon), before, "a plan writes nothing");

    let saved = save(&daemon, model, "-c 8192 -np 1", &first["digest"]);
    assert_eq!(saved.status, 200, "{}", saved.text());
    assert!(saved.json()["reload"][0].as_str().unwrap().starts_with("1 model changed"), "{}", saved.text());
    assert_eq!(text(&daemon), before.replace("-c 512 -np 1", "-c 8192 -np 1"));
    assert_eq!(mode(&file), 0o640);
    let former = file.with_file_name("plimsoll.toml.former");
    assert_eq!((fs::read_to_string(&former).unwrap(), mode(&former)), (before.clone(), 0o640));
    daemon.reported("audit change flags a.b \"c\": no key is required");
    assert_eq!(daemon.running(), ["other"], "the other model keeps its engine");
    assert_eq!(code(&save(&daemon, model, "-c 1024", &first["digest"])), (409, "config_changed".to_owned()));

    let second = shown(&daemon, "a.b%20%22c%22");
    assert_eq!((&second["undo"], &second["digest"]), (&json!(true), &saved.json()["digest"]));
    let undo = |digest: &Value| post(daemon.address, "/api/flags/undo", &json!({ "digest": digest }));
    assert_eq!(code(&undo(&first["digest"])), (409, "config_changed".to_owned()));
    assert_eq!(undo(&second["digest"]).status, 200);
    assert_eq!(text(&daemon), before);
    daemon.reported("audit undo the change of flags: no key is required");
    // Once more, which brings the change back; but not after an editor has written.
    assert_eq!(undo(&first["digest"]).status, 200);
    assert_eq!(text(&daemon), before.replace("-c 512 -np 1", "-c 8192 -np 1"));
    fs::write(&file, text(&daemon) + "# by hand\n").unwrap();
    assert_eq!(code(&undo(&shown(&daemon, "other")["digest"])), (409, "nothing_to_undo".to_owned()));
}

#[test]
fn flags_that_cannot_be_saved_are_refused_and_the_file_stays() {
    let folder = yard();
    let secret = section(folder.path(), "secret", "-c 512 --hf-token hf_abc");
    let daemon = Setup::new()
        .config(&section(folder.path(), "a", "-c 512"))
        .config(&secret)
        .model("own", "100MiB", "", "")
        .start();
    let (file, before) = (daemon.config_file(), text(&daemon));
    let digest = shown(&daemon, "a")["digest"].clone();
    let place = format!("{}:7: ", file.display());
    for (flags, words) in [
        ("-c", "needs a value"),
        ("--no-such-flag 5", "--no-such-flag"),
        ("-c 'x", "quotation mark"),
        ("-c 512 --log-file /tmp/x", "--log-file"),
        ("-c 512 -m /etc/passwd", "--model"),
    ] {
        for path in ["/api/flags", "/api/flags/plan"] {
            let order = json!({ "model": "a", "flags": flags, "digest": digest });
            let answer = post(daemon.address, path, &order);
            let message = answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
            assert_eq!(code(&answer), (400, "bad_flags".to_owned()), "{flags}: {}", answer.text());
            assert!(message.starts_with(&place) && message.contains(words), "{flags}: {message}");
        }
    }
    for (model, words) in [("own", "has no `flags`"), ("secret", "hold a secret")] {
        let answer = get(daemon.address, &format!("/api/flags?model={model}"));
        assert_eq!(code(&answer), (400, "bad_flags".to_owned()));
        assert!(answer.text().contains(words) && !answer.text().contains("hf_abc"), "{}", answer.text());
    }
    let foreign = "Origin: http://evil.example\r\n";
    let order = json!({ "model": "a", "flags": "-c 1", "digest": digest });
    let asked = http::open_with(daemon.address, "POST", "/api/flags", foreign, Some(&order));
    assert_eq!(http::read(&asked).status, 403);
    assert_eq!(text(&daemon), before);

    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let refusal = shown(&daemon, "a")["refusal"].clone();
    assert!(refusal.as_str().is_some_and(|text| text.contains("the file is read-only")), "{refusal}");
    assert_eq!(code(&save(&daemon, "a", "-c 1024", &digest)), (409, "config_read_only".to_owned()));
    assert_eq!(text(&daemon), before);
    assert_eq!(
        fs::read_dir(file.parent().unwrap())
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().contains(".new"))
            .count(),
        0
    );
}

#[test]
fn a_link_to_the_configuration_stays_a_link_and_other_formats_are_refused() {
    let folder = yard();
    let config = folder.path().join("real.toml");
    fs::write(&config, section(folder.path(), "a", "-c 512")).unwrap();
    let daemon = Setup::new().config(&section(folder.path(), "a", "-c 512")).start();
    let file = daemon.config_file();
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&config, &file).unwrap();
    let saved = save(&daemon, "a", "-c 1024", &shown(&daemon, "a")["digest"]);
    assert_eq!(saved.status, 200, "{}", saved.text());
    assert!(fs::symlink_metadata(&file).unwrap().is_symlink());
    assert!(fs::read_to_string(&config).unwrap().contains("-c 1024"));
    assert!(folder.path().join("real.toml.former").is_file());

    let yaml = "models:\n  a:\n    cmd: sleep ${PORT}\n    proxy: http://127.0.0.1:9\n";
    let swap = Setup::new().named("swap.yaml").config(yaml).start();
    let answer = get(swap.address, "/api/flags?model=a");
    assert_eq!(code(&answer), (409, "config_format".to_owned()), "{}", answer.text());
    assert!(answer.text().contains("plimsoll import"), "{}", answer.text());
}

#[test]
fn a_text_that_cannot_be_applied_is_taken_back() {
    let folder = yard();
    let daemon = Setup::new().config(&section(folder.path(), "a", "-c 512")).start();
    let file = daemon.config_file();
    // An editor has left a mistake that only the reload finds.
    let broken =
        format!("[serve]\napi-key-files = [\"{}/none\"]\n{}", folder.path().display(), text(&daemon));
    fs::write(&file, &broken).unwrap();
    let answer = save(&daemon, "a", "-c 1024", &shown(&daemon, "a")["digest"]);
    assert_eq!(code(&answer), (400, "bad_config".to_owned()), "{}", answer.text());
    assert!(answer.text().contains("the file has its former text again"), "{}", answer.text());
    assert_eq!(text(&daemon), broken);
}
