//! Tests of eviction: which model stops for which, and when.

use std::num::NonZeroUsize;

use plimsoll_base::{Bytes, CardId, DeclaredSize};
use plimsoll_scheduler::{
    ModelId, ModelState, RequestRefusalKind, RunId, SchedulerEffect, SchedulerEvent, SchedulerSettings,
    Stopping,
};

use crate::runner::admit::desk::{Desk, PATIENCE, gib};

fn graceful(run: RunId) -> Vec<(RunId, Stopping)> {
    vec![(run, Stopping::Graceful)]
}

#[test]
fn the_least_recently_used_idle_model_goes() {
    let mut desk = Desk::new(&[20], &[8, 8, 8]);
    let first = desk.loaded(0);
    let second = desk.loaded(1);
    let again = desk.ask(0);
    desk.finish(again);
    desk.ask(2);
    desk.surveyed(2);
    assert_eq!(desk.stopped(), graceful(second));
    assert_eq!(desk.state(0), ModelState::Ready);
    desk.gone(second);
    assert!(desk.started().is_some());
    assert_ne!(first, second);
}

#[test]
fn no_more_models_run_than_their_limit_whatever_memory_is_free() {
    let limit = |settings: &mut SchedulerSettings| settings.models_max = NonZeroUsize::new(2);
    let mut desk = Desk::set_up(&[80], &[8, 8, 8, 8], |_, _| {}, limit);
    let first = desk.loaded(0);
    let second = desk.loaded(1);
    desk.ask(2);
    desk.surveyed(2);
    assert_eq!((desk.stopped(), desk.started()), (graceful(first), None));
    // The next waits for its own place.
    desk.ask(3);
    desk.surveyed(3);
    assert_eq!((desk.stopped(), desk.started()), (graceful(second), None));
    desk.gone(first);
    let third = desk.started().unwrap();
    assert_eq!((desk.state(2), desk.state(3)), (ModelState::Loading, ModelState::Queued));
    desk.gone(second);
    assert!(desk.started().is_some_and(|run| run != third));
}

// llama-server's router and llama-swap throw a loaded model out before they know that the newcomer can load.
#[test]
fn nobody_is_evicted_for_a_model_that_cannot_load() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    desk.loaded(0);
    desk.ask(1);
    assert_eq!(desk.stopped(), []);
    desk.survey_fails(1);
    assert_eq!(desk.stopped(), []);
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::Unstartable);
    assert!(desk.refusals()[0].reason.to_string().contains("the file is missing"));
    assert_eq!(desk.state(0), ModelState::Ready);
}

#[test]
fn a_model_that_never_fits_is_refused_at_once_and_evicts_no_run() {
    let mut desk = Desk::new(&[10], &[8, 30]);
    desk.loaded(0);
    desk.ask(1);
    desk.surveyed(1);
    let refusal = desk.refusals()[0].clone();
    assert_eq!(refusal.kind, RequestRefusalKind::NeverFits);
    assert_eq!(refusal.retry_after, None);
    let text = refusal.reason.to_string();
    assert!(text.contains("10240 MiB") && text.contains("30720 MiB"), "{text}");
    assert_eq!(desk.stopped(), []);
}

#[test]
fn a_model_that_waits_takes_a_new_need_and_one_that_runs_keeps_its_claim() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.loaded(0);
    desk.ask(0);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.started(), None);
    desk.survey_fails(1);
    assert_eq!((desk.started(), desk.refusals().len()), (None, 0), "the need that is known stays");
    desk.grows(0, DeclaredSize(gib(1)));
    desk.surveyed(0);
    assert_eq!(desk.started(), None, "the claim of the run stays");
    desk.grows(1, DeclaredSize(gib(2)));
    desk.surveyed(1);
    assert!(desk.started().is_some_and(|started| started != run));
}

#[test]
fn a_busy_model_is_left_alone_until_patience_runs_out_and_then_drains() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.loaded(0);
    let busy = desk.ask(0);
    desk.ask(1);
    desk.surveyed(1);
    desk.pass(PATIENCE - 1);
    assert_eq!(desk.state(0), ModelState::Ready);
    desk.pass(1);
    assert_eq!(desk.state(0), ModelState::Draining);
    assert_eq!(desk.stopped(), []);
    desk.finish(busy);
    assert_eq!(desk.stopped(), graceful(run));
}

// llama.cpp #28698: requests are proxied into a dying child.
#[test]
fn a_draining_model_takes_no_new_request_and_serves_it_after_its_next_load() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.loaded(0);
    let busy = desk.ask(0);
    let other = desk.ask(1);
    desk.surveyed(1);
    desk.pass(PATIENCE);
    let newcomer = desk.ask(0);
    assert_eq!(desk.dispatched(), []);
    desk.finish(busy);
    desk.gone(run);
    let second = desk.started().unwrap();
    desk.surveyed(0);
    desk.ready(second);
    assert_eq!(desk.dispatched(), [other]);
    desk.finish(other);
    assert_eq!(desk.stopped(), graceful(second));
    desk.gone(second);
    let third = desk.started().unwrap();
    desk.ready(third);
    assert_eq!(desk.dispatched(), [newcomer]);
}

// llama-swap: three overlapping clients on one model starve the other as long as they go on (20 s observed).
#[test]
fn three_overlapping_clients_on_one_model_never_starve_another() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.loaded(0);
    let mut busy = vec![desk.ask(0), desk.ask(0), desk.ask(0)];
    desk.ask(1);
    desk.surveyed(1);
    let mut waited = 0;
    while desk.stopped().is_empty() && waited < 60 {
        desk.pass(1);
        waited += 1;
        if !desk.stopped().is_empty() {
            break;
        }
        let oldest = busy.remove(0);
        desk.finish(oldest);
        if desk.stopped().is_empty() {
            let next = desk.ask(0);
            busy.extend(desk.dispatched());
            assert!(busy.contains(&next) || desk.state(0) == ModelState::Draining);
        }
    }
    assert_eq!(desk.stopped(), graceful(run));
    assert!(waited <= PATIENCE + 3, "{waited} s");
}

// llama.cpp #28698: a freshly loaded model is evicted before its own request.
#[test]
fn a_newcomer_serves_a_request_before_it_has_to_go_and_its_queue_in_turns() {
    let mut desk = Desk::tuned(&[10], &[8, 8], |_, spec| spec.concurrency = Some(1));
    let run = desk.loaded(0);
    let (first, second) = (desk.ask(1), desk.ask(1));
    desk.surveyed(1);
    desk.gone(run);
    let newcomer = desk.started().unwrap();
    desk.ask(0);
    desk.surveyed(0);
    desk.pass(3 * PATIENCE);
    desk.ready(newcomer);
    assert_eq!(desk.dispatched(), [first]);
    desk.pass(PATIENCE);
    assert_eq!(desk.state(1), ModelState::Ready);
    desk.finish(first);
    assert_eq!(desk.dispatched(), [second]);
    let third = desk.ask(1);
    desk.pass(9 * PATIENCE);
    assert_eq!(desk.state(1), ModelState::Draining);
    desk.finish(second);
    assert_eq!((desk.dispatched(), desk.stopped()), (vec![], graceful(newcomer)), "{third:?} waits");
}

#[test]
fn a_drain_is_called_off_when_nobody_needs_the_room_any_more() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    desk.loaded(0);
    desk.ask(0);
    let other = desk.ask(1);
    desk.surveyed(1);
    desk.pass(PATIENCE);
    let queued = desk.ask(0);
    assert_eq!(desk.state(0), ModelState::Draining);
    desk.send(SchedulerEvent::Abandoned { request: other });
    assert_eq!(desk.state(0), ModelState::Ready);
    assert_eq!(desk.dispatched(), [queued]);
}

// Ollama: while one request waits for an eviction every other model that is not loaded waits behind it.
#[test]
fn a_model_that_must_wait_does_not_block_one_that_fits() {
    let mut desk = Desk::new(&[20], &[12, 12, 4]);
    desk.loaded(0);
    desk.ask(0);
    desk.ask(1);
    desk.surveyed(1);
    desk.ask(2);
    desk.surveyed(2);
    assert!(desk.started().is_some());
}

#[test]
fn memory_reserved_for_the_oldest_is_not_taken_by_younger_models() {
    let mut desk = Desk::new(&[20], &[12, 20, 4]);
    let run = desk.loaded(0);
    let busy = desk.ask(0);
    desk.ask(1);
    desk.surveyed(1);
    desk.pass(PATIENCE);
    desk.ask(2);
    desk.surveyed(2);
    assert_eq!(desk.started(), None);
    desk.finish(busy);
    desk.gone(run);
    assert_eq!(desk.view(1).state, ModelState::Loading);
}

#[test]
fn several_models_load_side_by_side_where_they_fit() {
    let mut desk = Desk::new(&[20], &[8, 8]);
    desk.ask(0);
    desk.surveyed(0);
    assert!(desk.started().is_some());
    desk.ask(1);
    desk.surveyed(1);
    assert!(desk.started().is_some());
}

// Ollama #7745: the next load fails because the driver has not given the memory back yet.
#[test]
fn the_claim_of_a_run_that_ended_stands_until_its_memory_is_back() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.loaded(0);
    desk.ask(1);
    desk.surveyed(1);
    desk.ended(run);
    assert_eq!(desk.started(), None);
    let taken = desk.effects.iter().find_map(|effect| match effect {
        SchedulerEffect::AwaitMemory { run, taken } => Some((*run, taken[0].bytes)),
        _ => None,
    });
    assert_eq!(taken, Some((run, gib(8))));
    desk.memory_returned(run);
    assert!(desk.started().is_some());
}

#[test]
fn a_pinned_model_stays_and_the_refusal_names_it() {
    let mut desk = Desk::tuned(&[10], &[8, 8], |id, spec| spec.pinned = id == 0);
    desk.loaded(0);
    desk.ask(1);
    desk.surveyed(1);
    let refusal = desk.refusals()[0].clone();
    assert_eq!(refusal.kind, RequestRefusalKind::NoRoom);
    assert!(refusal.reason.to_string().contains("the pinned model m0 holds"), "{}", refusal.reason);
    assert_eq!(desk.state(0), ModelState::Ready);
    assert_eq!(desk.state(1), ModelState::Unloaded);
    assert_eq!(desk.view(1).last_failure, Some(refusal.reason));
}

#[test]
fn strangers_on_a_card_count() {
    let mut desk = Desk::new(&[10], &[8]);
    desk.read(vec![(CardId::new("card0"), gib(7))]);
    desk.ask(0);
    desk.surveyed(0);
    let refusal = desk.refusals()[0].clone();
    assert_eq!(refusal.kind, RequestRefusalKind::NoRoom);
    assert!(refusal.reason.to_string().contains("other processes hold 3072 MiB"));
    desk.read(vec![(CardId::new("card0"), gib(9))]);
    desk.ask(0);
    desk.surveyed(0);
    assert!(desk.started().is_some());
}

#[test]
fn a_model_of_unknown_need_runs_alone_until_it_is_measured() {
    let mut desk = Desk::new(&[20], &[0, 8]);
    desk.unknown_need(0);
    let request = desk.ask(0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.ready(run);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.started(), None);
    desk.send(SchedulerEvent::Measured { run, used: vec![(CardId::new("card0"), gib(6))] });
    assert!(desk.started().is_some());
    desk.finish(request);
    let claim = desk.view(0).claim[0].bytes;
    assert!(claim >= gib(6) && claim < gib(7), "{claim}");
}

// docker model-runner #334: eviction and load hang when a card reads as 0 MB.
#[test]
fn a_card_that_reads_as_nothing_is_refused_and_not_waited_for() {
    let mut desk = Desk::new(&[0], &[0]);
    desk.unknown_need(0);
    desk.ask(0);
    desk.surveyed(0);
    assert!(desk.refusals()[0].reason.to_string().contains("no memory for models"));
}

#[test]
fn a_model_is_spread_only_where_one_card_cannot_hold_it() {
    let mut desk = Desk::new(&[10, 10], &[8, 16]);
    let small = desk.loaded(0);
    assert_eq!(desk.view(0).claim.len(), 1);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped(), graceful(small));
    desk.gone(small);
    let shares: Vec<Bytes> = desk.view(1).claim.iter().map(|share| share.bytes).collect();
    assert_eq!(shares, [gib(8), gib(8)]);
}

#[test]
fn an_idle_model_goes_after_its_ttl_and_a_busy_one_does_not() {
    let ttl = std::time::Duration::from_secs(30);
    let mut desk = Desk::tuned(&[10], &[8], |_, spec| spec.ttl = Some(ttl));
    let run = desk.loaded(0);
    let request = desk.ask(0);
    desk.pass(100);
    assert_eq!(desk.stopped(), []);
    desk.finish(request);
    desk.pass(29);
    assert_eq!(desk.stopped(), []);
    desk.pass(1);
    assert_eq!(desk.stopped(), graceful(run));
}

// llama-swap #946: a request during the unload for idleness hangs for ever.
#[test]
fn a_request_that_meets_an_unload_for_idleness_is_served_after_the_next_load() {
    let ttl = std::time::Duration::from_secs(30);
    let mut desk = Desk::tuned(&[10], &[8], |_, spec| spec.ttl = Some(ttl));
    let run = desk.loaded(0);
    desk.pass(30);
    let request = desk.ask(0);
    desk.ended(run);
    assert_eq!(desk.surveys(), 1);
    desk.memory_returned(run);
    desk.surveyed(0);
    let next = desk.started().unwrap();
    desk.ready(next);
    assert_eq!(desk.dispatched(), [request]);
}

// llama-swap: a model that was started without a request is unloaded at the first tick.
#[test]
fn the_ttl_of_a_model_that_was_loaded_without_a_request_counts_from_ready() {
    let ttl = std::time::Duration::from_secs(30);
    let mut desk = Desk::tuned(&[10], &[8], |_, spec| spec.ttl = Some(ttl));
    desk.pass(1000);
    desk.send(SchedulerEvent::LoadWanted { model: ModelId(0) });
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.ready(run);
    desk.pass(29);
    assert_eq!(desk.state(0), ModelState::Ready);
    desk.pass(1);
    assert_eq!(desk.state(0), ModelState::Stopping);
}

#[test]
fn memory_freed_by_a_younger_model_is_offered_to_the_older_one_at_once() {
    let only_first = |id: u32, spec: &mut plimsoll_scheduler::ModelSpec| {
        if id == 3 {
            spec.allowed = vec![CardId::new("card0")];
        }
    };
    let mut desk = Desk::tuned(&[20, 20], &[9, 8, 24, 20], only_first);
    let (first, second) = (desk.loaded(0), desk.loaded(1));
    desk.ask(3);
    desk.ask(2);
    desk.surveyed(2);
    assert_eq!(desk.stopped(), graceful(first));
    desk.surveyed(3);
    assert_eq!(desk.stopped(), []);
    desk.read(vec![(CardId::new("card1"), gib(2))]);
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::NoRoom);
    assert_eq!(desk.stopped(), graceful(second));
}

/// The models whose files the last event let the driver read.
fn read_ahead(desk: &Desk) -> Vec<u32> {
    let read = desk.effects.iter().filter_map(|effect| match effect {
        SchedulerEffect::ReadAhead { model } => Some(model.0),
        _ => None,
    });
    read.collect()
}

#[test]
fn the_files_of_a_model_that_waits_for_others_are_read_once() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.loaded(0);
    let busy = desk.ask(0);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!((read_ahead(&desk), desk.stopped().len()), (vec![1], 0));
    desk.pass(PATIENCE);
    desk.finish(busy);
    assert_eq!((read_ahead(&desk), desk.stopped()[0].0), (vec![], run));
    desk.gone(run);
    assert!(desk.started().is_some() && read_ahead(&desk).is_empty());
}

#[test]
fn no_file_is_read_beside_a_load_or_where_page_cache_obstructs_loads() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    desk.ask(0);
    desk.surveyed(0);
    let loading = desk.started().unwrap();
    desk.ask(1);
    desk.surveyed(1);
    assert!(read_ahead(&desk).is_empty());
    desk.ready(loading);
    assert_eq!(read_ahead(&desk), vec![1], "the load is over, and its request is served");

    let mut desk = Desk::largest_first(&[10], &[8, 8], |_, _| {});
    desk.loaded(0);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!((read_ahead(&desk), desk.stopped().len()), (vec![], 1));
}
