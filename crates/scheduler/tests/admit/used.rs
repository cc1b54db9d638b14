//! Tests of a model's last use, its idle time, and the reported reason for its unload.

use std::time::Duration;

use plimsoll_scheduler::{ConfigChange, ModelId, ModelSpec, ModelState, RunId, SchedulerEvent, Stopping};

use crate::runner::admit::desk::Desk;

impl Desk {
    fn why(&self, run: RunId) -> &'static str {
        self.scheduler.at(self.now).stop_reason(run).unwrap().code
    }
}

fn with_ttl(seconds: u64) -> Desk {
    Desk::tuned(&[10], &[8, 8], |_, spec| spec.ttl = Some(Duration::from_secs(seconds)))
}

#[test]
fn a_refused_request_is_no_use() {
    let mut desk = Desk::new(&[10], &[8]);
    desk.ask(0);
    desk.survey_fails(0);
    assert_eq!(desk.refusals().len(), 1);
    assert_eq!((desk.view(0).last_used, desk.view(0).idle_since), (None, None));
    desk.loaded(0);
    let used = desk.view(0).last_used;
    assert_eq!(used, Some(desk.now));
    desk.pass(3);
    desk.send(SchedulerEvent::Shutdown);
    desk.ask(0);
    assert_eq!(desk.refusals().len(), 1);
    assert_eq!(desk.view(0).last_used, used);
}

#[test]
fn a_request_that_waits_in_vain_is_no_use_either() {
    let mut desk = Desk::new(&[10], &[8]);
    desk.ask_until(0, 5);
    desk.pass(5);
    assert_eq!(desk.refusals().len(), 1);
    assert_eq!(desk.view(0).last_used, None);
}

#[test]
fn a_loaded_model_is_idle_since_its_load_and_not_since_its_use_before() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    let used = desk.now;
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    desk.gone(run);
    assert_eq!(desk.view(0).idle_since, None, "no run is idle");
    desk.pass(60);
    desk.send(SchedulerEvent::LoadWanted { model: ModelId(0) });
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.pass(2);
    assert_eq!(desk.view(0).idle_since, None, "it loads");
    desk.ready(run);
    let ready = desk.now;
    assert_eq!((desk.view(0).last_used, desk.view(0).idle_since), (Some(used), Some(ready)));
    let request = desk.ask(0);
    assert_eq!((desk.view(0).last_used, desk.view(0).idle_since), (Some(ready), None), "it is busy");
    desk.pass(4);
    desk.finish(request);
    let done = desk.now;
    desk.pass(3);
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    assert_eq!(desk.view(0).idle_since, Some(done), "as the line of its stop tells");
}

#[test]
fn a_run_whose_next_request_waits_for_memory_is_not_idle() {
    let mut desk = with_ttl(20);
    let run = desk.loaded(0);
    let used = vec![(plimsoll_base::CardId::new("card0"), crate::runner::admit::desk::gib(1))];
    desk.send(SchedulerEvent::Measured { run, used: used.clone() });
    desk.send(SchedulerEvent::Slept { run });
    desk.send(SchedulerEvent::Measured { run, used });
    let other = desk.loaded(1);
    let busy = desk.ask(1);
    let waiting = desk.ask_until(0, 600);
    for _ in 0..40 {
        desk.pass(1);
        assert!(desk.stopped().iter().all(|(stopped, _)| *stopped != run), "{:?}", desk.why(run));
    }
    desk.finish(busy);
    assert_eq!(desk.stopped(), [(other, Stopping::Graceful)]);
    desk.gone(other);
    assert_eq!(desk.dispatched(), [waiting]);
}

#[test]
fn a_run_whose_waiting_client_has_left_expires() {
    let mut desk = with_ttl(20);
    let run = desk.loaded(0);
    let used = vec![(plimsoll_base::CardId::new("card0"), crate::runner::admit::desk::gib(1))];
    desk.send(SchedulerEvent::Measured { run, used: used.clone() });
    desk.send(SchedulerEvent::Slept { run });
    desk.send(SchedulerEvent::Measured { run, used });
    desk.loaded(1);
    desk.ask(1);
    let waiting = desk.ask(0);
    desk.pass(30);
    desk.send(SchedulerEvent::Abandoned { request: waiting });
    desk.pass(0);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    assert_eq!(desk.why(run), "idle");
}

#[test]
fn an_unload_by_hand_is_reported_as_such_whatever_the_time_to_live_and_later_wishes() {
    let mut desk = with_ttl(10);
    let run = desk.loaded(0);
    desk.send(SchedulerEvent::IdleOccupied { occupied: true });
    desk.pass(60);
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    assert_eq!(desk.why(run), "unloaded", "it was idle for longer than its time to live");

    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    let busy = desk.ask(0);
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    desk.send(SchedulerEvent::LoadWanted { model: ModelId(0) });
    desk.finish(busy);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    assert_eq!(desk.why(run), "unloaded", "a request to load it is no new configuration");
}

#[test]
fn an_expired_run_is_reported_as_such_although_its_time_to_live_is_changed_while_it_ends() {
    let mut desk = with_ttl(10);
    let run = desk.loaded(0);
    desk.pass(10);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    let longer = ModelSpec { ttl: Some(Duration::from_secs(600)), ..ModelSpec::new("m0") };
    desk.send(SchedulerEvent::Configured(vec![(ModelId(0), ConfigChange::Retuned(longer))]));
    assert_eq!(desk.state(0), ModelState::Stopping);
    assert_eq!(
        desk.scheduler.at(desk.now).stop_reason(run).unwrap().text,
        "the model was idle for 10 s, which is its ttl (time to live)"
    );
}
