//! Tests of a new configuration, of manual loads and unloads, and of the shutdown.

use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_scheduler::{
    ConfigChange, ModelId, ModelSpec, ModelState, RequestRefusalKind, SchedulerEffect, SchedulerEvent,
    Stopping,
};

use crate::runner::admit::desk::Desk;

fn configured(model: u32, change: ConfigChange) -> SchedulerEvent {
    SchedulerEvent::Configured(vec![(ModelId(model), change)])
}

#[test]
fn a_reload_touches_only_what_changed() {
    let mut desk = Desk::new(&[24], &[8, 8]);
    let changed = desk.loaded(0);
    desk.loaded(1);
    desk.send(configured(0, ConfigChange::Replaced(ModelSpec::new("m0"))));
    assert_eq!(desk.stopped(), [(changed, Stopping::Graceful)]);
    assert_eq!(desk.state(1), ModelState::Ready);
    desk.gone(changed);
    desk.surveyed(0);
    assert!(desk.started().is_some());
}

// llama-swap: a reload cuts every stream that is under way.
#[test]
fn a_replaced_model_finishes_what_it_has_and_the_new_one_serves_what_came_later() {
    let mut desk = Desk::new(&[24], &[8]);
    let old = desk.loaded(0);
    let busy = desk.ask(0);
    desk.send(configured(0, ConfigChange::Replaced(ModelSpec::new("m0"))));
    assert_eq!(desk.stopped(), []);
    let later = desk.ask(0);
    assert_eq!(desk.dispatched(), []);
    desk.finish(busy);
    desk.gone(old);
    desk.surveyed(0);
    let new = desk.started().unwrap();
    desk.ready(new);
    assert_eq!(desk.dispatched(), [later]);
}

#[test]
fn a_survey_of_the_old_configuration_says_nothing_about_the_new_one() {
    let mut desk = Desk::new(&[24], &[8]);
    desk.ask(0);
    desk.send(configured(0, ConfigChange::Replaced(ModelSpec::new("m0"))));
    assert_eq!(desk.surveys(), 0);
    desk.surveyed(0);
    assert_eq!((desk.started(), desk.surveys()), (None, 1));
    desk.surveyed(0);
    assert!(desk.started().is_some());
}

#[test]
fn new_terms_of_admission_take_effect_without_a_restart() {
    let mut desk = Desk::tuned(&[24], &[8], |_, spec| spec.concurrency = Some(1));
    desk.loaded(0);
    desk.ask(0);
    let queued = desk.ask(0);
    desk.send(configured(0, ConfigChange::Retuned(ModelSpec::new("m0"))));
    assert_eq!(desk.dispatched(), [queued]);
    assert_eq!(desk.stopped(), []);
}

#[test]
fn a_removed_model_refuses_what_waits_and_finishes_what_it_has() {
    let mut desk = Desk::tuned(&[24], &[8], |_, spec| spec.concurrency = Some(1));
    let run = desk.loaded(0);
    let busy = desk.ask(0);
    desk.ask(0);
    desk.send(configured(0, ConfigChange::Removed));
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::Unconfigured);
    desk.ask(0);
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::Unconfigured);
    desk.finish(busy);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    desk.gone(run);
    assert_eq!(desk.scheduler.at(desk.now).snapshot().models, []);
}

#[test]
fn an_unload_by_hand_refuses_what_waits_and_lets_the_next_request_load_again() {
    let mut desk = Desk::new(&[24], &[8]);
    desk.ask(0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::Unloaded);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    let request = desk.ask(0);
    desk.gone(run);
    desk.surveyed(0);
    let next = desk.started().unwrap();
    desk.ready(next);
    assert_eq!(desk.dispatched(), [request]);
}

#[test]
fn a_load_by_hand_makes_room_like_a_request_does() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.loaded(0);
    desk.send(SchedulerEvent::LoadWanted { model: ModelId(1) });
    desk.surveyed(1);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    desk.gone(run);
    assert!(desk.started().is_some());
}

#[test]
fn preloading_fills_what_is_free_and_makes_nobody_go() {
    let mut desk = Desk::tuned(&[20], &[8, 8, 8], |_, spec| spec.preload = true);
    assert_eq!(desk.surveys(), 3);
    for model in 0..3 {
        desk.surveyed(model);
        assert_eq!(desk.started().is_some(), model == 0, "one after the other");
    }
    for _ in 0..2 {
        let loading = desk.scheduler.ledger().accounts()[0].claims().last().unwrap().run;
        desk.ready(loading);
    }
    assert_eq!(desk.state(1), ModelState::Ready);
    // The model is sound: it lacked room.
    assert_eq!(desk.state(2), ModelState::Unloaded);
    assert!(desk.view(2).last_failure.unwrap().to_string().contains("not preloaded"));
}

#[test]
fn shutdown_refuses_what_waits_lets_requests_finish_and_ends_when_nobody_is_left() {
    let mut desk = Desk::new(&[24], &[8, 8, 8]);
    let busy_run = desk.loaded(0);
    let idle_run = desk.loaded(1);
    let busy = desk.ask(0);
    desk.ask(2);
    desk.send(SchedulerEvent::Shutdown);
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::ShuttingDown);
    assert_eq!(desk.stopped(), [(idle_run, Stopping::Graceful)]);
    desk.ask(0);
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::ShuttingDown);
    desk.ended(idle_run);
    desk.finish(busy);
    assert_eq!(desk.stopped(), [(busy_run, Stopping::Graceful)]);
    desk.ended(busy_run);
    assert!(desk.effects.contains(&SchedulerEffect::Drained));
    assert!(desk.scheduler.at(desk.now).snapshot().cards[0].holders.is_empty());
}

#[test]
fn a_shutdown_ends_in_its_time_whatever_answers_go_on_and_whatever_time_an_engine_has_to_stop() {
    let slow = Duration::from_secs(60);
    let mut desk = Desk::tuned(&[24], &[8, 8], |id, spec| {
        spec.stop_timeout = if id == 1 { slow } else { spec.stop_timeout };
    });
    let stubborn = desk.loaded(1);
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(1) });
    assert_eq!(desk.stopped(), [(stubborn, Stopping::Graceful)]);
    let run = desk.loaded(0);
    desk.ask(0);
    desk.send(SchedulerEvent::Shutdown);
    assert_eq!(desk.stopped(), []);
    desk.pass(24);
    assert_eq!(desk.stopped(), []);
    desk.pass(1);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)], "the last answers have had their time");
    desk.pass(4);
    assert_eq!(desk.stopped(), []);
    desk.pass(1);
    assert_eq!(desk.stopped(), [(run, Stopping::Kill), (stubborn, Stopping::Kill)]);
    desk.crashes(run);
    desk.crashes(stubborn);
    assert!(desk.effects.contains(&SchedulerEffect::Drained));
}

#[test]
fn shutdown_with_nothing_running_is_over_at_once() {
    let mut desk = Desk::new(&[24], &[8]);
    assert!(desk.send(SchedulerEvent::Shutdown).contains(&SchedulerEffect::Drained));
    assert_eq!(desk.send(SchedulerEvent::Shutdown), []);
}

#[test]
fn the_snapshot_says_who_holds_what() {
    let mut desk = Desk::new(&[24], &[8]);
    let run = desk.loaded(0);
    desk.now = desk.now + Duration::from_secs(1);
    let view = serde_json::to_value(desk.scheduler.at(desk.now).snapshot()).unwrap();
    let gib = |n| Bytes::gib(n).get();
    assert_eq!(
        view["cards"][0],
        serde_json::json!({
            "id": "card0", "name": "card0", "total": gib(24), "capacity": gib(24), "claimed": gib(8),
            "free": gib(16), "foreign": 0,
            "holders": [{"run": run.0, "model": "m0", "claim": gib(8), "measured": null}],
        })
    );
    assert_eq!(view["models"][0]["state"], "ready");
}
