//! Tests of a serving engine whose log lines look like an abort: it is killed only if it stops answering.

use std::time::{Duration, Instant};

use plimsoll_engine::{ChildSpec, EndCause, EngineAddress, Readiness, free_port};

use super::rig::{launcher, lives, on_one_thread, shell, start};

/// A line as `ggml_abort` prints it, which clients can also make an engine print.
const ABORT: &str = "/x/ggml/src/ggml.c:1: GGML_ASSERT(false) failed";

/// An HTTP server that prints `line` on each POST; with `then` as further Python.
fn server(line: &str, then: &str) -> ChildSpec {
    let port = free_port(&[]).unwrap();
    let script = format!(
        "import http.server, time, sys\n\
         class H(http.server.BaseHTTPRequestHandler):\n\
         \x20 def do_GET(self): self.send_response(200); self.end_headers()\n\
         \x20 def do_POST(self):\n\
         \x20  print('{line}', flush=True)\n\
         \x20  {then}\n\
         \x20  self.send_response(400); self.end_headers()\n\
         http.server.HTTPServer(('127.0.0.1', {port}), H).serve_forever()\n"
    );
    ChildSpec {
        program: "python3".into(),
        arguments: vec!["-c".into(), script.into()],
        address: EngineAddress::Port(port),
        readiness: Readiness::Health { path: "/health".to_owned() },
        ..shell("")
    }
}

/// The same with a thread for each request, as llama-server has for all but what computes: `/health` is
/// always well, and `/slots` as `slots` says, in Python.
fn threaded(slots: &str, then: &str) -> ChildSpec {
    let port = free_port(&[]).unwrap();
    let script = format!(
        "import http.server, os, subprocess, threading, time\n\
         computes = threading.Lock()\n\
         class H(http.server.BaseHTTPRequestHandler):\n\
         \x20 def do_GET(self):\n\
         \x20  if self.path == '/slots':\n\
         \x20   {slots}\n\
         \x20  self.send_response(200); self.end_headers()\n\
         \x20 def do_POST(self):\n\
         \x20  with computes:\n\
         \x20   print('{ABORT}', flush=True)\n\
         \x20   {then}\n\
         \x20  self.send_response(400); self.end_headers()\n\
         http.server.ThreadingHTTPServer(('127.0.0.1', {port}), H).serve_forever()\n"
    );
    ChildSpec {
        arguments: vec!["-c".into(), script.into()],
        address: EngineAddress::Port(port),
        ..server("", "")
    }
}

/// `/slots` is answered only where nothing computes.
const WAITS: &str = "with computes: pass";
/// It is always answered, and says whether a slot has a request.
const TELLS: &str = "self.send_response(200); self.end_headers(); self.wfile.write(b'[{\"is_processing\":true}]' if computes.locked() else b'[]'); return";

async fn post(port: u16) {
    use tokio::io::AsyncWriteExt;
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(request).await.unwrap();
    // The server writes its line before it answers.
    stream.readable().await.unwrap();
}

#[test]
fn words_alone_never_kill_a_serving_engine() {
    on_one_thread(async {
        let mut running = start(&launcher(), server(ABORT, "pass")).await;
        running.ready().await;
        post(running.port()).await;
        // Longer than the check may take in all.
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(lives(running.child.pid()));
        assert!(running.events.try_recv().is_err(), "nothing happened to it");
    });
}

/// The engine prints the line of an abort at a request that is never answered.
fn is_noticed_within_ten_seconds(engine: ChildSpec) {
    on_one_thread(async {
        let mut running = start(&launcher(), engine).await;
        running.ready().await;
        let port = running.port();
        let _ = tokio::time::timeout(Duration::from_millis(500), post(port)).await;
        let since = Instant::now();
        let ended = running.ended().await;
        assert_eq!(ended.cause, EndCause::Stuck);
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    });
}

#[test]
fn an_engine_that_aborts_and_hangs_is_noticed_within_ten_seconds() {
    is_noticed_within_ten_seconds(server(ABORT, "time.sleep(1000)"));
}

/// `ggml_abort` starts a debugger and waits for it, for ever where the debugger waits for a download, say.
const DEBUGGER: &str = "subprocess.run(['sleep', '1000'])";

#[test]
fn an_engine_that_aborts_and_hangs_while_its_health_is_well_is_noticed_within_ten_seconds() {
    is_noticed_within_ten_seconds(threaded(WAITS, DEBUGGER));
}

/// As llama.cpp 0.5.0 does.
#[test]
fn an_engine_that_aborts_and_hangs_while_its_slots_are_answered_is_noticed_within_ten_seconds() {
    is_noticed_within_ten_seconds(threaded(TELLS, DEBUGGER));
}

fn is_left_alone(engine: ChildSpec) {
    on_one_thread(async {
        let mut running = start(&launcher(), engine).await;
        running.ready().await;
        let port = running.port();
        let _ = tokio::time::timeout(Duration::from_millis(500), post(port)).await;
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(lives(running.child.pid()));
        assert!(running.events.try_recv().is_err(), "nothing happened to it");
    });
}

/// For a fifth of the time, which is eight times what counts as idle, so that other tests have a processor
/// meanwhile.
const COMPUTES: &str = "begin, used = time.time(), time.process_time()\n    while time.time() < begin + 60:\n     if time.process_time() - used > (time.time() - begin) / 5: time.sleep(0.02)";

#[test]
fn an_engine_that_computes_in_silence_after_words_like_an_abort_is_left_alone() {
    is_left_alone(threaded(WAITS, COMPUTES));
}

#[test]
fn an_engine_that_computes_and_says_so_after_words_like_an_abort_is_left_alone() {
    is_left_alone(threaded(TELLS, COMPUTES));
}

/// The engine has a connection to another process, as one has with `--rpc`.
const ELSEWHERE: &str = "import socket; far = socket.create_server(('127.0.0.1', 0)); \
                         near = socket.create_connection(far.getsockname());";

#[test]
fn an_engine_that_waits_for_another_process_to_compute_after_words_like_an_abort_is_left_alone() {
    is_left_alone(threaded(TELLS, &format!("{ELSEWHERE} near.recv(1)")));
}

#[test]
fn an_engine_that_waits_for_a_debugger_is_noticed_whatever_else_it_may_wait_for() {
    is_noticed_within_ten_seconds(threaded(TELLS, &format!("{ELSEWHERE} {DEBUGGER}")));
}

#[test]
fn a_state_line_of_an_engine_without_the_channel_is_only_a_line() {
    on_one_thread(async {
        let mut spec = shell("echo 'cmd_child_to_router:state:{\"state\":\"sleeping\"}'; sleep 1000");
        spec.readiness = Readiness::Immediate;
        let mut running = start(&launcher(), spec).await;
        running.ready().await;
        while running.child.log().tail(1).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(running.child.log().tail(1)[0].text.contains("sleeping"));
        assert!(running.events.try_recv().is_err(), "no event came of it");
    });
}
