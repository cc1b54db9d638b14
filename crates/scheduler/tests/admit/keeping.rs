//! Tests of the time for which a client lets an idle engine stay loaded, as by Ollama's `keep_alive`.

use std::time::Duration;

use plimsoll_scheduler::{ModelId, ModelState, SchedulerEvent, Stopping};

use crate::runner::admit::desk::Desk;

impl Desk {
    fn keep(&mut self, model: u32, time: impl Into<Option<Duration>>) {
        self.send(SchedulerEvent::KeepWanted { model: ModelId(model), time: time.into() });
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn a_time_of_zero_ends_a_run_as_soon_as_it_is_idle() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    let busy = desk.ask(0);
    desk.keep(0, Duration::ZERO);
    desk.pass(1);
    assert_eq!(desk.state(0), ModelState::Ready, "another request is in flight");
    desk.finish(busy);
    desk.pass(1);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
}

#[test]
fn the_longest_time_keeps_an_idle_run_and_lets_it_leave_for_another_model() {
    let mut desk = Desk::tuned(&[10], &[8, 8], |_, spec| spec.ttl = Some(seconds(10)));
    let run = desk.loaded(0);
    assert!(desk.view(0).idle_end.is_some());
    desk.keep(0, Duration::MAX);
    assert_eq!(desk.view(0).idle_end, None);
    desk.pass(60);
    desk.keep(0, None);
    assert!(desk.view(0).idle_end.is_some(), "the configured time counts again");
    desk.keep(0, Duration::MAX);
    assert_eq!(desk.state(0), ModelState::Ready);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
}

#[test]
fn a_time_replaces_the_configured_one_and_a_model_without_a_run_has_none() {
    let mut desk = Desk::tuned(&[10], &[8], |_, spec| spec.ttl = Some(seconds(10)));
    desk.keep(0, seconds(3));
    assert_eq!(desk.view(0).idle_end, None);
    let run = desk.loaded(0);
    assert_eq!(desk.view(0).idle_end, Some(desk.now + seconds(10)), "the run is a new one");
    desk.keep(0, seconds(3));
    desk.pass(2);
    assert!(desk.stopped().is_empty());
    desk.pass(2);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
}

#[test]
fn idle_runs_that_are_held_stay_past_their_time_and_leave_when_the_hold_ends() {
    let mut desk = Desk::tuned(&[10], &[8], |_, spec| spec.ttl = Some(seconds(10)));
    let run = desk.loaded(0);
    desk.send(SchedulerEvent::IdleOccupied { occupied: true });
    desk.pass(600);
    assert!(desk.stopped().is_empty(), "held");
    desk.send(SchedulerEvent::IdleOccupied { occupied: false });
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
}
