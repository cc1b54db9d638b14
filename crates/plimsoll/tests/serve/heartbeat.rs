//! Tests of streams that wait for their model, as clients and proxies see them.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{Daemon, Setup, until};
use crate::http::{self, chat_body};

const CHAT: &str = "/v1/chat/completions";
const CLIENTS: &str = include_str!("heartbeat/clients.py");

/// A model that answers for so long, and one that waits for its memory.
fn busy(settings: &str, milliseconds: u32) -> (Daemon, TcpStream) {
    let daemon = Setup::new()
        .config(&format!("[serve]\n{settings}\n"))
        .model("busy", "700MiB", &format!("delay_ms={milliseconds}"), "")
        .model("next", "700MiB", "", "")
        .start();
    let busy = http::open(daemon.address, "POST", CHAT, Some(&chat_body("busy", false)));
    until("busy is up", || daemon.running() == ["busy"]);
    (daemon, busy)
}

#[test]
fn a_stream_that_waits_is_shown_which_model_leaves_for_it() {
    let (daemon, busy) = busy("heartbeat = \"200ms\"\npatience = \"500ms\"", 2500);
    let streams: Vec<TcpStream> =
        (0..8).map(|_| http::open(daemon.address, "POST", CHAT, Some(&chat_body("next", true)))).collect();
    for stream in &streams {
        let answer = http::read(stream);
        assert_eq!((answer.status, answer.whole), (200, true));
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        let text = answer.text();
        let line = ": waiting for 700 MiB of memory on host; busy is unloaded when its answer ends\n\n";
        assert!(text.matches(line).count() > 2, "{text}");
        assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
    }
    assert_eq!(http::read(&busy).status, 200);
}

#[test]
fn a_stream_that_waits_too_long_ends_in_the_refusal_that_others_get_as_a_status() {
    let (daemon, _busy) = busy("heartbeat = \"100ms\"\nwait = \"1s\"", 5000);
    let off = "X-Plimsoll-Heartbeat: off\r\n";
    for (headers, status) in [("", 200), (off, 503)] {
        let stream = http::open_with(daemon.address, "POST", CHAT, headers, Some(&chat_body("next", true)));
        let answer = http::read(&stream);
        assert_eq!((answer.status, answer.whole), (status, true), "{}", answer.text());
        let last = match status {
            200 => serde_json::from_str(answer.events().last().expect("an event")).expect("an error"),
            _ => answer.json(),
        };
        assert_eq!(last["error"]["code"], "deadline", "{last}");
    }
}

#[test]
fn a_configuration_without_heartbeats_gives_streams_their_status() {
    let (daemon, _busy) = busy("heartbeat = \"0\"\nwait = \"1s\"", 5000);
    let answer = http::chat_stream(daemon.address, "next");
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (503, &Value::from("deadline")));
}

/// Python's requests and httpx, curl, and httpx through nginx; each gives up after ten seconds without a
/// byte.
#[test]
fn long_a_hundred_streams_wait_ninety_seconds_and_none_is_given_up() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("heartbeat-clients");
    let python = folder.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder));
        let flags = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "requests", "httpx"];
        run(Command::new(&python).args(flags));
    }
    let (daemon, busy) = busy("", 100_000);
    let clients = [daemon.address.to_string(), "100".to_owned(), "90".to_owned()];
    run(Command::new(&python).args(["-I", "-c", CLIENTS]).args(clients));
    assert_eq!(http::read(&busy).status, 200);
}

#[test]
fn long_a_thousand_waiting_streams_cost_less_than_a_hundredth_of_a_core() {
    let (daemon, busy) = busy("", 90_000);
    let streams: Vec<TcpStream> =
        (0..1000).map(|_| http::open(daemon.address, "POST", CHAT, Some(&chat_body("next", true)))).collect();
    // Until all have their first comment.
    std::thread::sleep(Duration::from_secs(12));
    let (before, began) = (processor_time(daemon.pid()), Instant::now());
    std::thread::sleep(Duration::from_secs(60));
    let (used, time) = (processor_time(daemon.pid()) - before, began.elapsed());
    eprintln!("{used:?} of processor time in {time:?}");
    assert!(used * 100 < time, "{used:?} in {time:?}");
    assert_eq!(http::read(&busy).status, 200);
    for stream in &streams {
        let answer = http::read(stream);
        assert!(answer.whole && answer.events().last().is_some_and(|event| event == "[DONE]"));
    }
}

/// Processor time that the process has used, of itself and of the kernel for it.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the daemon runs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

fn run(command: &mut Command) {
    let output = command.output().expect("it starts");
    let stated = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}{}", stated(&output.stdout), stated(&output.stderr));
}
