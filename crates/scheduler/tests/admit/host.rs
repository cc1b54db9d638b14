//! Tests of models that take host memory beside their cards.

use std::sync::Arc;

use plimsoll_base::{Bytes, Card, CardId, CardKind, Curve, DeclaredSize, MemoryModel, Reason, RunId};
use plimsoll_scheduler::{RequestRefusalKind, SchedulerEffect, SchedulerEvent};

use crate::runner::admit::desk::{Desk, gib};

/// A need on cards, and one on the host beside them.
#[derive(Debug)]
pub(crate) struct AlongsideHost {
    pub(crate) demand: Arc<dyn MemoryModel>,
    pub(crate) host: CardId,
    pub(crate) bytes: Bytes,
}

impl AlongsideHost {
    fn cards(&self, cards: &[Card]) -> Vec<Card> {
        cards.iter().filter(|card| card.id != self.host).cloned().collect()
    }
}

impl MemoryModel for AlongsideHost {
    fn on(&self, cards: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason> {
        let mut shares = self.demand.on(&self.cards(cards))?;
        shares.push((self.host.clone(), self.bytes));
        Ok(shares)
    }

    fn curve(&self, cards: &[Card]) -> Result<Curve, String> {
        self.demand.curve(&self.cards(cards))
    }
}

/// Cards of these sizes, a host of 40 GiB beside them, and models that take 8 GiB of a card and so much of
/// the host.
fn desk(cards: &[u64], hosts: &[u64]) -> Desk {
    let all: Vec<u64> = cards.iter().copied().chain([40]).collect();
    let mut desk = Desk::set_up(
        &all,
        &vec![8; hosts.len()],
        |_, _| {},
        |settings| {
            settings.cards.last_mut().unwrap().card.kind = CardKind::Host;
        },
    );
    for (model, bytes) in (0..).zip(hosts) {
        let demand = Arc::new(DeclaredSize(gib(8)));
        desk.grows(model, AlongsideHost { demand, host: host(cards), bytes: gib(*bytes) });
    }
    desk
}

fn host(cards: &[u64]) -> CardId {
    CardId::new(&format!("card{}", cards.len()))
}

fn claimed(desk: &Desk, card: &str, run: RunId) -> Bytes {
    desk.scheduler.ledger().account(&CardId::new(card)).unwrap().occupied_by(run)
}

#[test]
fn the_host_is_claimed_beside_the_card_and_a_model_leaves_for_its_host_memory() {
    let mut desk = desk(&[100], &[16, 16, 16]);
    let first = desk.loaded(0);
    let second = desk.loaded(1);
    assert_eq!((claimed(&desk, "card0", first), claimed(&desk, "card1", first)), (gib(8), gib(16)));
    desk.ask(2);
    desk.surveyed(2);
    // The card has 84 GiB left.
    assert_eq!(desk.stopped().iter().map(|(run, _)| *run).collect::<Vec<_>>(), [first]);
    desk.gone(first);
    let third = desk.started().unwrap();
    assert_eq!(claimed(&desk, "card1", second) + claimed(&desk, "card1", third), gib(32));
}

#[test]
fn a_need_beyond_the_host_is_refused_with_its_figures() {
    let mut desk = desk(&[100], &[50]);
    desk.ask(0);
    desk.surveyed(0);
    let refusal = desk.refusals()[0];
    assert_eq!(refusal.kind, RequestRefusalKind::NeverFits);
    let text = refusal.reason.to_string();
    assert!(text.contains("card1 has 40960 MiB available, but the model needs 51200 MiB"), "{text}");
}

#[test]
fn no_model_is_placed_on_the_host_instead_of_a_card() {
    let mut desk = desk(&[4], &[1]);
    desk.ask(0);
    desk.surveyed(0);
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::NeverFits);
}

#[test]
fn growth_on_the_host_is_claimed_there_and_learned_for_no_card() {
    let mut desk = desk(&[100], &[10, 10]);
    let run = desk.loaded(0);
    let used = vec![(CardId::new("card0"), gib(8)), (CardId::new("card1"), gib(25))];
    desk.send(SchedulerEvent::Measured { run, used });
    assert_eq!((claimed(&desk, "card1", run), desk.view(0).learned), (gib(25), Bytes::ZERO));
    // 15 GiB are left, and then 5.
    let second = desk.loaded(1);
    let used = vec![(CardId::new("card0"), gib(8)), (CardId::new("card1"), gib(3))];
    desk.send(SchedulerEvent::Measured { run: second, used });
    assert_eq!(claimed(&desk, "card1", second), gib(10), "a claim stays until it ends");
    let used = vec![(CardId::new("card0"), gib(9))];
    desk.send(SchedulerEvent::Measured { run: second, used });
    assert!(desk.view(1).learned >= gib(1));
    desk.send(SchedulerEvent::UnloadWanted { model: plimsoll_scheduler::ModelId(1) });
    desk.gone(second);
    desk.ask(1);
    desk.surveyed(1);
    let Some(SchedulerEffect::Start { placement, .. }) =
        desk.effects.iter().find(|effect| matches!(effect, SchedulerEffect::Start { .. }))
    else {
        panic!("{:?}", desk.effects);
    };
    assert!(placement.on(&CardId::new("card0")) >= gib(9));
    assert_eq!(placement.on(&CardId::new("card1")), gib(10), "what was learned on the card stays there");
}

#[test]
fn an_engine_that_runs_out_of_its_card_stops_models_on_that_card_alone() {
    let mut desk = desk(&[20, 9], &[4, 4, 4]);
    let (first, second) = (desk.loaded(0), desk.loaded(1));
    assert_eq!((claimed(&desk, "card1", first), claimed(&desk, "card0", second)), (gib(8), gib(8)));
    desk.ask(2);
    desk.surveyed(2);
    let third = desk.started().unwrap();
    assert_eq!(claimed(&desk, "card0", third), gib(8));
    desk.runs_out_of_memory(third, None);
    assert_eq!(desk.stopped().iter().map(|(run, _)| *run).collect::<Vec<_>>(), [second]);
}
