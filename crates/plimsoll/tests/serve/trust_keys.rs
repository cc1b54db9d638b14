//! Tests of API keys that a reload revokes, and of signals while the daemon waits for its last answers before
//! it stops.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, Setup, until};
use crate::http::{chat, chat_body, get, open, open_with, read};

fn status_with(daemon: &Daemon, key: &str) -> u16 {
    let key = format!("Authorization: Bearer {key}\r\n");
    read(&open_with(daemon.address, "GET", "/v1/models", &key, None)).status
}

#[test]
fn a_key_that_a_reload_revokes_is_refused_and_the_new_one_accepted() {
    let config = |key: &str, wait: &str| format!("[serve]\napi-keys = [\"{key}\"]\nwait = \"{wait}\"\n");
    let daemon = Setup::new().config(&config("old", "60s")).start();
    assert_eq!((status_with(&daemon, "old"), status_with(&daemon, "new")), (200, 401));
    std::fs::write(daemon.config_file(), config("new", "30s")).unwrap();
    daemon.signal("HUP");
    until("the new key is valid", || status_with(&daemon, "new") == 200);
    assert_eq!(status_with(&daemon, "old"), 401);
    daemon.reported("`wait` under [serve] has changed; restart the server to apply it");
}

#[test]
fn requests_without_a_valid_key_are_counted_and_logged_once_in_a_while() {
    let daemon = Setup::new().config("[serve]\napi-keys = [\"good\"]\n").start();
    for _ in 0..20 {
        assert_eq!(status_with(&daemon, "secret-guess"), 401);
    }
    let metrics = read(&open_with(daemon.address, "GET", "/metrics", "Authorization: Bearer good\r\n", None));
    assert!(metrics.text().contains("\nplimsoll_unauthorized_total 20\n"), "{}", metrics.text());
    daemon.reported("WARN a request was refused (401): no valid API key; 1 since the start");
    let talk = daemon.talk();
    assert!(talk.matches("(401)").count() <= 2 && !talk.contains("secret-guess"), "{talk}");
}

#[test]
fn keys_that_every_user_may_read_are_reported() {
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), "good\n").unwrap();
    let chmod = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    chmod(keys.path(), 0o600);
    let config = format!("[serve]\napi-keys = [\"a\"]\napi-key-files = [\"{}\"]\n", keys.path().display());
    let daemon = Setup::new().config(&config).start();
    let reported = |path: &std::path::Path| {
        let path = path.display();
        format!(
            "WARN {path}: the file contains API keys, and every user of this machine may read it; run `chmod o-rwx \
             {path}`"
        )
    };
    // The configuration of a test has the mode that the user's mask gives it.
    let mode = std::fs::metadata(daemon.config_file()).unwrap().permissions().mode();
    match mode & 0o004 {
        0 => assert!(!daemon.talk().contains(&reported(&daemon.config_file())), "{}", daemon.talk()),
        _ => daemon.reported(&reported(&daemon.config_file())),
    }
    assert!(!daemon.talk().contains(&reported(keys.path())), "{}", daemon.talk());
    chmod(&daemon.config_file(), 0o640);
    chmod(keys.path(), 0o644);
    daemon.signal("HUP");
    daemon.reported(&reported(keys.path()));
}

#[test]
fn a_second_signal_is_heard_while_an_event_stream_is_open() {
    let mut daemon = Setup::new().model("a", "64MiB", "", "").start();
    assert_eq!(get(daemon.address, "/health").status, 200);
    let watcher = open(daemon.address, "GET", "/logs/stream", None);
    daemon.signal("TERM");
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    daemon.signal("TERM");
    daemon.wait();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    drop(watcher);
}

#[test]
fn a_second_signal_ends_answers_in_progress_too() {
    let mut daemon = Setup::new().model("slow", "64MiB", "delay_ms=60000", "").start();
    let requested = open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("slow", false)));
    daemon.reported("ready slow in ");
    daemon.signal("TERM");
    daemon.reported("a second signal stops at once");
    let start = Instant::now();
    daemon.signal("TERM");
    daemon.wait();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    daemon.reported("stopping at once; engines are killed");
    daemon.reported("end: 0 requests answered");
    assert_ne!(read(&requested).status, 200);
}

#[test]
fn event_and_log_streams_end_with_the_first_signal() {
    let mut daemon = Setup::new().model("a", "64MiB", "", "").start();
    assert_eq!(get(daemon.address, "/health").status, 200);
    let streams = ["/logs/stream", "/models/sse", "/api/status/stream"];
    let watchers = streams.map(|path| open(daemon.address, "GET", path, None));
    // The head of each stream has come, so that it is one that the signal finds.
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    daemon.signal("TERM");
    for (path, watcher) in streams.iter().zip(watchers) {
        let answer = read(&watcher);
        assert_eq!(answer.status, 200, "{path}");
    }
    assert!(daemon.wait().success());
    // The drain would let an unfinished answer have 30 s.
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

/// A FIFO without a writer would be opened for ever.
#[test]
fn a_reload_of_a_pipe_is_refused_and_stops_no_request_and_no_signal() {
    let mut daemon = Setup::new().model("a", "64MiB", "", "").start();
    assert_eq!(chat(daemon.address, "a").status, 200);
    std::fs::remove_file(daemon.config_file()).unwrap();
    let created = std::process::Command::new("mkfifo").arg(daemon.config_file()).status();
    assert!(created.unwrap().success());
    daemon.signal("HUP");
    daemon.reported("it is not a regular file");
    assert_eq!(chat(daemon.address, "a").status, 200);
    let start = Instant::now();
    daemon.signal("TERM");
    assert!(daemon.wait().success());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn keys_have_names_and_rights_and_every_change_is_logged_with_its_key() {
    let digest = "sha256:5551d8b68fe6d566047463be4af31e949db47623ebbf1252ce4eb996599a8574";
    let config = format!(
        "[keys.ops]\nkey = \"{digest}\"\nrights = [\"change\", \"operate\"]\n\
        [keys.reader]\nkey = \"key-of-reader\"\n"
    );
    let daemon = Setup::new().config(&config).model("a", "64MiB", "", "").start();
    let ask = |key: &str, method: &str, path: &str, body: Option<&serde_json::Value>| {
        let key = format!("Authorization: Bearer {key}\r\n");
        read(&open_with(daemon.address, method, path, &key, body)).status
    };
    let model = &serde_json::json!({ "model": "a" });
    let model = Some(model);
    assert_eq!(ask("key-of-reader", "POST", "/models/load", model), 403);
    assert_eq!(ask("key-of-ops", "POST", "/models/load", model), 200);
    daemon.reported("INFO audit load a: key ops");
    assert_eq!(ask("key-of-ops", "POST", "/v1/chat/completions", model), 403);
    assert_eq!(ask("key-of-reader", "POST", "/v1/chat/completions", model), 200);
    assert_eq!(ask(digest, "POST", "/models/unload", model), 401, "a digest is no key");
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    let more = "[keys.new]\nkey = \"key-of-new\"\nrequests-per-minute = 1\n";
    std::fs::write(daemon.config_file(), text.replace("[keys.reader]\nkey = \"key-of-reader\"\n", more))
        .unwrap();
    assert_eq!(ask("key-of-ops", "POST", "/api/reload", None), 200);
    daemon.reported("INFO audit reload: key ops");
    daemon.reported("INFO audit add key new: ");
    daemon.reported("INFO audit remove key reader: ");
    assert_eq!(ask("key-of-reader", "GET", "/v1/models", None), 401);
    assert_eq!(ask("key-of-new", "POST", "/v1/chat/completions", model), 200);
    assert_eq!(ask("key-of-new", "POST", "/v1/chat/completions", model), 429);
    daemon.signal("HUP");
    daemon.reported("INFO audit reload: SIGHUP");
    assert_eq!(ask("key-of-new", "POST", "/v1/chat/completions", model), 429, "a reload refills nothing");
    let talk = daemon.talk();
    assert!(!talk.contains("key-of-") && !talk.contains(&digest["sha256:".len()..]), "{talk}");
    assert!(!talk.contains("change key"), "{talk}");
}

#[test]
fn two_keys_with_one_text_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plimsoll.toml");
    let keys = "[keys.a]\nkey = \"same\"\n[serve]\napi-keys = [\"same\"]\n";
    std::fs::write(&file, keys).unwrap();
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["serve"])
        .arg(&file)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(error.contains("the API key `a` is given twice") && !run.status.success(), "{error}");
}
