//! Tests of the fake engine's start, readiness and end.

use std::io::Write;
use std::time::Instant;

use super::process::Double;

#[test]
fn loading_is_503_and_then_ready_is_200() {
    let mut double = Double::spawn("load_ms=300", &[], false);
    let loading = double.get("/health");
    assert_eq!((loading.status, &loading.json()["error"]["message"]), (503, &"Loading model".into()));
    double.wait_for_log("listening on");
    assert_eq!(double.get("/health").body, r#"{"status":"ok"}"#);
}

#[test]
fn a_router_is_notified_of_progress_and_readiness() {
    let mut double = Double::spawn("load_ms=40", &[], true);
    let progress: Vec<f64> = (0..5).map(|_| double.state()["payload"]["value"].as_f64().unwrap()).collect();
    assert_eq!(progress, [0.0, 0.25, 0.5, 0.75, 1.0]);
    let ready = double.state();
    assert_eq!((&ready["state"], &ready["payload"]["id"]), (&"ready".into(), &"alpha".into()));
}

#[test]
fn the_exit_line_ends_it_well_and_the_end_of_stdin_badly() {
    let mut double = Double::spawn("", &[], true);
    let mut stdin = double.stdin.take().unwrap();
    stdin.write_all(b"noise\ncmd_router_to_child:exit\n").unwrap();
    assert_eq!(double.end().0.code(), Some(0));

    let mut orphan = Double::spawn("", &[], true);
    drop(orphan.stdin.take());
    assert_eq!(orphan.end().0.code(), Some(1));
}

#[test]
fn without_a_router_stdin_means_nothing() {
    let mut double = Double::ready("");
    drop(double.stdin.take());
    assert_eq!(double.get("/health").status, 200);
    assert!(double.is_running());
}

#[test]
fn term_waits_for_requests_in_flight_and_for_the_scripted_drain() {
    let mut double = Double::ready("delay_ms=150 drain_ms=100");
    let mut client = double.connect();
    let start = Instant::now();
    client.write("POST", "/completion", "", "{}");
    while double.get("/fake/stats").json()["in_flight"] == 0 {}
    double.terminate();
    assert_eq!(client.read().status, 200);
    assert_eq!(double.end().0.code(), Some(0));
    assert!(start.elapsed().as_millis() >= 250);
}

#[test]
fn ignoring_term_leaves_only_kill() {
    let mut double = Double::spawn("ignore_term=1", &[], true);
    double.wait_for_log("listening on");
    double.terminate();
    double.stdin.as_mut().unwrap().write_all(b"cmd_router_to_child:exit\n").unwrap();
    assert_eq!(double.get("/health").status, 200);
    double.kill();
    assert_eq!(double.end_signal(), Some(9));
}

#[test]
fn asked_for_its_version_it_answers_and_ends() {
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_fake-engine")).arg("--version").output().unwrap();
    assert!(output.status.success());
    assert!(output.stdout.starts_with(b"fake-engine "));
}
