//! Tests of single faults: the client's view, and that another model is not affected.
//!
//! In every test the model `good` runs before the fault and must answer after it, from the same process.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup, alive, fake_engine, until};
use crate::http;
use crate::http::{Answer, chat, chat_body, chat_stream};

/// A daemon with a good model that is up, and `bad` with its fault. `good` is pinned because running out of
/// memory is answered by stopping whoever is idle, which is not the hurt that is looked for here.
fn alongside_a_good_one(script: &str, more: &str) -> (Daemon, Neighbour) {
    let daemon =
        Setup::new().model("good", "256MiB", "", "pin = true").model("bad", "256MiB", script, more).start();
    let neighbour = Neighbour::of(&daemon);
    (daemon, neighbour)
}

/// The process of `good` before the fault.
struct Neighbour(u64);

impl Neighbour {
    fn of(daemon: &Daemon) -> Self {
        Self(process(&chat(daemon.address, "good")))
    }

    fn is_unhurt(&self, daemon: &Daemon) {
        assert_eq!(process(&chat(daemon.address, "good")), self.0, "good is another process now");
    }
}

fn process(answer: &Answer) -> u64 {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["fake"]["pid"].as_u64().unwrap_or_else(|| panic!("no pid in {}", answer.text()))
}

fn error(answer: &Answer) -> Value {
    answer.json()["error"].clone()
}

/// The whole reason tree as one text.
fn reported(error: &Value) -> String {
    error.to_string()
}

/// What no wait mends is 500 without a time, or clients would ask again and again.
fn assert_no_retry(answer: &Answer) {
    assert_eq!((answer.status, answer.header("retry-after")), (500, None), "{}", answer.text());
    assert!(error(answer).get("retry_after").is_none(), "{}", answer.text());
}

/// What a wait may mend is 503 with a time.
fn assert_retry(answer: &Answer) {
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(
        answer.header("retry-after").is_some() && error(answer)["retry_after"].is_u64(),
        "{}",
        answer.text()
    );
}

#[test]
fn crash_at_load_is_reported_with_the_engines_own_last_line() {
    let (daemon, neighbour) = alongside_a_good_one("fail=crash_at_load", "");
    let answer = chat(daemon.address, "bad");
    assert_no_retry(&answer);
    let error = error(&answer);
    assert_eq!(error["code"], "load_failed", "{error}");
    assert!(reported(&error).contains("status 1"), "{error}");
    assert!(reported(&error).contains("engine_model_file"), "{error}");
    neighbour.is_unhurt(&daemon);
    until("the failed run's claim is released", || daemon.running() == ["good"]);
}

#[test]
fn a_signal_at_load_is_reported_as_a_signal_and_not_as_status_1() {
    let (daemon, neighbour) = alongside_a_good_one("fail=signal_at_load:SEGV", "");
    let error = error(&chat(daemon.address, "bad"));
    assert!(reported(&error).contains("SIGSEGV"), "{error}");
    neighbour.is_unhurt(&daemon);
}

#[test]
fn out_of_memory_at_load_is_named_with_what_was_asked() {
    let (daemon, neighbour) = alongside_a_good_one("fail=oom_at_load", "");
    let answer = chat(daemon.address, "bad");
    assert_eq!(answer.status, 503);
    let error = error(&answer);
    assert!(reported(&error).contains("engine_out_of_memory"), "{error}");
    let requested = 5120_u64 << 20;
    assert!(reported(&error).contains(&requested.to_string()), "the size that failed is not named: {error}");
    assert!(!reported(&error).contains("cudaMalloc"), "an engine's words are the operator's: {error}");
    assert!(http::get(daemon.address, "/logs").text().contains("cudaMalloc failed: out of memory"));
    neighbour.is_unhurt(&daemon);
}

#[test]
fn out_of_memory_at_load_is_tried_again_and_then_served() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("fail=oom_at_load fail_once={}", folder.path().join("once").display());
    let (daemon, neighbour) = alongside_a_good_one(&script, "");
    assert_eq!(chat(daemon.address, "bad").status, 200);
    neighbour.is_unhurt(&daemon);
}

#[test]
fn a_hang_at_load_ends_at_the_load_timeout() {
    let (daemon, neighbour) = alongside_a_good_one("fail=hang_at_load", "load-timeout = \"1s\"");
    let start = Instant::now();
    let answer = chat(daemon.address, "bad");
    assert_eq!(answer.status, 503);
    assert!(start.elapsed() < Duration::from_secs(8), "took {:?}", start.elapsed());
    let error = error(&answer);
    assert!(reported(&error).contains("1 s"), "the limit is not named: {error}");
    neighbour.is_unhurt(&daemon);
    until("the hanging engine is gone", || daemon.engines().len() == 1);
}

#[test]
fn a_crash_mid_stream_ends_in_a_well_formed_error_event() {
    for script in ["fail=crash_mid_stream:3 events=9", "fail=crash_mid_stream:3:torn events=9"] {
        let (daemon, neighbour) = alongside_a_good_one(script, "");
        let answer = chat_stream(daemon.address, "bad");
        assert_eq!(answer.status, 200);
        let events = answer.events();
        let (last, before) = events.split_last().expect("events came");
        assert!(before.len() >= 3, "{events:?}");
        for event in before {
            let chunk: Value = serde_json::from_str(event).expect("every event is whole");
            assert!(chunk.get("choices").is_some(), "{chunk}");
        }
        let last: Value = serde_json::from_str(last).expect("the error is JSON");
        assert_eq!(last["error"]["code"], "engine_died", "{last}");
        assert!(answer.whole, "the stream ends as its framing promises");
        neighbour.is_unhurt(&daemon);
    }
}

#[test]
fn a_crash_before_the_first_byte_is_tried_once_more_and_served() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("fail=oom_at_depth:1 fail_once={}", folder.path().join("once").display());
    let (daemon, neighbour) = alongside_a_good_one(&script, "");
    assert_eq!(chat(daemon.address, "bad").status, 200);
    neighbour.is_unhurt(&daemon);
}

#[test]
fn out_of_memory_at_depth_is_refused_with_the_cause_after_one_more_try() {
    let (daemon, neighbour) = alongside_a_good_one("fail=oom_at_depth:1000", "");
    assert_eq!(chat(daemon.address, "bad").status, 200, "a shallow request is served");
    let deep = json!({"model": "bad", "messages": [{"role": "user", "content": "x".repeat(8000)}]});
    let answer = http::post(daemon.address, "/v1/chat/completions", &deep);
    assert_eq!(answer.status, 503);
    let error = error(&answer);
    assert_eq!(error["code"], "engine_died", "{error}");
    assert!(reported(&error).contains("engine_out_of_memory"), "{error}");
    neighbour.is_unhurt(&daemon);
}

#[test]
fn a_hang_mid_request_holds_its_own_model_only_and_ends_with_its_client() {
    let (daemon, neighbour) = alongside_a_good_one("fail=hang_mid_request", "");
    let hanging = http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("bad", false)));
    until("the request is in flight", || in_flight(&daemon, "bad") == 1);
    neighbour.is_unhurt(&daemon);
    drop(hanging);
    until("the client's leaving is noticed", || in_flight(&daemon, "bad") == 0);
    neighbour.is_unhurt(&daemon);
}

fn in_flight(daemon: &Daemon, model: &str) -> u64 {
    let status = daemon.status();
    let models = status["models"].as_array().expect("models").iter();
    models.filter(|view| view["name"] == model).filter_map(|view| view["in_flight"].as_u64()).sum()
}

#[test]
fn a_slow_drain_delays_the_newcomer_and_nobody_else() {
    let daemon = Setup::new()
        .model("good", "256MiB", "", "pin = true")
        .model("slow", "700MiB", "drain_ms=700", "")
        .model("next", "700MiB", "", "")
        .start();
    let neighbour = Neighbour::of(&daemon);
    assert_eq!(chat(daemon.address, "slow").status, 200);
    let start = Instant::now();
    assert_eq!(chat(daemon.address, "next").status, 200);
    assert!(start.elapsed() >= Duration::from_millis(700), "two models of 700 MiB were up on 1 GiB at once");
    assert_eq!(daemon.running(), ["good", "next"]);
    neighbour.is_unhurt(&daemon);
}

#[test]
fn an_engine_that_ignores_every_request_to_stop_is_killed_with_all_it_started() {
    let daemon = Setup::new()
        .model("deaf", "700MiB", "ignore_term=1", "stop-timeout = \"300ms\"")
        .model("next", "700MiB", "", "")
        .start();
    let deaf = process(&chat(daemon.address, "deaf"));
    assert_eq!(chat(daemon.address, "next").status, 200);
    assert!(!alive(u32::try_from(deaf).unwrap()));
    assert_eq!(daemon.running(), ["next"]);
}

#[test]
fn an_engine_that_ignored_a_stop_once_is_killed_soon_the_next_time() {
    let daemon = Setup::new()
        .model("deaf", "700MiB", "ignore_term=1", "stop-timeout = \"5s\"")
        .model("next", "700MiB", "", "")
        .start();
    let mut swaps = Vec::new();
    for _ in 0..2 {
        assert_eq!(chat(daemon.address, "deaf").status, 200);
        let start = Instant::now();
        assert_eq!(chat(daemon.address, "next").status, 200);
        swaps.push(start.elapsed());
    }
    assert!(swaps[0] >= Duration::from_secs(5), "{swaps:?}");
    assert!(swaps[1] < swaps[0] - Duration::from_secs(2), "{swaps:?}");
}

#[test]
fn a_model_with_a_fault_that_lasts_evicts_its_neighbour_once() {
    let fault = "cmd = ['sh', '-c', 'echo \"error: invalid argument: --ctxsize\" >&2; exit 1', '${PORT}']";
    let text = format!("[models.bad]\n{fault}\nmemory = '700MiB'\n");
    let daemon = Setup::new().model("good", "700MiB", "", "").config(&text).start();
    chat(daemon.address, "good");
    assert_no_retry(&chat(daemon.address, "bad"));
    let neighbour = Neighbour::of(&daemon);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_secs(3));
        assert_no_retry(&chat(daemon.address, "bad"));
        neighbour.is_unhurt(&daemon);
    }
}

#[test]
fn a_port_that_was_taken_meanwhile_is_replaced_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("fail=port_taken fail_once={}", folder.path().join("once").display());
    let (daemon, neighbour) = alongside_a_good_one(&script, "");
    assert_eq!(chat(daemon.address, "bad").status, 200);
    neighbour.is_unhurt(&daemon);
}

#[test]
fn a_missing_engine_is_named_and_evicts_nobody() {
    let daemon = Setup::new()
        .model("good", "700MiB", "", "")
        .config("[models.bad]\ncmd = \"/nowhere/engine --port ${PORT}\"\nmemory = \"700MiB\"\n")
        .start();
    let neighbour = Neighbour::of(&daemon);
    let answer = chat(daemon.address, "bad");
    assert_no_retry(&answer);
    assert!(reported(&error(&answer)).contains("/nowhere/engine"), "{}", answer.text());
    neighbour.is_unhurt(&daemon);
}

#[test]
fn a_fault_of_the_command_line_or_the_model_is_one_status_however_it_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let server = folder.path().join("llama-server");
    std::os::unix::fs::symlink(fake_engine(), &server).unwrap();
    let server = server.display();
    let says = |text: &str| {
        format!("cmd = ['sh', '-c', 'echo \"{text}\" >&2; exit 1', '${{PORT}}']\nmemory = '1MiB'")
    };
    let models = [
        // The engine finds it.
        ("flag", says("error: invalid argument: --ctxsize")),
        ("file", says("llama_model_load: error loading model: failed to open GGUF file x.gguf")),
        ("library", says("llama-server: error while loading shared libraries: libx.so.1")),
        // Plimsoll finds it, in the same place of a configuration.
        ("value", format!("cmd = '{server} --port ${{PORT}} -m /no/such.gguf -ctk q8'")),
        ("missing", format!("cmd = '{server} --port ${{PORT}} -m /no/such.gguf'")),
        ("program", "cmd = '/nowhere/engine --port ${PORT}'\nmemory = '1MiB'".to_owned()),
    ];
    let config: String = models.iter().map(|(name, rest)| format!("[models.{name}]\n{rest}\n")).collect();
    let daemon = Setup::new().config(&config).start();
    for (name, _) in &models {
        // The second request comes while the next load is held back.
        for _ in 0..2 {
            let answer = chat(daemon.address, name);
            assert_no_retry(&answer);
            assert_eq!(error(&answer)["code"], "load_failed", "{name}: {}", answer.text());
        }
    }
}

#[test]
fn a_load_that_failed_for_a_passing_reason_is_worth_another_try() {
    let daemon = Setup::new()
        .model("memory", "256MiB", "fail=oom_at_load", "")
        .model("port", "256MiB", "fail=port_taken", "")
        .model("signal", "256MiB", "fail=signal_at_load:KILL", "")
        .config("[models.driver]\ncmd = ['sh', '-c', 'echo CUDA error: unspecified launch failure >&2; exit 1', '${PORT}']\nmemory = '1MiB'\n")
        .config("[models.words]\ncmd = ['sh', '-c', 'echo failed to load model >&2; exit 1', '${PORT}']\nmemory = '1MiB'\n")
        .start();
    for name in ["memory", "port", "signal", "driver", "words"] {
        for _ in 0..2 {
            assert_retry(&chat(daemon.address, name));
        }
    }
}

#[test]
fn a_missing_file_of_a_declared_model_is_named_and_evicts_nobody() {
    for (flags, missing) in [
        ("-m /nowhere/ghost.gguf", "/nowhere/ghost.gguf"),
        ("-m /dev/null --lora /nowhere/lora.gguf", "/nowhere/lora.gguf"),
    ] {
        let text = format!(
            "[models.bad]\nprogram = '{}'\nflags = '{flags}'\nmemory = '700MiB'\n",
            fake_engine().display()
        );
        let daemon = Setup::new().model("good", "700MiB", "", "").config(&text).start();
        daemon.reported(&format!(
            "model bad   cannot be loaded: bad could not be started: cannot open {missing}"
        ));
        let neighbour = Neighbour::of(&daemon);
        let answer = chat(daemon.address, "bad");
        assert_no_retry(&answer);
        assert!(reported(&error(&answer)).contains(missing), "{}", answer.text());
        neighbour.is_unhurt(&daemon);
        let mut check = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let check =
            check.args(["serve", "--check", "--card", "kind=host,total=1GiB"]).arg(daemon.config_file());
        let output = check.output().unwrap();
        let stated = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.code() == Some(1) && stated.contains(&format!("cannot open {missing}")),
            "{stated}"
        );
    }
}

#[test]
fn a_model_that_can_never_fit_is_413_with_the_cards_and_evicts_nobody() {
    let daemon = Setup::new().model("good", "700MiB", "", "").model("huge", "2GiB", "", "").start();
    let neighbour = Neighbour::of(&daemon);
    let answer = chat(daemon.address, "huge");
    assert_eq!(answer.status, 413);
    let error = error(&answer);
    let tree = reported(&error["reason"]);
    assert!(
        tree.contains("2147483648") && tree.contains("1073741824"),
        "asked and present are named: {error}"
    );
    neighbour.is_unhurt(&daemon);
}

#[test]
fn a_full_disk_under_the_log_hurts_neither_daemon_nor_engine() {
    let daemon =
        Setup::new().model("good", "256MiB", "", "").argument("--log-file").argument("/dev/full").start();
    let neighbour = Neighbour::of(&daemon);
    neighbour.is_unhurt(&daemon);
    until("the failing log is reported", || daemon.talk().contains("/dev/full"));
    assert_eq!(daemon.talk().matches("/dev/full").count(), 1, "reported once:\n{}", daemon.talk());
}

#[test]
fn sigterm_lets_the_stream_in_flight_finish_and_leaves_nothing() {
    let mut daemon = Setup::new().model("slow", "256MiB", "events=20 event_ms=50", "").start();
    let stream = http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("slow", true)));
    until("the request is in flight", || in_flight(&daemon, "slow") == 1);
    let engines = daemon.engines();
    daemon.signal("TERM");
    let answer = http::read(&stream);
    assert!(answer.whole, "{}", answer.text());
    assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
    assert!(daemon.wait().success());
    assert!(engines.iter().all(|pid| !alive(*pid)));
}

#[test]
fn sigterm_ends_everything_within_thirty_seconds_whatever_goes_on() {
    let script = "events=1000 event_ms=100 ignore_term=1";
    let mut daemon = Setup::new().model("long", "256MiB", script, "stop-timeout = \"60s\"").start();
    let stream = http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("long", true)));
    until("the request is in flight", || in_flight(&daemon, "long") == 1);
    let start = Instant::now();
    daemon.signal("TERM");
    assert!(daemon.wait().success());
    let took = start.elapsed();
    assert!((Duration::from_secs(24)..Duration::from_millis(31_500)).contains(&took), "{took:?}");
    drop(stream);
}

#[test]
fn sigkill_of_the_daemon_leaves_no_engine_and_no_grandchild() {
    let daemon_setup = Setup::new().model("good", "256MiB", "", "");
    let engine = std::path::Path::new(env!("CARGO_BIN_EXE_plimsoll")).with_file_name("fake-engine");
    let wrapped = format!(
        "[models.wrapped]\ncmd = \"sh -c '{} --port ${{PORT}} & wait'\"\nmemory = \"256MiB\"\n",
        engine.display()
    );
    let mut daemon = daemon_setup.config(&wrapped).start();
    assert_eq!(chat(daemon.address, "good").status, 200);
    assert_eq!(chat(daemon.address, "wrapped").status, 200);
    let engines = daemon.engines();
    assert!(engines.len() >= 2, "{engines:?}");
    daemon.signal("KILL");
    daemon.wait();
    until("every engine is gone", || engines.iter().all(|pid| !alive(*pid)));
}
