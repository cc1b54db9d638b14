//! Tests of ending a child process, and of the time that this may take.

use std::time::{Duration, Instant};

use plimsoll_doctor::Exit;
use plimsoll_engine::{EndCause, StopWay};

use super::rig::{LIMIT, engine, eventually, launcher, lives, on_one_thread, shell, start};

#[test]
fn a_ready_engine_leaves_on_the_exit_command() {
    on_one_thread(async {
        let mut running = start(&launcher(), engine("")).await;
        running.ready().await;
        running.child.stop(LIMIT);
        let ended = running.ended().await;
        assert_eq!((ended.exit, ended.cause), (Exit::Code(0), EndCause::Requested));
        assert!(ended.was_ready);
        assert!(!lives(running.child.pid()));
    });
}

#[test]
fn an_engine_of_the_early_channel_leaves_on_the_exit_command_too() {
    on_one_thread(async {
        let mut running = start(&launcher(), engine("early_channel=1")).await;
        running.ready().await;
        let requested = Instant::now();
        running.child.stop(LIMIT);
        let ended = running.ended().await;
        assert_eq!((ended.exit, ended.cause), (Exit::Code(0), EndCause::Requested));
        assert!(requested.elapsed() < LIMIT / 2, "{:?}", requested.elapsed());
    });
}

#[test]
fn a_slow_drain_may_take_its_time() {
    on_one_thread(async {
        let mut running = start(&launcher(), engine("drain_ms=300")).await;
        running.ready().await;
        running.child.stop(LIMIT);
        let ended = running.ended().await;
        assert_eq!((ended.exit, ended.cause), (Exit::Code(0), EndCause::Requested));
    });
}

#[test]
fn an_engine_that_will_not_leave_is_killed_after_its_time() {
    on_one_thread(async {
        let mut running = start(&launcher(), engine("ignore_term=1")).await;
        running.ready().await;
        let requested = Instant::now();
        running.child.stop(Duration::from_millis(200));
        let ended = running.ended().await;
        assert_eq!((ended.exit, ended.cause), (Exit::Signal(9), EndCause::RequestedAndKilled));
        assert!(requested.elapsed() >= Duration::from_millis(200));
    });
}

#[test]
fn a_second_and_more_urgent_request_to_stop_is_heard() {
    on_one_thread(async {
        let mut running = start(&launcher(), engine("ignore_term=1")).await;
        running.ready().await;
        running.child.stop(Duration::MAX);
        running.child.stop(Duration::from_millis(50));
        assert_eq!(running.ended().await.cause, EndCause::RequestedAndKilled);
    });
}

#[test]
fn an_engine_that_hangs_while_loading_can_be_stopped_at_once() {
    on_one_thread(async {
        let mut running = start(&launcher(), engine("fail=hang_at_load")).await;
        running.next().await;
        let requested = Instant::now();
        running.child.stop(LIMIT);
        assert_eq!(running.ended().await.exit, Exit::Signal(9));
        assert!(requested.elapsed() < LIMIT / 2);
    });
}

#[test]
fn a_stop_command_gets_the_process_id() {
    on_one_thread(async {
        let mut spec = shell("trap 'exit 7' TERM; echo listens; while :; do sleep 0.01; done");
        spec.stop = StopWay::Command(["kill", "-TERM", "${PID}"].map(str::to_owned).to_vec());
        let mut running = start(&launcher(), spec).await;
        running.ready().await;
        while running.child.log().tail(1).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        running.child.stop(LIMIT);
        let ended = running.ended().await;
        assert_eq!((ended.exit, ended.cause), (Exit::Code(7), EndCause::Requested));
    });
}

#[test]
fn a_stop_command_that_does_not_exist_falls_back_to_a_signal() {
    on_one_thread(async {
        let mut spec = shell("sleep 1000");
        spec.stop = StopWay::Command(vec!["/no/such/program".to_owned()]);
        let mut running = start(&launcher(), spec).await;
        running.ready().await;
        running.child.stop(LIMIT);
        assert_eq!(running.ended().await.exit, Exit::Signal(15));
    });
}

#[test]
fn dropping_the_handle_ends_the_child() {
    on_one_thread(async {
        let running = start(&launcher(), shell("sleep 1000")).await;
        let pid = running.child.pid();
        let mut events = running.events;
        drop(running.child);
        while events.recv().await.is_some() {}
        assert!(!lives(pid));
    });
}

#[test]
fn the_end_of_the_runtime_ends_its_children() {
    let launcher = launcher();
    let pid = on_one_thread(async {
        let running = start(&launcher, shell("sleep 1000")).await;
        running.child.pid()
    });
    eventually(|| !lives(pid));
}
