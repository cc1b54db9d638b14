//! Tests of models that share one fixed port: only one of them is loaded at a time, however much memory is
//! free.

use std::time::Duration;

use plimsoll_scheduler::{
    ConfigChange, ModelId, ModelSpec, Moment, RequestRefusalKind, SchedulerEvent, Stopping, WhatIfVerdict,
};

use crate::runner::admit::desk::{Desk, PATIENCE};
use crate::runner::admit::world::World;

impl World {
    /// The same, where the first `models` models listen on one port.
    pub(crate) fn with_shared_port(mut self, models: u32) -> Self {
        let models = models.min(u32::try_from(self.needs.len()).unwrap());
        self.on_port = models;
        let tuned = (0..models).map(|id| (ModelId(id), ConfigChange::Retuned(self.spec(id)))).collect();
        self.notify(SchedulerEvent::Configured(tuned));
        self
    }
}

/// A large card and three small models, of which the first two listen on one port.
fn desk() -> Desk {
    Desk::tuned(&[80], &[1, 1, 1], |id, spec| spec.port = Some(if id < 2 { 19051 } else { 19052 }))
}

#[test]
fn an_idle_model_leaves_for_the_other_on_its_port_and_for_no_other() {
    let mut desk = desk();
    let first = desk.loaded(0);
    let third = desk.loaded(2);
    assert!(first != third && desk.stopped().is_empty(), "another port is no obstacle");
    let what_if = desk.what_if(1, 1);
    assert_eq!((what_if.fits, what_if.stops), (WhatIfVerdict::After, vec!["m0".to_owned()]));
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped(), [(first, Stopping::Graceful)]);
    let why = desk.scheduler.at(desk.now).stop_reason(first).unwrap();
    assert_eq!(why.to_string(), "m1 listens on the same port (19051)");
    let (_, wait) = desk.scheduler.state().wait_reason(ModelId(1)).unwrap();
    assert!(
        wait.to_string().starts_with("the model waits until m0 is unloaded: both listen on port 19051"),
        "{wait}"
    );
    desk.ended(first);
    assert!(desk.started().is_some());
}

#[test]
fn a_busy_model_keeps_its_port_until_it_has_answered() {
    let mut desk = desk();
    let first = desk.loaded(0);
    let request = desk.ask(0);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!((desk.stopped(), desk.started()), (vec![], None));
    let line = desk.scheduler.at(desk.now).wait_line(ModelId(1)).unwrap();
    assert!(line.starts_with("waiting for port 19051, on which m0 listens"), "{line}");
    desk.pass(2 * PATIENCE);
    assert_eq!((desk.stopped(), desk.started()), (vec![], None));
    desk.finish(request);
    assert_eq!(desk.stopped(), [(first, Stopping::Graceful)]);
}

#[test]
fn a_pinned_model_keeps_its_port_and_the_other_is_refused_by_name() {
    let mut desk = desk();
    desk.loaded(0);
    desk.send(SchedulerEvent::PinWanted { model: ModelId(0), until: Moment::NEVER });
    desk.ask(1);
    desk.surveyed(1);
    let refusal = desk.refusals()[0].clone();
    assert_eq!(refusal.kind, RequestRefusalKind::NoRoom);
    let reported = "m1 cannot load: m0 listens on the same port (19051), and is pinned";
    assert_eq!(refusal.reason.to_string(), reported);
    assert_eq!(refusal.hints[0].to_string(), "unpin m0");
}

#[test]
fn two_that_come_at_once_load_one_after_the_other() {
    let mut desk = desk();
    desk.ask(0);
    desk.ask(1);
    desk.surveyed(0);
    let first = desk.started().unwrap();
    desk.surveyed(1);
    assert_eq!((desk.started(), desk.stopped()), (None, vec![]));
    desk.ready(first);
    assert_eq!(desk.started(), None);
}

#[test]
fn a_run_keeps_the_port_that_it_was_started_with() {
    let mut desk = desk();
    let first = desk.loaded(0);
    let moved = ModelSpec { port: Some(19060), hold: Duration::ZERO, ..ModelSpec::new("m0") };
    desk.send(SchedulerEvent::Configured(vec![(ModelId(0), ConfigChange::Retuned(moved))]));
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped(), [(first, Stopping::Graceful)]);
}
