//! Tests of engines that hang after ggml's abort at a CUDA error, because the debugger that ggml starts never
//! returns.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::guarded::{model, on_fake_cuda};
use crate::built::built;
use crate::daemon::{Setup, alive, until};
use crate::http::{chat, get, post};
use crate::pages::real::driver;

const MIB: u64 = 1 << 20;

/// Claim of alpha on the GPU. That on the host follows measurements, whose time is not the test's.
fn on_cards(status: &Value) -> Vec<Value> {
    let claim = model(status, "alpha")["claim"].as_array().cloned().unwrap_or_default();
    claim.into_iter().filter(|share| share["card"] != "host").collect()
}

/// A request after which the engine `abort`s: its words ask for memory, and guard, which watches no engine
/// here, has no page that says so. Returns after the engine is gone.
fn a_hanging_abort_is_noticed(abort: &str, health_is_well: bool) {
    let folder = tempfile::tempdir().unwrap();
    let driver = driver(&built("libplimsoll_fake_cuda.so", "fake-cuda"));
    let once = folder.path().join("once").display().to_string();
    let script = format!("cuda=1 vram={} fail=oom_at_depth:1000 fail_once={once} abort={abort}", 512 * MIB);
    let setup = Setup::with_cards(&[]).model("alpha", "1GiB", &script, "guard = { mode = \"off\" }");
    let daemon = on_fake_cuda(setup, &driver);
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    let claim = on_cards(&daemon.status());
    let engine = daemon.engines()[0];
    let address = daemon.address;
    let deep = thread::spawn(move || {
        let body = json!({"model": "alpha", "messages": [{"role": "user", "content": "word".repeat(5000)}]});
        post(address, "/v1/chat/completions", &body)
    });
    until("it aborts", || get(daemon.address, "/logs").text().contains("ggml-cuda.cu:107: CUDA error"));
    let aborted = Instant::now();
    if health_is_well {
        // Every other way to ask would find nothing.
        assert_eq!(get(daemon.address, "/upstream/alpha/health").status, 200);
    }
    assert!(alive(engine));
    until("it is noticed", || !alive(engine));
    assert!(aborted.elapsed() < Duration::from_secs(10), "{:?}", aborted.elapsed());
    let answer = deep.join().unwrap();
    assert_eq!(answer.status, 200, "the next run answers: {}", answer.text());
    assert_ne!(daemon.engines()[0], engine);
    assert_eq!(on_cards(&daemon.status()), claim, "its words taught nothing");
    let sleeps = |pid: &u32| crate::daemon::command_line(*pid).starts_with("sleep 1000");
    assert!(!crate::daemon::descendants(daemon.pid()).iter().any(sleeps), "its debugger is gone, too");
}

#[test]
fn an_abort_that_hangs_with_all_threads_is_noticed_within_ten_seconds_and_teaches_nothing() {
    a_hanging_abort_is_noticed("hangs", false);
}

#[test]
fn an_abort_that_hangs_while_health_is_well_is_noticed_within_ten_seconds_and_teaches_nothing() {
    a_hanging_abort_is_noticed("hangs_loop", true);
}
