//! Tests of `plimsoll ps`, `status`, `load`, `unload`, `pin`, `reload`, `logs` and `stop` against a running server.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup, until};
use crate::http::{chat, post};

fn plimsoll(daemon: &Daemon, key: &str, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(words)
        .env("PLIMSOLL_URL", format!("http://{}/v1", daemon.address))
        .env("PLIMSOLL_API_KEY", key)
        .output()
        .expect("plimsoll starts")
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn failed(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn models_are_listed_loaded_and_unloaded_from_a_shell() {
    let daemon = Setup::new().model("alpha-2", "612MiB", "", "").model("beta", "200MiB", "", "").start();
    let list = || printed(&plimsoll(&daemon, "", &["ps"]));
    assert!(list().contains("alpha-2  unloaded"), "{}", list());
    let said = printed(&plimsoll(&daemon, "", &["load", "alpha-2"]));
    assert_eq!(said, "alpha-2 is being loaded; `plimsoll ps` shows when it is ready\n");
    until("alpha is ready", || list().contains("ready  612 MiB"));
    let json: Value = serde_json::from_str(&printed(&plimsoll(&daemon, "", &["ps", "--json"]))).unwrap();
    assert_eq!(json["cards"][0]["claimed"], 612 << 20);

    let again = failed(&plimsoll(&daemon, "", &["load", "alpha-2"]));
    assert_eq!(again.0, Some(1));
    assert!(again.1.contains("model is already running"), "{}", again.1);
    let unknown = failed(&plimsoll(&daemon, "", &["unload", "gamma"]));
    assert_eq!(unknown.0, Some(2), "{}", unknown.1);
    assert!(unknown.1.contains("\nhint: name one of these models: alpha-2, beta"), "{}", unknown.1);

    let logs = printed(&plimsoll(&daemon, "", &["logs", "alpha-2"]));
    assert!(!logs.is_empty() && logs.lines().all(|line| line.starts_with("[alpha-2] ")), "{logs}");
    printed(&plimsoll(&daemon, "", &["load", "beta"]));
    until("beta is ready", || list().contains("ready  200 MiB"));
    printed(&plimsoll(&daemon, "", &["unload", "alpha-2"]));
    until("alpha has left", || list().contains("alpha-2  unloaded"));
    let said = printed(&plimsoll(&daemon, "", &["unload", "--all"]));
    assert_eq!(said, "all models are unloaded after the answers in progress\n");
    until("all engines have left", || daemon.engines().is_empty());
}

#[test]
fn a_changed_configuration_is_read_again() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").start();
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), text.replace("alpha", "omega")).unwrap();
    let said = printed(&plimsoll(&daemon, "", &["reload"]));
    assert_eq!(said, "the configuration was read again; models listed: 1\n");
    daemon.told("plimsoll.toml: read again, 2 models changed");
    until("omega is listed", || printed(&plimsoll(&daemon, "", &["ps"])).contains("omega"));
    std::fs::write(daemon.config_file(), "[models").unwrap();
    let (status, error) = failed(&plimsoll(&daemon, "", &["reload"]));
    assert_eq!(status, Some(1));
    assert!(error.contains("plimsoll.toml:1"), "{error}");
    // The operator reads the log, and did not send this request.
    daemon.told("; the old configuration remains in effect");
    assert!(daemon.talk().lines().any(|line| line.contains(" ERROR ") && line.contains("plimsoll.toml:1")));
}

#[test]
fn a_wrong_key_and_a_missing_server_are_clear_errors() {
    let daemon =
        Setup::new().config("[serve]\napi-keys = ['secret']\n").model("alpha", "100MiB", "", "").start();
    assert!(printed(&plimsoll(&daemon, "secret", &["ps"])).contains("alpha"));
    let (status, error) = failed(&plimsoll(&daemon, "wrong", &["ps"]));
    assert_eq!(status, Some(1));
    assert!(error.contains("the request contains no valid API key"), "{error}");
    let (status, error) = failed(&plimsoll(&daemon, "new\nline", &["ps"]));
    assert_eq!(status, Some(2), "{error}");
    let (status, error) = failed(&plimsoll(&daemon, "", &["ps", "--url", "http://127.0.0.1:1"]));
    assert_eq!(status, Some(1));
    assert!(error.contains("is `plimsoll serve` running at this address?"), "{error}");
}

#[test]
fn a_pinned_model_is_kept_and_the_refusal_of_others_names_it() {
    let daemon = Setup::new()
        .model("alpha", "612MiB", "", "")
        .model("beta", "600MiB", "", "")
        .model("fixed", "1MiB", "", "pin = true")
        .start();
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    let said = printed(&plimsoll(&daemon, "", &["pin", "alpha", "--for", "1h"]));
    assert_eq!(said, "alpha is pinned for 3600 s\n");
    let list = printed(&plimsoll(&daemon, "", &["ps"]));
    assert!(
        list.contains("ready, pinned for 1 h 00 min") || list.contains("ready, pinned for 59 min"),
        "{list}"
    );
    let refused = chat(daemon.address, "beta");
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("the pinned model alpha holds"), "{}", refused.text());
    printed(&plimsoll(&daemon, "", &["unpin", "alpha"]));
    assert_eq!(chat(daemon.address, "beta").status, 200);
    printed(&plimsoll(&daemon, "", &["pin", "beta"]));
    assert!(printed(&plimsoll(&daemon, "", &["ps"])).contains("ready, pinned "));

    let fixed = failed(&plimsoll(&daemon, "", &["unpin", "fixed"]));
    assert!(fixed.0 == Some(1) && fixed.1.contains("the configuration pins the model"), "{}", fixed.1);
    let unknown = failed(&plimsoll(&daemon, "", &["pin", "gamma"]));
    assert!(unknown.0 == Some(2) && unknown.1.contains("alpha, beta, fixed"), "{}", unknown.1);
    for time in ["0", "-1", "soon", "1h --for 2h", "99999999999d"] {
        assert_eq!(failed(&plimsoll(&daemon, "", &["pin", "beta", "--for", time])).0, Some(2), "{time}");
    }
    for time in ["0", "-1", "4294967296", "1.5", "x", ""] {
        let path = format!("/api/models/pin?for={time}");
        assert_eq!(post(daemon.address, &path, &json!({ "model": "beta" })).status, 400, "{time}");
    }
}

#[test]
fn the_status_begins_with_the_server_and_its_requests() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").model("huge", "2GiB", "", "").start();
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    assert_eq!(chat(daemon.address, "huge").status, 413);
    let status = printed(&plimsoll(&daemon, "", &["status"]));
    let head = format!(
        "plimsoll {} at http://{}, process {}, up ",
        env!("CARGO_PKG_VERSION"),
        daemon.address,
        daemon.pid()
    );
    assert!(status.starts_with(&head), "{status}");
    assert!(status.contains("requests: 1 answered, 1 failed, 0 abandoned; 0 in progress, 0 waiting\n\nCARD"));
    let json: Value = serde_json::from_str(&printed(&plimsoll(&daemon, "", &["status", "--json"]))).unwrap();
    assert_eq!(json["server"]["pid"], daemon.pid());
}

#[test]
fn requests_that_wait_and_that_are_answered_are_listed() {
    let daemon =
        Setup::new().model("alpha", "700MiB", "load_ms=3000", "").model("beta", "700MiB", "", "").start();
    let list = || printed(&plimsoll(&daemon, "", &["ps"]));
    assert!(!list().contains("REQUEST  "), "{}", list());
    let address = daemon.address;
    std::thread::scope(|scope| {
        let first = scope.spawn(move || chat(address, "alpha").status);
        until("the first request waits for the load", || {
            list().contains("waits: the model is still loading")
        });
        let second = scope.spawn(move || chat(address, "beta").status);
        until("both are listed", || {
            let text = list();
            let is_beta = |line: &str| line.starts_with("2 ") && line.contains(" beta ");
            text.contains("waits: the model still waits for memory") && text.lines().any(is_beta)
        });
        assert_eq!((first.join().unwrap(), second.join().unwrap()), (200, 200));
    });
    until("none is left", || !list().contains("REQUEST  "));
    let json: Value = serde_json::from_str(&printed(&plimsoll(&daemon, "", &["ps", "--json"]))).unwrap();
    assert_eq!(json["requests"], json!([]));
}

#[test]
fn an_address_is_given_alone_by_option_or_by_the_environment() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").start();
    let address = daemon.address.to_string();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        // The command line wins over the variable.
        command.args(words).env("PLIMSOLL_URL", "http://127.0.0.1:1").output().unwrap()
    };
    let soak = ["soak", "--requests", "1", "--clients", "1"];
    for verb in [&["ps"][..], &["status"], &["reload"], &soak, &["sweep", "--depths", "16"], &["stop"]] {
        let unreachable = failed(&run(verb));
        assert!(
            unreachable.0 == Some(1) && unreachable.1.contains("127.0.0.1:1"),
            "{verb:?}: {}",
            unreachable.1
        );
        let ended = |output: &Output| output.status.code() == Some(if verb[0] == "soak" { 3 } else { 0 });
        let output = run(&[verb, &[&address]].concat());
        assert!(ended(&output), "{verb:?}: {output:?}");
        if verb[0] != "stop" {
            let output = run(&[verb, &["--url", &address]].concat());
            assert!(ended(&output), "{verb:?}: {output:?}");
        }
    }
}

#[test]
fn a_document_goes_to_stdout_or_into_a_file() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("status.json");
    let option = format!("--json={}", file.display());
    assert!(printed(&plimsoll(&daemon, "", &["ps", &option])).starts_with("CARD"));
    let kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(kept["models"][0]["name"], "alpha");
    let (status, error) = failed(&plimsoll(&daemon, "", &["ps", "--json=/no/such/folder/x"]));
    assert!(status == Some(1) && error.contains("cannot write `/no/such/folder/x`"), "{error}");

    let config = daemon.config_file().to_str().unwrap().to_owned();
    let card = "--card=name=host,kind=host,total=1GiB";
    let text = printed(&plimsoll(&daemon, "", &["serve", &config, "--check", "--json", card]));
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["schema"], "plimsoll.serve-check/1");
    assert_eq!(json["cards"][0]["available"], 1 << 30);
    assert_eq!((&json["models"][0]["name"], &json["models"][0]["fits"]), (&json!("alpha"), &json!(true)));
    assert_eq!(failed(&plimsoll(&daemon, "", &["serve", &config, "--json", card])).0, Some(2));
}

#[test]
fn stop_ends_the_users_own_server_and_waits_for_its_end() {
    let mut daemon = Setup::new().model("alpha", "100MiB", "", "").start();
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    let said = printed(&plimsoll(&daemon, "", &["stop"]));
    assert_eq!(said, format!("the server at http://{} has ended\n", daemon.address));
    assert!(daemon.wait().success());
    daemon.told("end: 1 requests answered");
    let (status, error) = failed(&plimsoll(&daemon, "", &["stop"]));
    assert!(status == Some(1) && error.contains("does not answer"), "{error}");
}

// A page in front of the server, or a tunnel to another machine, says a number that is another process here.
#[test]
fn stop_ends_no_process_but_the_one_that_listens() {
    let mut bystander = Command::new("sleep").arg("60").spawn().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pids =
        [bystander.id().to_string(), "0".into(), "-1".into(), "1".into(), "1e99".into(), "\"7\"".into()];
    let count = pids.len();
    let answering = std::thread::spawn(move || {
        for pid in pids {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let body = format!("{{\"server\":{{\"pid\":{pid}}}}}");
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    for _ in 0..count {
        let url = format!("http://{address}");
        let output =
            Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["stop", "--url", &url]).output().unwrap();
        let (status, error) = failed(&output);
        assert_eq!(status, Some(1));
        assert!(error.contains("is not a process of yours on this machine"), "{error}");
    }
    answering.join().unwrap();
    assert!(bystander.try_wait().unwrap().is_none(), "it still runs");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}
