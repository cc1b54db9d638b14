//! Tests of the fake engine's scripted faults.

use std::time::{Duration, Instant};

use super::process::Double;

fn end_of(script: &str) -> (Option<i32>, String) {
    let (status, log) = Double::spawn(script, &[], false).end();
    (status.code(), log)
}

#[test]
fn an_oom_at_load_leaves_the_lines_of_llama_cpp() {
    let (code, log) = end_of("fail=oom_at_load");
    assert_eq!(code, Some(1));
    assert!(log.contains("allocating 5120.00 MiB on device 0: cudaMalloc failed: out of memory\n"), "{log}");
    assert!(
        log.contains("alloc_tensor_range: failed to allocate CUDA0 buffer of size 5368709120\n"),
        "{log}"
    );
    assert!(
        log.contains("llama_model_load: error loading model: unable to allocate CUDA0 buffer\n"),
        "{log}"
    );
}

#[test]
fn a_crash_at_load_and_a_taken_port_exit_with_their_reason() {
    let (code, log) = end_of("fail=crash_at_load");
    assert_eq!((code, log.contains("failed to load model, ''")), (Some(1), true));
    let (code, log) = end_of("fail=port_taken");
    assert_eq!(
        (code, log.contains("couldn't bind HTTP server socket, hostname: 127.0.0.1")),
        (Some(1), true)
    );
}

#[test]
fn a_port_that_is_really_taken_is_reported_alike() {
    let holder = Double::ready("");
    let (status, log) = Double::spawn("", &["--port", &holder.port.to_string()], false).end();
    assert_eq!((status.code(), log.contains("couldn't bind HTTP server socket")), (Some(1), true));
}

#[test]
fn signals_at_load_are_seen_as_signals() {
    for (name, number) in [("SEGV", 11), ("KILL", 9), ("ABRT", 6)] {
        let mut double = Double::spawn(&format!("fail=signal_at_load:{name}"), &[], false);
        assert_eq!(double.end_signal(), Some(number));
    }
}

#[test]
fn a_hang_at_load_never_becomes_ready() {
    let mut double = Double::spawn("fail=hang_at_load", &[], false);
    double.wait_for_log("loading model");
    assert_eq!(double.get("/health").status, 503);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(double.get("/health").status, 503);
}

#[test]
fn a_deep_request_aborts_with_the_cuda_error() {
    let mut double = Double::ready("fail=oom_at_depth:100");
    assert_eq!(double.post("/completion", &"x".repeat(400)).status, 200);
    assert_eq!(double.post("/completion", &"x".repeat(404)).status, 0);
    let (_, log) = double.end();
    assert!(log.contains("CUDA error: out of memory\n  current device: 0, in function alloc"), "{log}");
    assert_eq!(double.end_signal(), Some(6));
}

#[test]
fn a_stream_ends_after_or_inside_an_event() {
    for (script, torn) in [("fail=crash_mid_stream:2", false), ("fail=crash_mid_stream:2:torn", true)] {
        let mut double = Double::ready(script);
        let reply = double.post("/v1/completions", r#"{"stream":true}"#);
        assert_eq!((reply.is_whole, reply.events().len()), (false, 2));
        assert_eq!(!reply.body.ends_with("\n\n"), torn);
        assert_eq!(double.end_signal(), Some(6));
    }
}

#[test]
fn a_hanging_request_hangs_and_no_other() {
    let double = Double::ready("fail=hang_mid_request");
    let mut client = double.connect();
    client.write("POST", "/completion", "", "{}");
    client.socket.get_ref().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(client.read().status, 0);
    assert_eq!(double.get("/health").status, 200);
}

#[test]
fn a_fault_with_a_marker_lets_the_second_start_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("fail=oom_at_load fail_once={}", folder.path().join("marker").display());
    assert_eq!(end_of(&script).0, Some(1));
    assert_eq!(Double::ready(&script).get("/health").status, 200);
}

#[test]
fn it_dies_by_kill_at_the_scripted_time() {
    assert_eq!(Double::ready("die_after_ms=20").end_signal(), Some(9));
}

#[test]
fn doubles_share_a_card_and_its_bytes_come_back_late() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("card");
    let script = format!("file={} vram_total=1000 vram=600 return_ms=2000", file.display());
    let mut first = Double::ready(&script);
    let (code, log) = end_of(&script);
    assert_eq!((code, log.contains("failed to allocate CUDA0 buffer of size 600")), (Some(1), true));

    first.kill();
    first.end();
    let dead = Instant::now();
    while is_refused(&script) {
        assert!(dead.elapsed() < Duration::from_secs(30));
    }
    assert!(dead.elapsed() >= Duration::from_millis(1900));
}

/// True when a start is still refused.
fn is_refused(script: &str) -> bool {
    Double::spawn(&format!("{script} die_after_ms=1"), &[], false).end().0.code() == Some(1)
}

#[test]
fn growth_beyond_the_shared_card_is_an_oom_at_depth() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("card");
    let mut double =
        Double::ready(&format!("file={} vram_total=1000 vram=600 vram_per_token=1", file.display()));
    assert_eq!(double.post("/completion", &"x".repeat(1600)).status, 200);
    assert_eq!(double.post("/completion", &"x".repeat(1700)).status, 0);
    assert_eq!(double.end_signal(), Some(6));
}
