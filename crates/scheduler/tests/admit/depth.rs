//! Tests of requests to engines whose memory grows with depth (tokens in use), one decision at a time.

use plimsoll_base::{Bytes, Card, CardId, Curve, MemoryModel, Reason, Slots};
use plimsoll_scheduler::{
    ModelId, RequestDepth, RequestId, RequestRefusalKind, RunId, SchedulerEffect, SchedulerEvent,
};

use crate::runner::admit::desk::{Desk, PATIENCE, gib};

/// So many GiB when loaded, and one more for each 100 tokens up to 1000.
#[derive(Debug)]
struct Growing {
    loaded: u64,
    slots: u64,
    /// It is let in with what it takes when loaded.
    lean: bool,
}

impl MemoryModel for Growing {
    fn on(&self, cards: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason> {
        let depth = if self.lean { 0 } else { u64::MAX };
        let shares = self.curve(cards).unwrap().at(depth).into_iter();
        Ok(shares.map(|share| (share.card, share.bytes)).collect())
    }

    fn curve(&self, cards: &[Card]) -> Result<Curve, String> {
        let slots = Slots {
            count: self.slots,
            each: 1000,
            full: 1000,
            unified: true,
            keeps: true,
            scatter: 0,
            answer: None,
        };
        let steps = (0..=10).map(|n| (n * 100, vec![gib(self.loaded + n)])).collect();
        let cards = cards.iter().map(|card| card.id.clone()).collect();
        Curve::new(slots, cards, steps).ok_or_else(|| "no curve".to_owned())
    }
}

/// A card of `total`, `m0` that grows from 4 to 14 GiB and is let in with 4, and `m1` that needs so much.
fn lean(total: u64, slots: u64, other: u64) -> (Desk, RunId) {
    let mut desk = Desk::new(&[total], &[0, other]);
    desk.grows(0, Growing { loaded: 4, slots, lean: true });
    let run = load(&mut desk);
    (desk, run)
}

/// A card of 16 GiB, `m0` that is let in with all that it may grow to, 14 GiB, and `m1` that needs so much.
fn sated(other: u64) -> (Desk, RunId) {
    let mut desk = Desk::new(&[16], &[0, other]);
    desk.grows(0, Growing { loaded: 4, slots: 1, lean: false });
    let run = load(&mut desk);
    (desk, run)
}

/// Brings `m0` to ready, by a request that leaves the cache alone.
fn load(desk: &mut Desk) -> RunId {
    let request = desk.ask(0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.ready(run);
    sound(desk, request, run, RequestDepth::NOTHING);
    assert_eq!(desk.dispatched(), [request]);
    desk.finish(request);
    run
}

fn sound(desk: &mut Desk, request: RequestId, run: RunId, depth: RequestDepth) {
    desk.send(SchedulerEvent::DepthMeasured { request, run, depth: Some(depth) });
}

fn depth(tokens: u64, exact: bool) -> RequestDepth {
    RequestDepth { prompt: Some(tokens), answer: Some(0), answers: 1, exact }
}

/// Asks `m0` with a prompt of these tokens, and whatever has to be counted.
fn dive(desk: &mut Desk, run: RunId, tokens: u64) -> RequestId {
    let request = desk.ask(0);
    assert_eq!(desk.soundings(), [(request, false)]);
    sound(desk, request, run, depth(tokens, true));
    request
}

fn ends(desk: &mut Desk, request: RequestId, tokens: u64) {
    desk.send(SchedulerEvent::Finished { request, tokens: Some(tokens), failed: false });
}

fn claim(desk: &Desk) -> Bytes {
    desk.view(0).claim.iter().map(|share| share.bytes).sum()
}

#[test]
fn a_bound_that_is_covered_needs_no_count_and_one_that_is_not_is_counted() {
    let (mut desk, run) = lean(9, 4, 1);
    let first = desk.ask(0);
    sound(&mut desk, first, run, depth(0, false));
    assert_eq!(desk.dispatched(), [first]);
    let second = desk.ask(0);
    sound(&mut desk, second, run, depth(900, false));
    assert_eq!(desk.soundings(), [(second, true)], "the engine counts");
    let line = desk.scheduler.at(desk.now).wait_line(ModelId(0));
    assert_eq!(line.as_deref(), Some("waiting for the count of the tokens of the next request for m0"));
    assert_eq!(desk.scheduler.wait_cause(ModelId(0)), Some("check"));
    sound(&mut desk, second, run, depth(200, true));
    assert_eq!(desk.dispatched(), [second]);
    assert_eq!(claim(&desk), gib(6), "the claim is raised just so far");
    let reported = desk.effects.iter().position(
        |effect| matches!(effect, SchedulerEffect::ClaimChanged { share, .. } if share.bytes == gib(6)),
    );
    let sent = desk.effects.iter().position(|effect| matches!(effect, SchedulerEffect::Dispatch { .. }));
    assert!(reported.is_some() && reported < sent, "{:?}", desk.effects);
}

#[test]
fn an_engine_that_does_not_count_is_asked_once_and_the_bound_stands() {
    let (mut desk, run) = lean(9, 4, 1);
    let request = desk.ask(0);
    sound(&mut desk, request, run, depth(300, false));
    assert_eq!(desk.soundings(), [(request, true)]);
    desk.send(SchedulerEvent::DepthMeasured { request, run, depth: None });
    assert_eq!(desk.dispatched(), [request]);
    assert_eq!(claim(&desk), gib(7));
}

#[test]
fn a_request_beyond_the_card_waits_for_others_and_is_not_overtaken() {
    let (mut desk, run) = lean(9, 2, 1);
    let first = dive(&mut desk, run, 400);
    assert_eq!(desk.dispatched(), [first]);
    let second = dive(&mut desk, run, 300);
    assert_eq!(desk.dispatched(), []);
    assert!(desk.view(0).depth.unwrap().waits);
    let third = dive(&mut desk, run, 1);
    assert_eq!(desk.dispatched(), [], "it is small, but the second was first");
    ends(&mut desk, first, 150);
    assert_eq!(desk.dispatched(), [second, third]);
    assert_eq!(claim(&desk), gib(9));
}

#[test]
fn requests_without_kv_pass_those_that_wait() {
    let (mut desk, run) = lean(9, 2, 1);
    let first = dive(&mut desk, run, 400);
    dive(&mut desk, run, 300);
    let third = desk.ask(0);
    sound(&mut desk, third, run, RequestDepth::NOTHING);
    assert_eq!(desk.dispatched(), [third]);
    ends(&mut desk, first, 400);
}

#[test]
fn a_depth_that_the_card_can_never_give_is_refused_at_once_with_the_arithmetic() {
    let (mut desk, run) = lean(9, 2, 1);
    let request = dive(&mut desk, run, 700);
    assert_eq!(desk.dispatched(), []);
    let refusals = desk.refusals();
    let refusal = refusals[0];
    assert_eq!((refusal.kind, refusal.retry_after), (RequestRefusalKind::TooDeep, None));
    let tree = serde_json::to_value(&refusal.reason).unwrap();
    assert_eq!(tree["facts"]["depth"], 700);
    assert_eq!(tree["facts"]["fits"], 500);
    let card = &tree["because"][1]["facts"];
    assert_eq!(card["need"], gib(11).get());
    assert_eq!((card["loaded"].as_u64(), card["growth"].as_u64()), (Some(gib(4).get()), Some(gib(7).get())));
    assert_eq!(card["available"], gib(9).get());
    assert!(refusal.hints[0].to_string().contains("within 500 tokens"), "{:?}", refusal.hints);
    assert_eq!(desk.view(0).queued, 0);
    let next = dive(&mut desk, run, 100);
    assert_eq!(desk.dispatched(), [next], "{request:?} held nobody up");
}

#[test]
fn an_idle_neighbour_goes_for_a_depth_at_once_and_a_busy_one_after_the_patience() {
    let (mut desk, run) = lean(9, 2, 4);
    let neighbour = desk.loaded(1);
    let request = dive(&mut desk, run, 300);
    assert_eq!(desk.stopped().len(), 1);
    let why = desk.scheduler.at(desk.now).stop_reason(neighbour).unwrap();
    assert_eq!(why.code, "makes_room");
    assert!(why.text.contains("m0 needs 3 GiB more") || why.text.contains("3072 MiB"), "{}", why.text);
    desk.ended(neighbour);
    desk.memory_returned(neighbour);
    assert_eq!(desk.dispatched(), [request]);

    let (mut desk, run) = lean(9, 2, 4);
    let neighbour = desk.loaded(1);
    let busy = desk.ask(1);
    assert_eq!(desk.dispatched(), [busy]);
    let request = dive(&mut desk, run, 300);
    assert!(desk.stopped().is_empty());
    desk.pass(PATIENCE);
    assert!(desk.stopped().is_empty(), "it drains");
    desk.finish(busy);
    assert_eq!(desk.stopped().len(), 1);
    desk.gone(neighbour);
    assert_eq!(desk.dispatched(), [request]);
}

#[test]
fn a_newcomer_gets_what_others_hold_beyond_their_need_before_anybody_is_stopped() {
    let (mut desk, run) = sated(5);
    assert_eq!(claim(&desk), gib(14));
    let dived = dive(&mut desk, run, 300);
    assert_eq!(desk.dispatched(), [dived]);
    desk.ask(1);
    desk.surveyed(1);
    let newcomer = desk.started().expect("it starts beside a busy model");
    assert_eq!(claim(&desk), gib(11), "as much as lacked, and no more");
    assert!(desk.stopped().is_empty());
    desk.ready(newcomer);
    let view = desk.view(0).depth.unwrap();
    assert_eq!((view.admitted, view.covered), (300, 700));
    ends(&mut desk, dived, 300);
    let covered = dive(&mut desk, run, 700);
    assert_eq!(desk.dispatched(), [covered]);
}

#[test]
fn a_claim_is_never_lowered_below_what_was_measured_and_what_was_reached_stays() {
    let (mut desk, run) = sated(9);
    let dived = dive(&mut desk, run, 300);
    ends(&mut desk, dived, 250);
    assert_eq!(desk.view(0).depth.unwrap().spare[0].bytes, gib(7));
    let used = vec![(CardId::new("card0"), gib(6))];
    desk.send(SchedulerEvent::Measured { run, used });
    assert_eq!(desk.view(0).depth.unwrap().spare[0].bytes, gib(7), "less than may have been reached");
    let used = vec![(CardId::new("card0"), gib(8))];
    desk.send(SchedulerEvent::Measured { run, used });
    let depth = desk.view(0).depth.unwrap();
    assert_eq!(depth.spare[0].bytes, gib(6));
    assert_eq!(depth.needs[0].bytes, gib(8), "the curve lacks a gibibyte at every depth");
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.started(), None, "9 GiB are not to be had beside 8");
    assert_eq!(desk.stopped().len(), 1, "it is idle");
}

#[test]
fn kept_tokens_end_with_a_new_engine_where_nothing_else_makes_room() {
    let (mut desk, run) = lean(9, 2, 1);
    for tokens in [300, 200] {
        let request = dive(&mut desk, run, tokens);
        assert_eq!(desk.dispatched(), [request]);
        ends(&mut desk, request, tokens);
    }
    let deep = dive(&mut desk, run, 400);
    assert_eq!(desk.stopped().len(), 1, "300 and 400 are more than 500");
    let why = desk.scheduler.at(desk.now).stop_reason(run).unwrap();
    assert_eq!(why.code, "starts_afresh");
    desk.ended(run);
    desk.memory_returned(run);
    desk.surveyed(0);
    let fresh = desk.started().unwrap();
    desk.ready(fresh);
    assert_eq!(desk.dispatched(), [deep]);
    assert_eq!(claim(&desk), gib(8));
}

#[test]
fn a_request_that_gives_up_lets_the_next_one_go() {
    let (mut desk, run) = lean(9, 2, 1);
    let first = dive(&mut desk, run, 400);
    let second = dive(&mut desk, run, 300);
    let third = dive(&mut desk, run, 1);
    desk.send(SchedulerEvent::Abandoned { request: second });
    assert_eq!(desk.dispatched(), [third]);
    ends(&mut desk, first, 400);
    ends(&mut desk, third, 1);
}

#[test]
fn nobody_is_refused_before_it_is_counted_whoever_stood_before_it() {
    let (mut desk, run) = lean(9, 2, 1);
    let first = dive(&mut desk, run, 400);
    let second = dive(&mut desk, run, 300);
    assert!(desk.view(0).depth.unwrap().waits);
    let third = desk.ask(0);
    sound(&mut desk, third, run, depth(900, false));
    ends(&mut desk, first, 50);
    assert_eq!(desk.dispatched(), [second], "what the first left behind is within the claim");
    assert!(desk.refusals().is_empty(), "900 is only a bound");
    assert!(!desk.view(0).depth.unwrap().waits, "the second, which waited, is gone");
    assert_eq!(desk.soundings(), [(third, true)]);
    sound(&mut desk, third, run, depth(50, true));
    assert_eq!(desk.dispatched(), [third]);
}

#[test]
fn a_model_whose_depth_nobody_is_to_watch_is_sent_everything() {
    let mut desk = Desk::tuned(&[9], &[0], |_, spec| spec.by_depth = false);
    desk.grows(0, Growing { loaded: 4, slots: 2, lean: true });
    desk.loaded(0);
    let request = desk.ask(0);
    assert_eq!(desk.dispatched(), [request]);
    let view = desk.view(0);
    assert_eq!(
        (view.depth, view.depth_unwatched),
        (None, Some("`depth-admission = false` in its section switches this limit off".to_owned()))
    );
}

#[test]
fn a_failed_forecast_shows_until_a_request() {
    let mut desk = Desk::new(&[9], &[4]);
    let reason = Reason::new("never_fits", "it is too large");
    let model = ModelId(0);
    desk.send(SchedulerEvent::ForecastFailed { model, reason: reason.clone() });
    assert_eq!(desk.view(0).last_failure, Some(reason.clone()));
    assert_eq!(desk.state(0), plimsoll_scheduler::ModelState::Failed);
    desk.loaded(0);
    assert_eq!(desk.state(0), plimsoll_scheduler::ModelState::Ready);
    desk.send(SchedulerEvent::ForecastFailed { model, reason });
    assert_eq!(desk.state(0), plimsoll_scheduler::ModelState::Ready);
}

#[test]
fn the_reason_of_a_wait_for_depth_names_the_models_that_hold_the_memory_up_to_its_refusal() {
    let reported = |desk: &Desk| desk.scheduler.state().wait_reason(ModelId(0)).unwrap().1.to_string();
    let (mut desk, run) = lean(10, 1, 3);
    desk.loaded(1);
    desk.ask(1);
    let request = desk.ask_until(0, 30);
    assert_eq!(reported(&desk), "the tokens of the next request are being counted");
    sound(&mut desk, request, run, depth(500, true));
    let waits = "the next request needs more memory than the model has now, and waits for memory that other \
                 models hold\n  m1 holds 3072 MiB on card0";
    assert_eq!(reported(&desk), waits);
    desk.pass(PATIENCE);
    assert_eq!(reported(&desk), waits, "it was chosen");
    desk.pass(30 - PATIENCE);
    assert_eq!(desk.refusals()[0].reason.because[0].to_string(), waits);
}

#[test]
fn a_request_that_waits_for_its_models_other_requests_says_so() {
    let (mut desk, run) = lean(9, 2, 1);
    dive(&mut desk, run, 400);
    dive(&mut desk, run, 300);
    let reason = desk.scheduler.state().wait_reason(ModelId(0)).unwrap().1;
    let waits = "the next request needs more memory than the model has now, and waits for memory that the model's other requests use";
    assert_eq!(reason.to_string(), waits);
}
