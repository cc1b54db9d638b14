//! Tests of engines that take requests and never answer, and of engines that are only slow.
//!
//! They last as long as clients with time-outs do, so all run side by side.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup, until};
use crate::http::{self, Answer, chat, chat_body};

/// A client with this time-out: the answer, or nothing.
fn chat_within(address: SocketAddr, model: &str, limit: Duration) -> Option<Answer> {
    let stream = http::open(address, "POST", "/v1/chat/completions", Some(&chat_body(model, false)));
    stream.set_read_timeout(Some(limit)).expect("a timeout can be set");
    let first = stream.peek(&mut [0]).is_ok_and(|read| read > 0);
    first.then(|| http::read(&stream))
}

fn process(answer: &Answer) -> u64 {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["fake"]["pid"].as_u64().expect("a pid")
}

/// A fault of the first process alone.
fn once(script: &str, folder: &tempfile::TempDir) -> String {
    format!("{script} fail_once={}", folder.path().join("once").display())
}

fn runs(daemon: &Daemon) -> Value {
    daemon.status()["models"][0]["run"].clone()
}

#[test]
fn a_hung_engine_whose_clients_have_time_outs_is_replaced_within_30_s_of_the_third() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let daemon = Setup::new().model("bad", "256MiB", &once("fail=silent:2", &folder), "").start();
    let before = process(&chat(daemon.address, "bad"));
    chat(daemon.address, "bad");
    let limit = Duration::from_secs(10);
    let (mut third, begun) = (None, Instant::now());
    for client in 1..=6 {
        third = third.or_else(|| (client == 3).then(Instant::now));
        if let Some(answer) = chat_within(daemon.address, "bad", limit) {
            assert_ne!(process(&answer), before);
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(55), "the engine is never found");
    }
    let after_third = third.map(|third| third.elapsed()).unwrap_or_default();
    assert!(after_third < Duration::from_secs(30), "{after_third:?}");
    daemon.reported("sends no byte to clients, nor to Plimsoll, and does no work");
}

#[test]
fn a_neighbour_waits_for_a_hung_engine_no_longer_than_for_its_probe() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let daemon = Setup::new()
        .model("bad", "700MiB", &once("fail=silent:1", &folder), "")
        .model("next", "700MiB", "", "")
        .start();
    chat(daemon.address, "bad");
    // Its client has no time-out.
    let stuck = http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("bad", false)));
    until("the request is in flight", || daemon.status()["models"][0]["in_flight"] == 1);
    let begun = Instant::now();
    assert_eq!(chat(daemon.address, "next").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
    drop(stuck);
}

#[test]
fn an_engine_that_computes_a_long_prompt_is_not_replaced_though_its_clients_give_up() {
    let daemon = Setup::new().model("slow", "256MiB", "slots=1 delay_ms=25000", "").start();
    let patient = thread::spawn({
        let address = daemon.address;
        move || chat(address, "slow")
    });
    until("it is loaded and busy", || daemon.status()["models"][0]["in_flight"] == 1);
    for _ in 0..3 {
        assert!(chat_within(daemon.address, "slow", Duration::from_secs(7)).is_none());
    }
    assert_eq!(patient.join().expect("a client").status, 200);
    assert_eq!(runs(&daemon), 1, "it is the run of before");
}

#[test]
fn an_engine_of_another_kind_that_uses_processor_time_is_not_replaced() {
    // It has no slots and no counters: each answer takes 12 s of computing.
    let program = "import http.server, time\n\
        class Engine(http.server.BaseHTTPRequestHandler):\n\
        \x20def do_GET(self):\n\
        \x20 self.send_response(200 if self.path == '/health' else 404)\n\
        \x20 self.send_header('Content-Length', '0')\n\
        \x20 self.end_headers()\n\
        \x20def do_POST(self):\n\
        \x20 end = time.monotonic() + 12\n\
        \x20 while time.monotonic() < end: pass\n\
        \x20 self.send_response(200)\n\
        \x20 self.send_header('Content-Length', '2')\n\
        \x20 self.end_headers()\n\
        \x20 self.wfile.write(b'{}')\n\
        import sys\n\
        http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Engine).serve_forever()\n";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("engine.py");
    std::fs::write(&file, program).expect("a file can be written");
    let text = format!("[models.py]\ncmd = \"python3 {} ${{PORT}}\"\nmemory = \"1MiB\"\n", file.display());
    let daemon = Setup::new().config(&text).start();
    assert_eq!(chat(daemon.address, "py").status, 200, "a kind of request is known");
    for _ in 0..2 {
        assert!(chat_within(daemon.address, "py", Duration::from_secs(9)).is_none());
    }
    thread::sleep(Duration::from_secs(12));
    assert_eq!(runs(&daemon), 1, "it is the run of before");
}

/// A body of a hundred tokens and some for each byte.
fn deep(model: &str, content: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": content.repeat(8000)}]})
}

#[test]
fn a_request_that_kills_its_engine_takes_the_streams_of_others_once_and_is_then_refused() {
    let daemon = Setup::new()
        .model("bad", "256MiB", "events=20 event_ms=100 load_ms=300 fail=crash_at_depth:1000", "")
        .start();
    assert_eq!(chat(daemon.address, "bad").status, 200);
    let address = daemon.address;
    let streams: Vec<_> = (0..8)
        .map(|_| {
            thread::spawn(move || {
                let (mut lost, end) = (0, Instant::now() + Duration::from_secs(14));
                while Instant::now() < end {
                    let answer = http::chat_stream(address, "bad");
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    lost += usize::from(answer.events().last().is_none_or(|last| last != "[DONE]"));
                }
                lost
            })
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    let poison = deep("bad", "x");
    let statuses: Vec<u16> = (0..4)
        .map(|_| {
            let answer = http::post(address, "/v1/chat/completions", &poison);
            thread::sleep(Duration::from_millis(500));
            answer.status
        })
        .collect();
    assert_eq!(statuses, [503, 422, 422, 422]);
    let refusal = http::post(address, "/v1/chat/completions", &poison).json();
    assert!(refusal.to_string().contains("died 3 times under a request with this body"), "{refusal}");
    let lost: usize = streams.into_iter().map(|stream| stream.join().expect("a client")).sum();
    assert!(lost <= 10, "{lost} streams were lost");
    assert_eq!(chat(address, "bad").status, 200, "others are served");
}

#[test]
fn plain_requests_live_through_crash_after_crash() {
    let script = "delay_ms=300 load_ms=200 die_after_ms=2500";
    let daemon = Setup::new().model("frail", "256MiB", script, "").start();
    let address = daemon.address;
    let clients: Vec<_> = (0..6)
        .map(|_| {
            thread::spawn(move || {
                let end = Instant::now() + Duration::from_secs(15);
                let mut statuses = Vec::new();
                while Instant::now() < end {
                    statuses.push(chat(address, "frail").status);
                }
                statuses
            })
        })
        .collect();
    let statuses: Vec<u16> =
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect();
    let refused = statuses.iter().filter(|status| **status != 200).count();
    assert_eq!(refused, 0, "of {}", statuses.len());
    let run = runs(&daemon).as_u64().expect("a run");
    assert!(run >= 4, "it died too seldom: run {run}");
}
