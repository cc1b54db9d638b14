//! Tests of the daemon's log: a line for each request, formats, levels, rotation, and readers that stop.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup, until};
use crate::http::{chat, get, post};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

fn end(mut daemon: Daemon) -> String {
    daemon.signal("TERM");
    assert!(daemon.wait().success());
    daemon.reported("end: ");
    daemon.talk()
}

#[test]
fn each_request_is_notified_when_it_waits_and_when_it_ends() {
    let daemon = Setup::new()
        .model("alpha", "612MiB", "", "")
        .model("slow", "100MiB", "load_ms=1500", "")
        .model("huge", "2GiB", "", "")
        .start();
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    assert_eq!(chat(daemon.address, "slow").status, 200);
    assert_eq!(chat(daemon.address, "huge").status, 413);
    daemon.reported("request huge: 413 in ");
    let talk = end(daemon);
    let first = talk.find(" INFO request alpha: 200 in ").expect("the first request");
    // The check before a load takes milliseconds, and is no wait worth a line.
    assert!(!talk.contains("still being checked"), "{talk}");
    let waits = talk.find(" INFO wait slow: the model is still loading\n").expect("the wait for a load");
    assert!(waits > first, "{talk}");
    assert_eq!(talk.matches(" with a load, ").count(), 2, "{talk}");
    assert_eq!(talk.matches(" INFO request alpha: 200 in ").count(), 2, "{talk}");
    assert!(talk.lines().filter(|line| line.contains("request alpha")).all(|line| line.ends_with(" tokens")));
    assert!(talk.contains("end: 3 requests answered, 1 failed, 0 abandoned by their clients, "), "{talk}");
    for line in talk.lines() {
        let time = line.split(' ').next().unwrap();
        assert!(time.len() == 24 && time.ends_with('Z') && time.contains('T'), "{line}");
    }
}

#[test]
fn json_lines_have_the_same_figures_and_the_configuration_may_ask_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let daemon = Setup::new()
        .config("[serve]\nlog-format = 'json'\nlog-level = 'debug'\n")
        .model("alpha", "100MiB", "load_ms=1500", "")
        .argument("--log-file")
        .argument(file.to_str().unwrap())
        .start();
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    let talk = lines(&end(daemon));
    let request = talk.iter().find(|line| line["status"].is_u64()).expect("a request");
    assert_eq!(
        [&request["model"], &request["status"], &request["loaded"], &request["complete"], &request["level"]],
        [&json!("alpha"), &json!(200), &json!(true), &json!(true), &json!("info")]
    );
    assert!(
        request["ms"].as_u64() >= request["waited_ms"].as_u64() && request["tokens"].is_u64(),
        "{request}"
    );
    assert!(talk.iter().any(|line| line["waits_for"] == "load"), "{talk:?}");
    // The file has the same lines, and those of the engine.
    let kept = lines(&std::fs::read_to_string(&file).unwrap());
    assert!(talk.iter().all(|line| kept.contains(line)), "{kept:?}");
    let of_engine = |line: &&Value| line["model"] == "alpha" && line["level"].is_null();
    assert!(kept.iter().any(|line| of_engine(&line)), "{kept:?}");
}

#[test]
fn the_command_line_chooses_before_the_environment_and_the_configuration() {
    let quiet = "[serve]\nlog-level = 'warn'\n";
    let setup = || Setup::new().config(quiet).model("alpha", "100MiB", "", "");
    let talk = end(setup().argument("--log-level").argument("info").variable("RUST_LOG", "off").start());
    assert!(talk.contains("INFO serving 1 model of "), "{talk}");
    let mut daemon = setup().variable("JOURNAL_STREAM", "1:2").start();
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    daemon.signal("TERM");
    assert!(daemon.wait().success());
    assert!(!daemon.talk().contains("INFO"), "{}", daemon.talk());
    let talk = end(setup().argument("-v").start());
    assert!(talk.contains("DEBUG") || talk.contains("INFO"), "{talk}");
}

#[test]
fn under_systemd_a_line_begins_with_its_priority() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal");
    let shell =
        format!("exec 2>'{}'; export JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2)", file.display());
    let mut daemon = Setup::new().model("alpha", "100MiB", "", "").after(&shell).start();
    daemon.signal("TERM");
    assert!(daemon.wait().success());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.lines().count() > 2 && text.lines().all(|line| line.starts_with("<6> INFO ")), "{text}");
}

#[test]
fn a_name_from_a_client_makes_no_line_and_no_escape() {
    let name = "x\\n2026-01-01T00:00:00Z  INFO forged\\u001b[2J\\u202e";
    let model =
        format!("[models.\"{name}\"]\ncmd = \"/no/\\u001b[1m\\nsuch ${{PORT}}\"\nmemory = \"1MiB\"\n");
    let daemon = Setup::new().config(&model).argument("-v").start();
    let name: String = serde_json::from_str(&format!("\"{name}\"")).unwrap();
    let answer =
        post(daemon.address, "/v1/completions", &json!({"model": name, "prompt": "x".repeat(1 << 20)}));
    assert_eq!(answer.status, 500);
    let long = post(daemon.address, "/v1/completions", &json!({"model": "y\n".repeat(1 << 19)}));
    // A name of this length is not even read, so the only model is asked.
    assert_eq!(long.status, 500);
    daemon.reported("request x\\n2026");
    let talk = end(daemon);
    assert!(talk.lines().all(|line| line.starts_with("20") && !line.starts_with("2026-01-01")), "{talk}");
    assert!(!talk.contains(['\u{1b}', '\u{202e}']) && talk.lines().all(|line| line.len() < 9000));
}

#[test]
fn a_rotated_log_file_is_opened_again_on_sighup() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let read = |name: &str| std::fs::read_to_string(place(name)).unwrap_or_default();
    let daemon = Setup::new()
        .model("alpha", "100MiB", "", "")
        .argument("--log-file")
        .argument(place("log").to_str().unwrap())
        .start();
    until("the first lines", || read("log").contains("alpha"));
    std::fs::rename(place("log"), place("log.1")).unwrap();
    daemon.signal("HUP");
    until("a new file", || read("log").contains("read again"));
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    end(daemon);
    assert!(read("log").contains("request alpha: 200") && !read("log.1").contains("request alpha"));
    assert!(read("log").contains("end: 1 request answered"));
}

#[test]
fn a_full_disk_and_a_reader_that_stops_cost_lines_and_no_answer() {
    let daemon = Setup::new()
        .model("alpha", "100MiB", "", "")
        .argument("--log-file")
        .argument("/dev/full")
        // A pipe that no process reads, which holds 64 KiB.
        .after("mkfifo fifo-$$ 2>/dev/null; exec 3<>fifo-$$; rm -f fifo-$$; exec 2>&3")
        .start();
    let began = Instant::now();
    // Two lines of 70 bytes at least: more than the pipe holds.
    for _ in 0..1500 {
        assert_eq!(chat(daemon.address, "alpha").status, 200);
    }
    assert!(began.elapsed() < Duration::from_secs(60));
    let mut daemon = daemon;
    daemon.signal("TERM");
    assert!(daemon.wait().success());

    let mut closed = Setup::new().model("alpha", "100MiB", "", "").after("exec 2>&-").start();
    assert_eq!(chat(closed.address, "alpha").status, 200);
    assert_eq!(get(closed.address, "/health").status, 200);
    closed.signal("TERM");
    assert!(closed.wait().success());
}
