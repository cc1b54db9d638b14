//! Tests of `plimsoll ps`, `status`, `load`, `unload`, `pin`, `reload`, `logs` and `stop` against a running
//! server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

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
    let stated = printed(&plimsoll(&daemon, "", &["load", "alpha-2"]));
    let under_way = "alpha-2 is being loaded; `plimsoll ps` shows when it is ready\n";
    assert!([under_way, "alpha-2 is ready\n"].contains(&stated.as_str()), "{stated}");
    until("alpha is ready", || list().contains("ready  612 MiB"));
    let json: Value = serde_json::from_str(&printed(&plimsoll(&daemon, "", &["ps", "--json"]))).unwrap();
    assert_eq!(json["cards"][0]["claimed"], 612 << 20);

    assert_eq!(printed(&plimsoll(&daemon, "", &["load", "alpha-2"])), "alpha-2 is already loaded\n");
    assert_eq!(printed(&plimsoll(&daemon, "", &["unload", "beta"])), "beta is not loaded\n");
    let unknown = failed(&plimsoll(&daemon, "", &["unload", "gamma"]));
    assert_eq!(unknown.0, Some(2), "{}", unknown.1);
    assert!(unknown.1.contains("\nhint: name one of these models: alpha-2, beta"), "{}", unknown.1);

    let none = plimsoll(&daemon, "", &["logs", "beta"]);
    assert!(printed(&none).is_empty());
    assert!(String::from_utf8_lossy(&none.stderr).contains("no output of beta yet"));
    let logs = printed(&plimsoll(&daemon, "", &["logs", "alpha-2"]));
    assert!(!logs.is_empty() && logs.lines().all(|line| line.starts_with("[alpha-2] ")), "{logs}");
    let unknown = failed(&plimsoll(&daemon, "", &["logs", "gamma"]));
    assert!(unknown.0 == Some(2) && unknown.1.contains("model 'gamma' not found"), "{}", unknown.1);
    printed(&plimsoll(&daemon, "", &["load", "beta"]));
    until("beta is ready", || list().contains("ready  200 MiB"));
    printed(&plimsoll(&daemon, "", &["unload", "alpha-2"]));
    until("alpha has left", || list().contains("alpha-2  unloaded"));
    let stated = printed(&plimsoll(&daemon, "", &["unload", "--all"]));
    assert_eq!(stated, "all models will be unloaded once their current answers are finished\n");
    until("all engines have left", || daemon.engines().is_empty());
}

#[test]
fn a_changed_configuration_is_read_again() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").start();
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), text.replace("alpha", "omega")).unwrap();
    let stated = printed(&plimsoll(&daemon, "", &["reload"]));
    assert_eq!(stated, "the configuration was read again\n2 models changed: omega, alpha\n");
    daemon.reported("plimsoll.toml: read again, 2 models changed: omega, alpha");
    until("omega is listed", || printed(&plimsoll(&daemon, "", &["ps"])).contains("omega"));
    std::fs::write(daemon.config_file(), "[models").unwrap();
    let (status, error) = failed(&plimsoll(&daemon, "", &["reload"]));
    assert_eq!(status, Some(1));
    assert!(error.contains("plimsoll.toml:1"), "{error}");
    // The operator reads the log, and did not send this request.
    daemon.reported("; the old configuration remains in effect");
    assert!(daemon.talk().lines().any(|line| line.contains(" ERROR ") && line.contains("plimsoll.toml:1")));
}

#[test]
fn a_wrong_key_and_a_missing_server_are_clear_errors() {
    let daemon =
        Setup::new().config("[serve]\napi-keys = ['secret']\n").model("alpha", "100MiB", "", "").start();
    assert!(printed(&plimsoll(&daemon, "secret", &["ps"])).contains("alpha"));
    let (status, error) = failed(&plimsoll(&daemon, "wrong", &["ps"]));
    assert_eq!(status, Some(1));
    assert!(
        error.contains("the request contains no valid API key\nhint: pass a key with --api-key"),
        "{error}"
    );
    for verb in ["soak", "sweep"] {
        let (status, error) = failed(&plimsoll(&daemon, "wrong", &[verb]));
        assert_eq!(status, Some(1));
        assert!(error.contains("no valid API key\nhint: pass a key with --api-key"), "{error}");
    }
    let port = daemon.address.port();
    for place in [format!("{port}"), format!(":{port}"), format!("localhost:{port}")] {
        assert!(printed(&plimsoll(&daemon, "secret", &["ps", &place])).contains("alpha"), "{place}");
    }
    let (status, error) = failed(&plimsoll(&daemon, "new\nline", &["ps"]));
    assert_eq!(status, Some(2), "{error}");
    let (status, error) = failed(&plimsoll(&daemon, "", &["ps", "--url", "http://127.0.0.1:1"]));
    assert_eq!(status, Some(1));
    assert!(error.contains("is `plimsoll serve` running at this address?"), "{error}");
    assert!(error.contains("\nhint: `plimsoll top` shows this machine's cards"), "{error}");
}

#[test]
fn another_program_at_the_address_is_distinguished_from_a_refusal() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let answer = std::thread::spawn(move || {
        let (mut client, _) = other.accept().unwrap();
        let _ = client.read(&mut [0; 4096]).unwrap();
        let page = "HTTP/1.0 404 File not found\r\nContent-Length: 15\r\n\r\n<h1>Error</h1>\n";
        client.write_all(page.as_bytes()).unwrap();
    });
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["ps", &address]).output().unwrap();
    let (status, error) = failed(&output);
    answer.join().unwrap();
    assert_eq!(status, Some(1));
    assert!(
        error.contains(" is not from a plimsoll server\nhint: choose another address with --url"),
        "{error}"
    );
}

#[test]
fn a_check_of_a_server_finds_its_engine_or_names_them() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").model("beta", "100MiB", "", "").start();
    let check =
        || failed(&plimsoll(&daemon, "", &["plan", "--check", &format!("http://{}", daemon.address)]));
    let (status, error) = check();
    assert!(status == Some(2) && error.contains("has loaded no model\nhint: plimsoll load MODEL"), "{error}");
    for model in ["alpha", "beta"] {
        assert_eq!(chat(daemon.address, model).status, 200);
    }
    let (status, error) = check();
    assert!(status == Some(2) && error.contains("give the PID of one: "), "{error}");
    for engine in daemon.engines() {
        assert!(error.contains(&format!("{engine} (")), "{error}");
    }
    let locked =
        Setup::new().config("[serve]\napi-keys = ['secret']\n").model("alpha", "100MiB", "", "").start();
    let url = format!("http://{}", locked.address);
    let (_, error) = failed(&plimsoll(&locked, "wrong", &["plan", "--check", &url]));
    assert!(error.contains("no valid API key\nhint: pass a key in the variable PLIMSOLL_API_KEY"), "{error}");
    let (_, error) = failed(&plimsoll(&locked, "secret", &["plan", "--check", &url]));
    assert!(error.contains("has loaded no model"), "{error}");
}

#[test]
fn a_load_without_room_is_not_said_to_be_under_way() {
    let daemon = Setup::new().model("alpha", "612MiB", "", "").model("large", "64GiB", "", "").start();
    printed(&plimsoll(&daemon, "", &["yield", "900MiB", "--for", "1h"]));
    let (status, error) = failed(&plimsoll(&daemon, "", &["load", "alpha"]));
    assert!(status == Some(1) && error.starts_with("plimsoll: alpha is not loaded: "), "{error}");
    assert!(error.contains("`plimsoll yield` keeps free 900 MiB"), "{error}");
    let status = printed(&plimsoll(&daemon, "", &["status"]));
    assert!(status.contains("  refused: alpha does not fit") && status.contains("900 MiB"), "{status}");
    printed(&plimsoll(&daemon, "", &["yield", "--end"]));
    let (status, error) = failed(&plimsoll(&daemon, "", &["load", "large"]));
    assert!(status == Some(1) && error.contains("large is not loaded: "), "{error}");
    let stated = printed(&plimsoll(&daemon, "", &["load", "alpha"]));
    assert!(stated.starts_with("alpha is "), "{stated}");
}

#[test]
fn a_second_load_is_shown_what_the_model_does() {
    let daemon = Setup::new().model("alpha", "612MiB", "load_ms=3000", "").start();
    let load = || plimsoll(&daemon, "", &["load", "alpha"]);
    for _ in 0..2 {
        let stated = printed(&load());
        assert!(
            stated.starts_with("alpha is being loaded; ") || stated == "alpha is already loaded\n",
            "{stated}"
        );
    }
    until("alpha is ready", || printed(&plimsoll(&daemon, "", &["ps"])).contains("ready"));
    assert_eq!(printed(&load()), "alpha is already loaded\n");
}

#[test]
fn a_load_after_an_unload_waits_for_the_model_to_leave() {
    let daemon = Setup::new().model("alpha", "612MiB", "drain_ms=300", "").start();
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    printed(&plimsoll(&daemon, "", &["unload", "--all"]));
    let loaded = printed(&plimsoll(&daemon, "", &["load", "alpha"]));
    assert!(loaded.starts_with("alpha is "), "{loaded}");
    until("it is up again", || daemon.running() == ["alpha"]);
}

#[test]
fn an_engine_that_ends_at_once_is_an_answer_of_load() {
    let daemon = Setup::new().model("alpha", "612MiB", "fail=crash_at_load", "aliases = ['other']").start();
    for name in ["alpha", "other"] {
        let (status, error) = failed(&plimsoll(&daemon, "", &["load", name]));
        assert!(status == Some(1) && error.starts_with("plimsoll: alpha is not loaded: alpha: "), "{error}");
    }
    let listed = printed(&plimsoll(&daemon, "", &["status"]));
    let failures = listed.lines().filter(|line| line.contains("  failed ") || line.contains("  refused"));
    assert_eq!(failures.count(), 1, "{listed}");
}

#[test]
fn a_reload_says_what_it_changed_and_what_waits_for_a_restart() {
    let daemon =
        Setup::new().config("[serve]\napi-keys = ['old']\n").model("alpha", "100MiB", "", "").start();
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), text.replace("['old']", "['new']\nreserve = '1MiB'")).unwrap();
    assert_eq!(
        printed(&plimsoll(&daemon, "old", &["reload"])),
        "the configuration was read again\n0 models changed\n\
         `reserve` under [serve] has changed; restart the server to apply it\nthe API keys were replaced\n"
    );
    assert_eq!(failed(&plimsoll(&daemon, "old", &["ps"])).0, Some(1));
    assert!(printed(&plimsoll(&daemon, "new", &["ps"])).contains("alpha"));
    // A model that cannot be loaded is named at once.
    let lacking = "\n[models.lacking]\nflags = ['-m', '/no/such/file.gguf']\n";
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), text + lacking).unwrap();
    let stated = printed(&plimsoll(&daemon, "new", &["reload"]));
    assert!(stated.starts_with("the configuration was read again\n1 model changed: lacking\n"), "{stated}");
    assert!(
        stated.contains("\nwarning: lacking cannot be loaded: ") && stated.contains("/no/such/file.gguf"),
        "{stated}"
    );
}

#[test]
fn a_pinned_model_is_kept_and_the_refusal_of_others_names_it() {
    let daemon = Setup::new()
        .model("alpha", "612MiB", "", "")
        .model("beta", "600MiB", "", "")
        .model("fixed", "1MiB", "", "pin = true")
        .start();
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    let stated = printed(&plimsoll(&daemon, "", &["pin", "alpha", "--for", "1h"]));
    assert_eq!(stated, "alpha is pinned for 1 h 00 min\n");
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
    let stated = printed(&plimsoll(&daemon, "", &["unload", "beta"]));
    assert!(stated.contains("the model stays pinned"), "{stated}");
    daemon.reported("the model was unloaded by hand; its pin stays, and holds again once it is loaded");
    assert_eq!(chat(daemon.address, "beta").status, 200);
    let answer = post(daemon.address, "/models/unload", &json!({ "model": "beta" })).json();
    assert_eq!((&answer["success"], &answer["pinned"]), (&json!(true), &json!(true)), "{answer}");

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

/// Who left for whom is seen by a client, and not in the server's log alone.
#[test]
fn the_status_ends_with_what_the_server_did_last_and_why() {
    let daemon = Setup::new().model("alpha", "700MiB", "", "").model("beta", "700MiB", "", "").start();
    assert!(!printed(&plimsoll(&daemon, "", &["status"])).contains("LATEST"));
    for model in ["alpha", "beta"] {
        assert_eq!(chat(daemon.address, model).status, 200);
    }
    let status = printed(&plimsoll(&daemon, "", &["status"]));
    let latest = status.split_once("\nLATEST").expect("a list of what it did").1;
    assert!(latest.contains(" ago  stop alpha: beta needs 700 MiB\n"), "{status}");
    assert!(latest.find("  stop alpha") < latest.find("  ready beta\n"), "{status}");
    assert!(!printed(&plimsoll(&daemon, "", &["ps"])).contains("LATEST"));
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
    let stated = printed(&plimsoll(&daemon, "", &["stop"]));
    assert_eq!(stated, format!("the server at http://{} has ended\n", daemon.address));
    assert!(daemon.wait().success());
    daemon.reported("end: 1 request answered");
    let (status, error) = failed(&plimsoll(&daemon, "", &["stop"]));
    assert!(status == Some(1) && error.contains("does not answer"), "{error}");
}

#[test]
fn stop_needs_no_key_for_the_users_own_server() {
    let mut daemon =
        Setup::new().model("alpha", "100MiB", "", "").config("[serve]\napi-keys = ['secret']\n").start();
    assert_eq!(failed(&plimsoll(&daemon, "", &["ps"])).0, Some(1), "other verbs need one");
    printed(&plimsoll(&daemon, "", &["stop"]));
    assert!(daemon.wait().success());
}

#[test]
fn a_model_that_is_not_served_is_listed_with_its_mistakes() {
    let daemon = Setup::new()
        .model("alpha", "100MiB", "", "")
        .config("[models.typo]\nmodel = 'm.gguf'\nflags = '--ctx-sise 4 -c 64k'\n")
        .start();
    for verb in ["ps", "status"] {
        let list = printed(&plimsoll(&daemon, "", &[verb]));
        let line = list.lines().find(|line| line.starts_with("typo is not served: ")).expect(&list);
        assert!(line.contains("unknown flag `--ctx-sise`; did you mean --ctx-size?"), "{line}");
        assert!(line.contains("`-c 64k`: llama-server reads this as 64; write `-c 65536`"), "{line}");
    }
    let (status, error) = failed(&plimsoll(&daemon, "", &["load", "typo"]));
    assert!(status.is_some_and(|status| status > 0) && error.contains("--ctx-sise"), "{error}");
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

#[test]
fn a_watched_status_is_printed_again_until_the_server_ends() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").start();
    let mut watch = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["status", "--watch", "--url", &format!("http://{}", daemon.address)])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut next = |words: &str| lines.any(|line| line.starts_with(words));
    assert!(next("alpha  unloaded"));
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    assert!(next("alpha  ready"));
    printed(&plimsoll(&daemon, "", &["stop"]));
    assert!(!next("never"), "the output ends");
    assert_eq!(watch.wait().unwrap().code(), Some(1));
}
