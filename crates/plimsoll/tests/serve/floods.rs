//! Tests of connection floods: clients with an API key are served while others without one open many
//! connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::{Daemon, Setup};
use crate::http;

/// Connections of the flood, and the interval at which each asks. A second is the usual one of probes.
const FLOOD: usize = 1100;
const EVERY: Duration = Duration::from_millis(800);
const HEALTH: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The least number of requests with a key, on however busy a machine.
const LEAST_REQUESTS: usize = 8;

/// The most memory of the daemon, and the longest time of 99 in a hundred requests.
const MOST_MEMORY: u64 = 64 << 20;
const LONGEST: Duration = Duration::from_millis(250);

/// One thread's part of the flood: each connection asks at its time, and is opened again once it was closed.
fn flood(address: SocketAddr, connections: usize, ends: &AtomicBool, counts: &[AtomicUsize; 2]) {
    let mut open: Vec<Option<TcpStream>> = (0..connections).map(|_| None).collect();
    let mut buffer = [0; 4096];
    while !ends.load(Ordering::Relaxed) {
        let round = Instant::now();
        for (at, slot) in open.iter_mut().enumerate() {
            let due = round + EVERY.mul_f64(at as f64 / connections as f64);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let requested = slot.as_mut().is_some_and(|stream| {
                let answered = matches!(stream.read(&mut buffer), Ok(length) if length > 0);
                counts[0].fetch_add(usize::from(answered), Ordering::Relaxed);
                answered && stream.write_all(HEALTH).is_ok()
            });
            if !requested {
                *slot = TcpStream::connect_timeout(&address, EVERY).ok().and_then(|mut stream| {
                    stream.set_nonblocking(true).ok()?;
                    stream.write_all(HEALTH).ok()?;
                    Some(stream)
                });
                counts[1].fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn resident(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("the daemon lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of its memory");
    line.split_whitespace().next().and_then(|size| size.parse::<u64>().ok()).expect("a size") * 1024
}

/// Ends the flood, also where a request failed.
struct Flooding<'a>(&'a AtomicBool);

impl Drop for Flooding<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Stops the daemon again and again, as a busy machine does.
fn stop_and_continue(pid: u32, ends: &AtomicBool) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    while !ends.load(Ordering::Relaxed) {
        for (signal, time) in [(Signal::STOP, 400), (Signal::CONT, 200)] {
            kill_process(pid, signal).expect("the daemon lives");
            thread::sleep(Duration::from_millis(time));
        }
    }
}

/// Floods a daemon for `time`, and returns the times of clients with a key, sorted; none may be lost.
fn flooded(time: Duration, is_stopped: bool) -> (Vec<Duration>, String) {
    let daemon =
        Setup::new().config("[serve]\napi-keys = ['secret']\n").model("alpha", "100MiB", "", "").start();
    let (ends, counts) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    let key = "Authorization: Bearer secret\r\n";
    let ask = |path: &str, body: Option<&serde_json::Value>| {
        let began = Instant::now();
        let method = if body.is_some() { "POST" } else { "GET" };
        let answer = http::read(&http::open_with(daemon.address, method, path, key, body));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        began.elapsed()
    };
    let chat = http::chat_body("alpha", false);
    ask("/v1/chat/completions", Some(&chat));
    let (mut times, mut most) = (Vec::new(), 0);
    thread::scope(|scope| {
        let _flooding = Flooding(&ends);
        for _ in 0..2 {
            scope.spawn(|| flood(daemon.address, FLOOD / 2, &ends, &counts));
        }
        if is_stopped {
            scope.spawn(|| stop_and_continue(daemon.pid(), &ends));
        }
        // The flood is there.
        while counts[1].load(Ordering::Relaxed) < FLOOD {
            thread::sleep(Duration::from_millis(10));
        }
        let began = Instant::now();
        while began.elapsed() < time || times.len() < LEAST_REQUESTS {
            times.push(ask("/v1/chat/completions", Some(&chat)));
            times.push(ask("/running", None));
            most = most.max(resident(&daemon));
            thread::sleep(Duration::from_millis(40));
        }
    });
    times.sort();
    let [answered, opened] = counts.map(AtomicUsize::into_inner);
    let report = format!(
        "{} requests with a key in {time:?}: median {:?}, p99 {:?}, most {:?}; the flood opened {opened} connections and had \
         {answered} answers; {} KiB of memory at most",
        times.len(),
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        times[times.len() - 1],
        most / 1024
    );
    assert!(most <= MOST_MEMORY, "{report}");
    (times, report)
}

#[test]
fn clients_with_a_key_are_served_while_others_flood() {
    flooded(Duration::from_secs(4), false);
}

#[test]
fn clients_with_a_key_are_served_by_a_daemon_that_falls_behind_a_flood() {
    flooded(Duration::from_secs(6), true);
}

#[test]
#[allow(clippy::print_stderr, reason = "the figures are what it is run for")]
fn long_clients_with_a_key_wait_no_quarter_of_a_second_while_others_flood_for_a_minute() {
    let (times, report) = flooded(Duration::from_secs(60), false);
    eprintln!("{report}");
    assert!(times[times.len() * 99 / 100] < LONGEST, "{report}");
}
