//! Tests of many clients, slow clients, engines that do not answer, and missing resources of the daemon.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::daemon::{Daemon, Setup, alive, until};
use crate::http;
use crate::http::{Answer, chat, chat_body, get, post};

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill -{name} {pid}");
}

fn engine_of(answer: &Answer) -> u32 {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let pid = answer.json()["fake"]["pid"].as_u64().expect("a pid");
    u32::try_from(pid).expect("a pid")
}

/// Runs `work` on `count` threads at once and returns what each has got.
fn at_once<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|n| scope.spawn(move || work(n))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, T>| thread.join().expect("no panic");
        threads.into_iter().map(join).collect()
    })
}

fn bytes_of(path: &str, body: &str, close: bool) -> Vec<u8> {
    let close = if close { "Connection: close\r\n" } else { "" };
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{close}Content-Length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the daemon listens");
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).expect("a timeout can be set");
    stream
}

#[test]
fn no_more_models_are_loaded_than_models_max_says() {
    let daemon = Setup::new()
        .config("[serve]\nmodels-max = 7\n")
        .model("a", "64MiB", "", "hold = \"0s\"")
        .model("b", "64MiB", "", "hold = \"0s\"")
        .argument("--models-max")
        .argument("1")
        .start();
    for name in ["a", "b", "a"] {
        assert_eq!(chat(daemon.address, name).status, 200);
        let running = get(daemon.address, "/running").json();
        let running = running["running"].as_array().unwrap();
        assert!(running.len() == 1 && running[0]["model"] == name, "{running:?}");
    }
    let props = get(daemon.address, "/props").json();
    assert!(
        props["max_instances"] == 1 && props["build_info"].as_str().unwrap().starts_with("b10605-plimsoll-")
    );
    for bad in ["-1", "1.5", "\"two\""] {
        let stated = Setup::new().config(&format!("[serve]\nmodels-max = {bad}\n")).refused();
        assert!(stated.contains("plimsoll.toml:2"), "{stated}");
    }
}

#[test]
fn a_thousand_clients_of_a_cold_model_cause_one_load_and_all_are_answered() {
    let daemon = Setup::new().model("a", "100MiB", "load_ms=500", "concurrency = 8").start();
    let body = chat_body("a", false).to_string();
    let clients: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = connect(daemon.address);
            let bytes = bytes_of("/v1/chat/completions", &body, true);
            stream.write_all(&bytes).expect("the daemon reads");
            stream
        })
        .collect();
    let answers: Vec<Answer> = clients.iter().map(http::read).collect();
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.whole));
    let metrics = get(daemon.address, "/metrics").text();
    assert!(metrics.contains("plimsoll_loads_total{model=\"a\"} 1\n"), "{metrics}");
}

#[test]
fn clients_that_send_half_a_request_hold_no_model() {
    let daemon = Setup::new().model("a", "600MiB", "", "").model("b", "600MiB", "", "").start();
    let halves: Vec<TcpStream> = (0..200)
        .map(|n| {
            let mut stream = connect(daemon.address);
            let bytes = bytes_of("/v1/chat/completions", &chat_body("a", true).to_string(), true);
            let part = if n % 2 == 0 { bytes.len() - 3 } else { 20 };
            stream.write_all(&bytes[..part]).expect("the daemon reads");
            stream
        })
        .collect();
    for model in ["a", "b", "a"] {
        assert_eq!(chat(daemon.address, model).status, 200);
    }
    assert_eq!(daemon.status()["models"][0]["in_flight"], 0);
    drop(halves);
}

#[test]
fn engines_that_close_their_connections_cost_no_request() {
    let daemon = Setup::new()
        .model("a", "100MiB", "", "")
        .model("short", "100MiB", "keep_alive_max=3 idle_close_ms=20", "")
        .start();
    let mut one = connect(daemon.address);
    let bytes = bytes_of("/v1/chat/completions", &chat_body("a", false).to_string(), false);
    for _ in 0..500 {
        one.write_all(&bytes).expect("the daemon reads");
        assert_eq!(http::read_one(&mut one).status, 200);
    }
    let failures = at_once(16, |n| {
        let mut failures = 0;
        for request in 0..60 {
            let model = if (n + request) % 2 == 0 { "a" } else { "short" };
            failures += usize::from(chat(daemon.address, model).status != 200);
            // Around the moment when the engine closes.
            thread::sleep(Duration::from_millis(u64::try_from(request % 5 * 5).unwrap_or(0)));
        }
        failures
    });
    assert_eq!(failures.iter().sum::<usize>(), 0);
}

#[test]
fn an_idle_engine_that_is_killed_from_outside_is_started_again_by_the_next_request() {
    let daemon = Setup::new().model("a", "100MiB", "", "").start();
    let first = engine_of(&chat(daemon.address, "a"));
    signal(first, "KILL");
    let second = engine_of(&chat(daemon.address, "a"));
    assert_ne!(first, second);
    until("the operator is told", || daemon.talk().contains("SIGKILL"));
}

#[test]
fn an_engine_that_is_killed_while_it_loads_is_reported_as_killed() {
    let daemon = Setup::new().model("a", "100MiB", "load_ms=5000", "").start();
    let waiting = http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("a", false)));
    until("it loads", || !daemon.engines().is_empty());
    for engine in daemon.engines() {
        signal(engine, "KILL");
    }
    let answer = http::read(&waiting);
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("SIGKILL"), "{}", answer.text());
}

#[test]
fn an_engine_that_stands_still_hurts_only_its_own_clients_and_can_be_ended() {
    let daemon = Setup::new()
        .model("still", "100MiB", "", "stop-timeout = '300ms'")
        .model("good", "100MiB", "", "")
        .start();
    let engine = engine_of(&chat(daemon.address, "still"));
    signal(engine, "STOP");
    let stuck = http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("still", false)));
    until("it is in flight", || daemon.status()["models"][0]["in_flight"] == 1);
    assert_eq!(chat(daemon.address, "good").status, 200);
    drop(stuck);
    until("the client's leaving is seen", || daemon.status()["models"][0]["in_flight"] == 0);
    let order = json!({"model": "still"});
    assert_eq!(post(daemon.address, "/models/unload", &order).status, 200);
    until("it is killed", || !alive(engine));
    daemon.reported("INFO stop still (idle ");
    daemon.reported("INFO kill still (idle ");
    assert_ne!(engine_of(&chat(daemon.address, "still")), engine);
}

#[test]
fn few_descriptors_slow_newcomers_down_and_break_nothing() {
    let daemon = Setup::new().model("a", "100MiB", "", "").after("ulimit -n 64").start();
    assert_eq!(chat(daemon.address, "a").status, 200);
    let idle: Vec<TcpStream> = (0..100).map(|_| connect(daemon.address)).collect();
    thread::sleep(Duration::from_millis(200));
    drop(idle);
    until("it answers again", || {
        chat(daemon.address, "a").status == 200 && get(daemon.address, "/health").status == 200
    });
}

#[test]
fn more_clients_than_descriptors_are_all_answered() {
    for limit in ["ulimit -Sn 128", "ulimit -n 80"] {
        let daemon = Setup::new().model("a", "100MiB", "delay_ms=20", "").after(limit).start();
        let first = engine_of(&chat(daemon.address, "a"));
        let engines = at_once(150, |_| engine_of(&chat(daemon.address, "a")));
        assert!(engines.iter().all(|engine| *engine == first), "{limit}");
    }
}

#[test]
fn nobody_reading_what_it_says_does_not_end_it() {
    let daemon = Setup::new()
        .model("a", "600MiB", "", "")
        .model("b", "600MiB", "fail=crash_at_load", "")
        .after("exec 2> >(exec true); sleep 0.2")
        .start();
    assert_eq!(chat(daemon.address, "a").status, 200);
    assert_eq!(chat(daemon.address, "b").status, 500);
    daemon.signal("HUP");
    assert_eq!(chat(daemon.address, "a").status, 200);
}

#[test]
fn a_storm_of_reloads_disturbs_no_request() {
    let daemon = Setup::new().model("a", "100MiB", "", "").start();
    let first = engine_of(&chat(daemon.address, "a"));
    let stop = Instant::now() + Duration::from_secs(2);
    let answers = at_once(3, |n| {
        let mut last = first;
        while Instant::now() < stop {
            match n {
                0 => daemon.signal("HUP"),
                _ => last = engine_of(&chat(daemon.address, "a")),
            }
        }
        last
    });
    assert_eq!(answers, [first; 3], "the engine was not touched");
}

#[test]
fn a_busy_model_that_leaves_the_configuration_finishes_its_stream() {
    let daemon = Setup::new().model("a", "100MiB", "events=20 event_ms=50", "").start();
    let stream = http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("a", true)));
    until("it streams", || daemon.status()["models"][0]["in_flight"] == 1);
    std::fs::write(daemon.config_file(), "").expect("the folder can be written");
    daemon.signal("HUP");
    until("it is gone from the list", || get(daemon.address, "/v1/models").json()["data"] == json!([]));
    assert_eq!(chat(daemon.address, "a").status, 404);
    let answer = http::read(&stream);
    assert!(answer.whole);
    assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
    until("its engine has left", || daemon.engines().is_empty());
    daemon.reported("the model is no longer in the configuration");
}

#[test]
fn two_daemons_of_one_configuration_do_not_meet() {
    let start = || Setup::new().model("a", "100MiB", "", "").start();
    let (one, other): (Daemon, Daemon) = (start(), start());
    let answers = at_once(2, |n| engine_of(&chat([&one, &other][n].address, "a")));
    assert_ne!(answers[0], answers[1]);
    drop(one);
    assert_eq!(engine_of(&chat(other.address, "a")), answers[1]);
}

#[test]
fn heads_without_end_are_cut_off() {
    let daemon = Setup::new().start();
    for head in [
        format!("GET /health HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)),
        format!("GET /health HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(5000)),
        format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20)),
    ] {
        let mut stream = connect(daemon.address);
        // It closes before it has read everything.
        let _ = stream.write_all(head.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    let announced =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n";
    let mut stream = connect(daemon.address);
    stream.write_all(announced.as_bytes()).expect("the daemon reads");
    let answer = http::read(&stream);
    assert_eq!(answer.status, 413);
    assert_eq!(answer.json()["error"]["code"], "body_too_large");
}
