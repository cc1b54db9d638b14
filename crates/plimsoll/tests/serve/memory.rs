//! Tests of the daemon's own memory under large request bodies, and of an stderr that is never read.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::daemon::{Daemon, Setup, until};
use crate::http::{self, chat, get};

/// Bytes that a pipe holds (pipe(7)).
const PIPE: usize = 65_536;

/// Resident memory of the daemon in KiB, without pages of its program file, which come and go.
fn resident(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let size = line.and_then(|line| line.split_ascii_whitespace().next());
    size.and_then(|size| size.parse().ok()).expect("a size")
}

fn begin(daemon: &Daemon, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.address).expect("the daemon listens");
    stream.set_nodelay(true).expect("an option");
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{{\"model\":\"zz\",\"p\":\""
    );
    stream.write_all(head.as_bytes()).expect("the daemon reads");
    stream
}

#[test]
fn a_body_in_small_segments_holds_its_own_size_and_a_quarter() {
    let daemon = Setup::new().start();
    assert_eq!(get(daemon.address, "/health").status, 200);
    let before = resident(&daemon);
    let mut stream = begin(&daemon, 30_000_000);
    let segment = [b'x'; 1100];
    for _ in 0..20_000 {
        stream.write_all(&segment).expect("the daemon reads");
        // So that each segment is read by itself.
        std::thread::sleep(Duration::from_micros(20));
    }
    std::thread::sleep(Duration::from_millis(200));
    let occupied = resident(&daemon) - before;
    assert!(occupied > 20_000, "{occupied} KiB: the body was not read");
    assert!(occupied < 22_000_000 / 1024 * 5 / 4 + 2048, "{occupied} KiB for 22 MB");
}

#[test]
fn memory_of_large_bodies_goes_back_to_the_machine() {
    let daemon = Setup::new().start();
    assert_eq!(get(daemon.address, "/health").status, 200);
    let before = resident(&daemon);
    let size = 100 << 20;
    let piece = vec![b'x'; 1 << 20];
    let send = || {
        let mut stream = begin(&daemon, size);
        for _ in 0..99 {
            stream.write_all(&piece).expect("the daemon reads");
        }
        stream
    };
    let clients: Vec<TcpStream> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..10).map(|_| scope.spawn(send)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    until("a gigabyte is held", || resident(&daemon) - before > 900 << 10);
    drop(clients);
    let limit = Instant::now() + Duration::from_secs(10);
    while resident(&daemon) > before + (32 << 10) {
        assert!(Instant::now() < limit, "{} KiB more than before", resident(&daemon) - before);
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn eleven_unfinished_bodies_leave_room_for_a_small_one() {
    let daemon = Setup::new().start();
    assert_eq!(get(daemon.address, "/health").status, 200);
    let before = resident(&daemon);
    // No JSON, so that the search for a model's name ends at once.
    let piece = vec![b'x'; 1 << 20];
    let send = &|length: usize| {
        let mut stream = TcpStream::connect(daemon.address).expect("the daemon listens");
        let head =
            format!("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("the daemon reads");
        // The last byte is withheld.
        let mut left = length - 1;
        while left > 0 {
            let next = left.min(piece.len());
            stream.write_all(&piece[..next]).expect("the daemon reads");
            left -= next;
        }
        stream
    };
    // Together a gibibyte, all that is set aside for bodies.
    let lengths = [100 << 20; 10].into_iter().chain([(24 << 20) + 9]);
    let clients: Vec<TcpStream> = std::thread::scope(|scope| {
        let threads: Vec<_> = lengths.map(|length| scope.spawn(move || send(length))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    until("a gibibyte is held", || resident(&daemon) - before > 1015 << 10);
    // The last of it may still lie in the sockets.
    std::thread::sleep(Duration::from_millis(500));
    let requested = Instant::now();
    let small = loop {
        let small = chat(daemon.address, "zz");
        if small.status != 503 || requested.elapsed() > Duration::from_secs(12) {
            break small;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(small.status, 404, "after {:?}: {}", requested.elapsed(), small.text());
    drop(clients);
}

#[test]
fn an_unread_stderr_stops_no_request() {
    // A pipe that is never read, and nearly full already.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipe = folder.path().join("stderr");
    let shell =
        format!("mkfifo '{0}'; exec 2<> '{0}'; head -c {1} /dev/zero >&2", pipe.display(), PIPE - 5000);
    let daemon = Setup::new().model("a", "2GiB", "", "").model("b", "3GiB", "", "").after(&shell).start();
    for n in 0..120 {
        // Two refusals in turn are each news to the log.
        let stream = http::open(
            daemon.address,
            "POST",
            "/v1/chat/completions",
            Some(&http::chat_body(["a", "b"][n % 2], false)),
        );
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("an option");
        assert!(http::read(&stream).status >= 400, "refusal {n}");
        daemon.signal("HUP");
    }
    let requested = Instant::now();
    assert_eq!(get(daemon.address, "/health").status, 200);
    assert!(requested.elapsed() < Duration::from_secs(10));
    let pipe = File::options().read(true).write(true).open(&pipe).expect("the pipe is ours");
    let mut room = [PollFd::new(&pipe, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(poll(&mut room, Some(&at_once)), Ok(0), "the pipe is full, or nothing was shown");
}

#[test]
fn a_client_that_reads_nothing_does_not_hold_its_model_for_ever() {
    // The owner may shorten the minute that a stalled answer has; a minute is what every answer has at most.
    let daemon =
        Setup::new().model("a", "600MiB", "answer_bytes=30000000", "").model("b", "600MiB", "", "").start();
    let stalled =
        http::open(daemon.address, "POST", "/v1/chat/completions", Some(&http::chat_body("a", false)));
    until("it is in flight", || daemon.status()["models"][0]["in_flight"] == 1);
    let requested = Instant::now();
    assert_eq!(chat(daemon.address, "b").status, 200);
    assert!(requested.elapsed() < Duration::from_secs(90), "{:?}", requested.elapsed());
    let mut rest = Vec::new();
    let _ = (&stalled).read_to_end(&mut rest);
    assert!(rest.len() < 30_000_000, "the answer broke off");
}

#[test]
fn lines_of_an_engines_log_reach_no_client() {
    let daemon = Setup::new()
        .config(
            "[models.a]\ncmd = \"sh -c 'echo prompt: my secret >&2; sleep 0.2; exit 3' ${PORT}\"\nmemory = \"10MiB\"\n",
        )
        .start();
    let answer = chat(daemon.address, "a");
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("status 3") || answer.text().contains("exit"), "{}", answer.text());
    for seen in [answer.text(), get(daemon.address, "/api/status").text()] {
        assert!(!seen.contains("my secret"), "{seen}");
    }
    assert!(get(daemon.address, "/logs").text().contains("my secret"), "the operator sees it");
}
