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
    printed(&plimsoll(&daemon, "", &["load", "alpha-2"]));
    until("alpha is ready", || list().contains("ready  612 MiB"));
    let json: Value = serde_json::from_str(&printed(&plimsoll(&daemon, "", &["ps", "--json"]))).unwrap();
    assert_eq!(json["cards"][0]["claimed"], 612 << 20);

    let again = failed(&plimsoll(&daemon, "", &["load", "alpha-2"]));
    assert_eq!(again.0, Some(1));
    assert!(again.1.contains("model is already running"), "{}", again.1);
    let unknown = failed(&plimsoll(&daemon, "", &["unload", "gamma"]));
    assert_eq!(unknown.0, Some(2), "{}", unknown.1);

    let logs = printed(&plimsoll(&daemon, "", &["logs", "alpha-2"]));
    assert!(!logs.is_empty() && logs.lines().all(|line| line.starts_with("[alpha-2] ")), "{logs}");
    printed(&plimsoll(&daemon, "", &["load", "beta"]));
    until("beta is ready", || list().contains("ready  200 MiB"));
    printed(&plimsoll(&daemon, "", &["unload", "alpha-2"]));
    until("alpha has left", || list().contains("alpha-2  unloaded"));
    printed(&plimsoll(&daemon, "", &["unload", "--all"]));
    until("all engines have left", || daemon.engines().is_empty());
}

#[test]
fn a_changed_configuration_is_read_again() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").start();
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), text.replace("alpha", "omega")).unwrap();
    printed(&plimsoll(&daemon, "", &["reload"]));
    until("omega is listed", || printed(&plimsoll(&daemon, "", &["ps"])).contains("omega"));
    std::fs::write(daemon.config_file(), "[models").unwrap();
    let (status, error) = failed(&plimsoll(&daemon, "", &["reload"]));
    assert_eq!(status, Some(1));
    assert!(error.contains("plimsoll.toml:1"), "{error}");
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
    printed(&plimsoll(&daemon, "", &["pin", "alpha", "--for", "1h"]));
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
    assert_eq!(failed(&plimsoll(&daemon, "", &["pin", "gamma"])).0, Some(2));
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
fn stop_ends_the_users_own_server_and_waits_for_its_end() {
    let mut daemon = Setup::new().model("alpha", "100MiB", "", "").start();
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    printed(&plimsoll(&daemon, "", &["stop"]));
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
