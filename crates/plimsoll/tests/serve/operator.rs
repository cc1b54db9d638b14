//! Tests of the operator's view: the log on stderr and the help text.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::daemon::{Setup, until};
use crate::http::{chat, post};

#[test]
fn the_start_says_where_with_what_and_for_whom() {
    let daemon = Setup::with_cards(&["name=left,kind=host,total=1GiB", "name=right,kind=host,total=512MiB"])
        .model("small", "100MiB", "", "")
        .model("large-one", "300MiB", "", "")
        .config("[models.missing]\nmodel = '/no/such.gguf'\n")
        .argument("--engine")
        .argument("/bin/true")
        .start();
    let expected = [
        format!("at http://{}", daemon.address),
        "card  left   1024 MiB available of 1024 MiB".to_owned(),
        "card  right  512 MiB available of 512 MiB".to_owned(),
        "model small      100 MiB declared".to_owned(),
        "model large-one  300 MiB declared".to_owned(),
        "model missing    cannot be loaded: missing could not be started: ".to_owned(),
    ];
    for line in expected {
        until(&line, || daemon.talk().contains(&line));
    }
    daemon.reported("/no/such.gguf");
}

#[test]
fn each_load_and_each_leave_is_a_line_with_bytes_and_the_reason() {
    let daemon = Setup::new()
        .model("alpha", "612MiB", "", "")
        .model("beta", "500MiB", "", "")
        .model("huge", "2GiB", "", "")
        .model("bad", "100MiB", "fail=oom_at_load", "")
        .start();
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    assert_eq!(chat(daemon.address, "beta").status, 200);
    for _ in 0..5 {
        assert_eq!(chat(daemon.address, "huge").status, 413);
    }
    assert_eq!(chat(daemon.address, "bad").status, 503);
    let order = json!({"model": "beta"});
    let _ = post(daemon.address, "/models/unload", &order);
    until("the last engine has left", || daemon.engines().is_empty());
    for line in [
        "INFO load alpha: 612 MiB on host (612 MiB of 1024 MiB reserved)",
        "INFO ready alpha in ",
        "INFO stop alpha (idle 0 s): beta needs 500 MiB",
        "INFO stopped alpha",
        "INFO load beta: 500 MiB on host (500 MiB of 1024 MiB reserved)",
        "INFO request refused: huge would not fit on the cards that it may use",
        "WARN bad ran out of",
    ] {
        daemon.reported(line);
    }
    let talk = daemon.talk();
    assert_eq!(talk.matches("request refused: huge would not fit").count(), 1, "{talk}");
    assert_eq!(talk.matches("is refused: huge would not fit").count(), 1, "at the start: {talk}");
}

#[test]
fn a_check_warns_of_a_card_of_the_file_that_is_not_in_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("plimsoll.toml");
    std::fs::write(&config, "[serve]\ncards = [\"name=made-up,total=24GiB,cc=8.6\"]\n[models.a]\ncmd = \"p ${PORT}\"\nmemory = \"1GiB\"\n").unwrap();
    let check = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let output = command.args(["serve", "--check"]).arg(&config).args(more).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let reported = "the card made-up is not a card of this machine";
    assert!(check(&[]).contains(reported), "{}", check(&[]));
    // A plan for another machine, whose cards the command line describes.
    let planned = check(&["--card", "name=H200,total=80GiB"]);
    assert!(!planned.contains("is not a card of this machine"), "{planned}");
    assert!(planned.contains("H200 is planned as a card of another machine; kind=host"), "{planned}");
}

/// What the start of the server would refuse is no good configuration.
#[test]
fn a_check_refuses_an_address_that_nothing_permits() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("plimsoll.toml");
    let check = |serve: &str| {
        let text = format!("[serve]\n{serve}\n[models.a]\ncmd = \"sh ${{PORT}}\"\nmemory = \"1MiB\"\n");
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["serve", "--check", "--card", "kind=host,total=1GiB"]).arg(&config).output().unwrap()
    };
    let output = check("listen = \"0.0.0.0:8099\"");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("no API key is set"), "{error}");
    for permitted in
        ["listen = \"0.0.0.0:8099\"\nopen = true", "listen = \"0.0.0.0:8099\"\napi-keys = [\"k\"]"]
    {
        assert_eq!(check(permitted).status.code(), Some(0), "{permitted}");
    }
}

#[test]
fn installed_engines_are_removed_and_other_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("plimsoll");
    let remove = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let output = command.args(["engine", "remove"]).env("PLIMSOLL_HOME", &home).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(remove(), "nothing is installed\n");
    let mut list = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let none =
        list.args(["engine", "list"]).env("PLIMSOLL_HOME", &home).env("PATH", "/nowhere").output().unwrap();
    assert_eq!((none.status.code(), none.stdout.len()), (Some(1), 0));
    for folder in ["engines/xllamacpp-1/venv", "quickstart", "own"] {
        std::fs::create_dir_all(home.join(folder)).unwrap();
        std::fs::write(home.join(folder).join("file"), "x").unwrap();
    }
    // A link leads out of the folder; what it leads to stays.
    std::os::unix::fs::symlink(home.join("own"), home.join("engines/link")).unwrap();
    let place = home.display();
    // An engine that runs keeps its files.
    let script = home.join("engines/xllamacpp-1/llama-server");
    std::fs::write(&script, "read line\n").unwrap();
    let mut engine = Command::new("sh").arg(&script).stdin(Stdio::piped()).spawn().unwrap();
    until("the removal is refused", || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        // A look before the exec of the script would see none.
        let running = std::fs::read(format!("/proc/{}/cmdline", engine.id())).unwrap();
        if !String::from_utf8_lossy(&running).contains("llama-server") {
            return false;
        }
        let output = command.args(["engine", "remove"]).env("PLIMSOLL_HOME", &home).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        let reported = format!("the installed engine is in use by process {} (sh)", engine.id());
        assert!(output.status.code() == Some(1) && error.contains(&reported), "{error}");
        true
    });
    engine.kill().unwrap();
    engine.wait().unwrap();
    assert_eq!(remove(), format!("removed {place}/engines\nremoved {place}/quickstart\n"));
    assert!(home.join("own/file").exists() && !home.join("engines").exists());
    std::fs::remove_dir_all(home.join("own")).unwrap();
    std::fs::create_dir_all(home.join("engines")).unwrap();
    assert_eq!(remove(), format!("removed {place}/engines\n"));
    assert!(!home.exists(), "its own folder is empty, and goes too");
}

#[test]
fn the_help_says_what_a_newcomer_has_to_know() {
    let help = |arguments: &[&str]| {
        let run = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(arguments).output();
        let run = run.expect("plimsoll runs");
        assert!(run.status.success());
        String::from_utf8_lossy(&run.stdout).into_owned()
    };
    assert!(help(&["--help"]).contains("serve"));
    // A terminal's width decides where its lines end.
    let serve = help(&["serve", "--help"]);
    let serve = serve.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in ["127.0.0.1:8080", "--open", "--card", "SIGHUP", "Relative paths", "no time limit"] {
        assert!(serve.contains(word), "{word:?} in\n{serve}");
    }
}
