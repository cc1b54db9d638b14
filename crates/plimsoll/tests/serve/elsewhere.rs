//! Tests of engines at other addresses than 127.0.0.1, and of configurations with invalid models beside valid
//! ones, also in `--check`.

use std::process::Command;

use serde_json::Value;

use crate::daemon::{Setup, fake_engine};
use crate::http::{chat, get};

/// Runs `--check` on a file of these models; what it prints, what it complains of, and its status.
fn checked(name: &str, text: &str, more: &[&str]) -> (String, String, Option<i32>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join(name);
    std::fs::write(&file, text).expect("the folder can be written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["serve", "--check", "--card", "kind=host,total=1GiB"]).arg(&file).args(more);
    let output = command.output().expect("plimsoll runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn an_engine_at_another_address_of_this_machine_is_asked_there() {
    let daemon = Setup::new()
        .named("config.yaml")
        .config(&format!(
            "models:\n  a:\n    cmd: {} --host 127.0.0.2 --port ${{PORT}} --alias a\n    proxy: http://127.0.0.2:${{PORT}}\n    \
             name: A for people\n    description: far\n",
            fake_engine().display()
        ))
        .start();
    let answer = chat(daemon.address, "a");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let listed = get(daemon.address, "/v1/models").json();
    assert_eq!(
        (&listed["data"][0]["name"], &listed["data"][0]["description"]),
        (&"A for people".into(), &"far".into())
    );
}

#[test]
fn a_bad_entry_is_one_model_that_is_not_served() {
    let bad = "[models.bad]\ncmd = 'x ${PORT}'\nmemry = '1MiB'\n[models.other]\ncmd = 'x ${PORT}'\ncards = ['H200']\n";
    let daemon = Setup::new().model("good", "100MiB", "", "").config(bad).start();
    assert_eq!(chat(daemon.address, "good").status, 200);
    let answer = chat(daemon.address, "bad");
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert!(answer.text().contains("unknown key `memry`"), "{}", answer.text());
    let answer = chat(daemon.address, "other").text();
    assert!(answer.contains("there is no card `H200`"), "{answer}");
    daemon.reported("the model `bad` is not served");
}

#[test]
fn a_check_with_a_mistake_has_the_figures_of_the_good_models() {
    let text = "[models.good]\ncmd = 'sh ${PORT}'\nmemory = '100MiB'\n[models.bad]\ncmd = 'sh ${PORT}'\nmemry = '1MiB'\n";
    let (out, error, status) = checked("a.toml", text, &[]);
    assert_eq!(status, Some(2), "{out}{error}");
    assert!(out.starts_with("1 of 1 model can be loaded; 1 mistake in the file\n"), "{out}");
    assert!(out.contains("model good  100 MiB declared"), "{out}");
    assert!(error.contains("a.toml:6: unknown key `memry` in the file; did you mean `memory`?"), "{error}");
    let (out, _, status) =
        checked("a.toml", &text.replace("[models.good]", "[serve]\nlistenn = 1\n[models.good]"), &["--json"]);
    let json: Value = serde_json::from_str(&out).expect("one document");
    assert_eq!((status, json["models"][0]["fits"].as_bool()), (Some(2), Some(true)), "{out}");
    assert_eq!(json["mistakes"].as_array().map(Vec::len), Some(2), "{out}");
}

#[test]
fn pins_and_preloads_that_cannot_stand_together_are_found() {
    let model = |name: &str, memory: &str, more: &str| {
        format!("[models.{name}]\ncmd = 'sh ${{PORT}}'\nmemory = '{memory}'\n{more}\n")
    };
    let pins = |two: &str| {
        model("a", "700MiB", "pin = true") + &model("b", two, "pin = true") + &model("c", "9MiB", "")
    };
    let (out, error, status) = checked("a.toml", &pins("200MiB"), &[]);
    assert_eq!((status, out.contains("pins")), (Some(0), false), "{out}{error}");
    let (out, _, status) = checked("a.toml", &pins("400MiB"), &[]);
    assert_eq!(status, Some(1), "{out}");
    assert!(out.contains("\npins  `b` is pinned, and cannot be loaded beside `a`: "), "{out}");
    let preloads = model("a", "700MiB", "preload = true") + &model("b", "400MiB", "preload = true");
    let (out, _, status) = checked("a.toml", &preloads, &[]);
    assert_eq!(status, Some(0), "a preload that does not fit is left out: {out}");
    assert!(out.contains("\npreload  `b` is not loaded at the start beside `a`: "), "{out}");
    let group = "[groups.g]\nmembers = ['a', 'b']\nswap = true\n";
    let (out, _, status) = checked("a.toml", &(pins("200MiB") + group), &[]);
    assert!(status == Some(1) && out.contains("may not run beside it"), "{out}");
    // As llama-swap says: such a group changes nothing among its members.
    let swap = "models:\n  a: {cmd: 'sh ${PORT}'}\n  b: {cmd: 'sh ${PORT}'}\ngroups:\n  \
        main: {swap: true, exclusive: false, persistent: true, members: [a, b]}\n";
    let (out, _, status) = checked("a.yaml", swap, &[]);
    assert_eq!((status, out.contains("pins")), (Some(0), false), "{out}");
}
