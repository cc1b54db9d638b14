//! Tests of child processes that die by themselves, and of the diagnosis of each death.

use std::time::Duration;

use plimsoll_base::{Bytes, End, Stage};
use plimsoll_doctor::{CauseSign, Exit};
use plimsoll_engine::{ChildEnded, EndCause, Readiness};
use plimsoll_serve::post_mortem;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::rig::{LIMIT, engine, launcher, on_one_thread, shell, start};

fn death_of(faults: &str) -> ChildEnded {
    on_one_thread(async { start(&launcher(), engine(faults)).await.ended().await })
}

#[test]
fn a_broken_model_is_distinguished_from_want_of_memory() {
    let ended = death_of("fail=crash_at_load");
    assert_eq!((ended.exit, ended.cause), (Exit::Code(1), EndCause::OnItsOwn));
    let verdict = post_mortem("alpha", &ended, None);
    assert_eq!(verdict.sign, Some(CauseSign::ModelFile));
    assert!(matches!(verdict.end, End::Unstartable { lasts: true, .. }));
}

#[test]
fn want_of_memory_at_load_is_seen_in_the_engines_own_words() {
    let ended = death_of("fail=oom_at_load");
    let End::OutOfMemory { stage, shortfall, reason } = post_mortem("alpha", &ended, None).end else {
        panic!("{ended:?}");
    };
    assert_eq!(stage, Stage::Loading);
    assert_eq!(shortfall, None, "llama.cpp does not say what was free");
    assert_eq!(reason.facts["asked"], Bytes::mib(5120).into());
    assert!(reason.to_string().contains("cudaMalloc failed: out of memory"));
}

#[test]
fn want_of_memory_while_serving_is_seen_as_such() {
    on_one_thread(async {
        let mut running = start(&launcher(), engine("fail=oom_at_depth:4")).await;
        running.ready().await;
        let body = format!(r#"{{"model":"alpha","prompt":"{}"}}"#, "x".repeat(400));
        let request = format!(
            "POST /completion HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(("127.0.0.1", running.port())).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let ended = running.ended().await;
        assert_eq!(ended.exit, Exit::Signal(6));
        assert!(matches!(
            post_mortem("alpha", &ended, None).end,
            End::OutOfMemory { stage: Stage::Serving, .. }
        ));
    });
}

#[test]
fn a_taken_port_is_no_fault_of_the_model() {
    let ended = death_of("fail=port_taken");
    let verdict = post_mortem("alpha", &ended, None);
    assert_eq!(verdict.sign, Some(CauseSign::PortTaken));
    assert!(matches!(verdict.end, End::Unstartable { lasts: false, .. }));
}

#[test]
fn a_signal_is_not_taken_for_an_exit_status() {
    let ended = death_of("fail=signal_at_load:SEGV");
    assert_eq!((ended.exit, ended.was_ready), (Exit::Signal(11), false));
    let End::Crashed { reason } = post_mortem("alpha", &ended, None).end else {
        panic!("{ended:?}");
    };
    assert!(reason.to_string().contains("SIGSEGV"));
}

#[test]
fn the_last_words_are_kept_whole_even_from_both_pipes_at_once() {
    on_one_thread(async {
        let script = "sleep 0.1; i=0; while [ $i -lt 50 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; printf '\\377last'; exit 3";
        let mut running = start(&launcher(), shell(script)).await;
        let ended = running.ended().await;
        assert_eq!(ended.exit, Exit::Code(3));
        assert!(ended.last_lines.contains(&"\u{fffd}last".to_owned()));
        for pipe in ["out", "err"] {
            let lines = ended.last_lines.iter().filter(|line| line.starts_with(pipe));
            assert_eq!(lines.count(), 50, "{pipe}");
        }
    });
}

#[test]
fn a_death_is_seen_at_once() {
    on_one_thread(async {
        let mut running = start(&launcher(), engine("die_after_ms=50")).await;
        running.ready().await;
        let ended = running.ended().await;
        assert_eq!((ended.exit, ended.cause), (Exit::Signal(9), EndCause::OnItsOwn));
        assert!(ended.ran < Duration::from_secs(10));
    });
}

#[test]
fn an_engine_that_has_given_up_and_stays_is_ended_and_its_words_count() {
    on_one_thread(async {
        let script = "echo 'allocating 64.00 MiB on device 0: cudaMalloc failed: out of memory'; \
            echo 'srv load_model: failed to load model'; sleep 1000";
        let mut spec = shell(script);
        spec.readiness = Readiness::Control;
        let mut running = start(&launcher(), spec).await;
        let ended = running.ended().await;
        assert_eq!((ended.exit, ended.cause), (Exit::Signal(9), EndCause::Stuck));
        assert!(matches!(
            post_mortem("alpha", &ended, None).end,
            End::OutOfMemory { stage: Stage::Loading, .. }
        ));
    });
}

#[test]
fn a_child_that_never_stops_talking_keeps_nobody_waiting() {
    on_one_thread(async {
        let running = start(&launcher(), shell("yes 'all work and no play'")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut slowest = Duration::ZERO;
        for _ in 0..50 {
            let requested = std::time::Instant::now();
            tokio::time::sleep(Duration::from_millis(1)).await;
            slowest = slowest.max(requested.elapsed());
        }
        assert!(slowest < LIMIT / 3, "{slowest:?}");
        drop(running);
    });
}
