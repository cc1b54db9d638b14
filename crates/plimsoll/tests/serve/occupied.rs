//! Tests that the memory which request bodies and event streams occupy agrees with the bytes that the daemon
//! counts.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::{Daemon, Setup};
use crate::http;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// What is held is at most so many hundredths of what is counted, beside the daemon's own few MiB.
const BOUND: usize = 125;
const OWN: usize = 4 * MIB;
/// What one more connection takes, with its buffers.
const CONNECTION: usize = 300 * KIB;

/// Sizes of segments, and the bytes of all bodies together: small segments take long.
const BODIES: [(usize, usize); 9] = [
    (1, 256 * KIB),
    (100, 4 * MIB),
    (700, 16 * MIB),
    (1100, 24 * MIB),
    (4 * KIB, 24 * MIB),
    (9000, 24 * MIB),
    (16 * KIB, 24 * MIB),
    (100 * KIB, 48 * MIB),
    (MIB, 48 * MIB),
];

/// The same of streams, of which each holds less than an event may have.
const STREAMS: [(usize, usize); 5] =
    [(1, 20_000), (50, 200_000), (1100, 900_000), (8 * KIB, 900_000), (64 * KIB, 900_000)];
const STREAMS_AT_ONCE: usize = 12;

/// An engine whose one event never ends: its bytes come in segments of the size that the path names, then
/// nothing more. A GET tells how many of its answers are sent.
const DRIPPING: &str = r#"
import http.server, socket, socketserver, sys, time
sent = []
class Engine(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_GET(self):
        told = str(len(sent)).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(told))); self.end_headers(); self.wfile.write(told)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        size, total = (int(word) for word in self.path.rsplit("/", 2)[1:])
        self.send_response(200); self.send_header("Content-Type", "text/event-stream"); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
        for _ in range(total // size):
            self.wfile.write(b"%x\r\n" % size + b"x" * size + b"\r\n"); self.wfile.flush()
            if size < 1000: time.sleep(0)
        sent.append(size); time.sleep(600)
    def log_message(self, *words): pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64
Server(("127.0.0.1", int(sys.argv[1])), Engine).serve_forever()
"#;

/// Bytes of the daemon in RAM, without pages of its program file, which come and go.
fn resident(daemon: &Daemon) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()))
        .expect("the daemon and this test talk");
    let line =
        status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the daemon and this test talk");
    line.split_whitespace()
        .next()
        .expect("the daemon and this test talk")
        .parse::<usize>()
        .expect("the daemon and this test talk")
        * KIB
}

/// Waits until the daemon has no more than `most` bytes, and fails with `what` after ten seconds.
fn falls_to(daemon: &Daemon, most: usize, what: &str) {
    let end = Instant::now() + Duration::from_secs(10);
    while resident(daemon) > most {
        assert!(Instant::now() < end, "{what}: {} MiB, at most {}", resident(daemon) / MIB, most / MIB);
        thread::sleep(Duration::from_millis(50));
    }
}

/// A request that lacks its last byte.
fn unfinished(daemon: &Daemon, length: usize, segment: usize) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.address).expect("the daemon and this test talk");
    stream.set_nodelay(true).expect("the daemon and this test talk");
    let head =
        format!("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("the daemon and this test talk");
    let piece = vec![b' '; segment];
    let mut left = length - 1;
    while left > 0 {
        let next = segment.min(left);
        stream.write_all(&piece[..next]).expect("the daemon and this test talk");
        left -= next;
    }
    stream
}

#[test]
fn bodies_hold_a_quarter_more_than_their_bytes_at_most_at_any_size_of_segment() {
    let daemon = Setup::new().start();
    assert_eq!(http::get(daemon.address, "/health").status, 200);
    let start = resident(&daemon);
    let mut table = String::new();
    for (segment, total) in BODIES {
        let before = resident(&daemon);
        let bodies: Vec<TcpStream> = thread::scope(|scope| {
            let senders: Vec<_> =
                (0..4).map(|_| scope.spawn(|| unfinished(&daemon, total / 4, segment))).collect();
            senders.into_iter().map(|sender| sender.join().expect("no panic")).collect()
        });
        // The last bytes may still lie in the sockets; more is held then, not less.
        thread::sleep(Duration::from_millis(300));
        let occupied = resident(&daemon).saturating_sub(before);
        table += &format!("segments of {segment}: {total} bytes, {occupied} held\n");
        assert!(occupied <= total * BOUND / 100 + OWN, "{table}");
        drop(bodies);
        falls_to(&daemon, start + 16 * MIB, "after the bodies");
    }
}

#[test]
fn a_gibibyte_of_bodies_is_given_back_within_ten_seconds() {
    let daemon = Setup::new().start();
    assert_eq!(http::get(daemon.address, "/health").status, 200);
    let before = resident(&daemon);
    let body = [br#"{"model":"gone","prompt":""#.as_slice(), &vec![b'a'; 100 * MIB - 100], b"\"}"].concat();
    let mut most = 0;
    thread::scope(|scope| {
        let senders: Vec<_> = (0..10)
            .map(|_| {
                scope.spawn(|| {
                    let mut stream =
                        TcpStream::connect(daemon.address).expect("the daemon and this test talk");
                    let head = format!(
                        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    stream.write_all(head.as_bytes()).expect("the daemon and this test talk");
                    stream.write_all(&body).expect("the daemon and this test talk");
                    http::read_one(&mut stream).status
                })
            })
            .collect();
        while senders.iter().any(|sender| !sender.is_finished()) {
            most = most.max(resident(&daemon));
            thread::sleep(Duration::from_millis(20));
        }
        for sender in senders {
            assert_eq!(sender.join().expect("no panic"), 404);
        }
    });
    assert!(most <= before + 1000 * MIB * BOUND / 100 + OWN, "{} MiB at most", most / MIB);
    falls_to(&daemon, before + 32 * MIB, "after 1 GiB of bodies");
}

/// A daemon with an engine whose one event never ends.
fn dripping(folder: &Path) -> Daemon {
    let engine = folder.join("engine.py");
    std::fs::write(&engine, DRIPPING).expect("the daemon and this test talk");
    let model = format!(
        "[models.a]\ncmd = \"python3 {} ${{PORT}}\"\nmemory = \"64MiB\"\nconcurrency = 64\n",
        engine.display()
    );
    let daemon = Setup::new().config(&model).start();
    assert_eq!(http::get(daemon.address, "/upstream/a/health").status, 200);
    daemon
}

/// Answers that the engine has sent whole.
fn sent(daemon: &Daemon) -> usize {
    http::get(daemon.address, "/upstream/a/sent").text().parse().expect("the engine counts")
}

/// Streams of `total` bytes in segments of this size, watched until the engine has sent all, and a while
/// longer.
fn watch_streams(daemon: &Daemon, (segment, total): (usize, usize), meanwhile: impl FnOnce()) {
    let (before, sent_before) = (resident(daemon), sent(daemon));
    let streams: Vec<TcpStream> = (0..STREAMS_AT_ONCE)
        .map(|_| {
            let path = format!("/upstream/a/{segment}/{total}");
            http::open(daemon.address, "POST", &path, Some(&serde_json::json!({})))
        })
        .collect();
    meanwhile();
    let counted = STREAMS_AT_ONCE * total;
    let most = counted * BOUND / 100 + OWN + STREAMS_AT_ONCE * CONNECTION;
    let (began, mut all_sent) = (Instant::now(), None::<Instant>);
    // The last bytes may still lie in the sockets.
    while all_sent.is_none_or(|at| at.elapsed() < Duration::from_millis(400)) {
        let occupied = resident(daemon).saturating_sub(before);
        assert!(occupied <= most, "segments of {segment}: {counted} bytes, {occupied} held");
        if all_sent.is_none() && sent(daemon) == sent_before + STREAMS_AT_ONCE {
            all_sent = Some(Instant::now());
        }
        assert!(began.elapsed() < Duration::from_secs(100), "{} answers were sent", sent(daemon));
        thread::sleep(Duration::from_millis(20));
    }
    for mut stream in streams {
        stream.set_nonblocking(true).expect("the daemon and this test talk");
        // Nothing of an event that has not ended reaches the client but the head.
        let mut got = [0; 4096];
        let length = stream.read(&mut got).unwrap_or(0);
        assert!(!got[..length].windows(8).any(|window| window == b"xxxxxxxx"));
    }
    falls_to(daemon, before + 16 * MIB, "after the streams");
}

#[test]
fn streams_hold_a_quarter_more_than_their_bytes_at_most_at_any_size_of_segment() {
    let folder = tempfile::tempdir().expect("the daemon and this test talk");
    let daemon = dripping(folder.path());
    for stream in STREAMS {
        watch_streams(&daemon, stream, || {});
    }
}

#[test]
fn streams_hold_no_more_after_the_daemon_was_kept_from_reading() {
    let folder = tempfile::tempdir().expect("the daemon and this test talk");
    let daemon = dripping(folder.path());
    let pid = Pid::from_raw(i32::try_from(daemon.pid()).expect("a process ID")).expect("a process ID");
    for stream in [(1100, 900_000), (64 * KIB, 900_000)] {
        watch_streams(&daemon, stream, || {
            // So that every socket is full when it reads again.
            for _ in 0..4 {
                kill_process(pid, Signal::STOP).expect("the daemon runs");
                thread::sleep(Duration::from_millis(250));
                kill_process(pid, Signal::CONT).expect("the daemon runs");
                thread::sleep(Duration::from_millis(5));
            }
        });
    }
}
