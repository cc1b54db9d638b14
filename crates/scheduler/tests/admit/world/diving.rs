//! Simulated engines whose memory grows with depth (tokens in use): their real memory, compared with what the
//! scheduler granted.
//!
//! The engine chooses the slot of a request; here the choice is pseudo-random, and idle slots keep their
//! tokens.

use plimsoll_base::{Bytes, Card, CardId, Curve, MemoryModel, Placement, Reason, Slots};
use plimsoll_scheduler::{RequestDepth, RequestId, RunId, SchedulerEvent};

use super::{Life, Where, World};
use crate::runner::admit::desk::gib;
use crate::runner::admit::script::{ANSWER, CONTEXT, Grows};

const STEPS: u64 = 50;

/// The tokens that a request of this prompt really has in the end.
pub(super) fn tokens(prompt: u64) -> u64 {
    (prompt + ANSWER / 2).min(CONTEXT)
}

/// So much when loaded, and more with depth; in equal parts on the cards it gets.
#[derive(Debug)]
pub(super) struct Grower {
    loaded: Bytes,
    grows: Grows,
}

impl Grower {
    pub(super) fn new(loaded: u64, grows: Grows) -> Self {
        Self { loaded: gib(loaded), grows }
    }

    fn at(&self, cards: &[Card]) -> Curve {
        let Grows { slots: count, unified, keeps, .. } = self.grows;
        let full = if unified { CONTEXT } else { CONTEXT * count };
        let slots = Slots { count, each: CONTEXT, full, unified, keeps, scatter: 0, answer: None };
        let parts = u64::try_from(cards.len()).unwrap().max(1);
        let step = |n| {
            let bytes = (self.loaded + gib(self.grows.gib).scaled(n, STEPS)).scaled(1, parts);
            (full * n / STEPS, vec![bytes; cards.len()])
        };
        let ids = cards.iter().map(|card| card.id.clone()).collect();
        Curve::new(slots, ids, (0..=STEPS).map(step).collect()).unwrap()
    }
}

impl MemoryModel for Grower {
    fn on(&self, cards: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason> {
        if cards.is_empty() {
            return Err(Reason::new("no_card", "no card"));
        }
        let curve = self.at(cards);
        let free = |id: &CardId| cards.iter().find(|card| card.id == *id).unwrap().free;
        let depth = if self.grows.elastic { curve.within(free).unwrap_or(0) } else { u64::MAX };
        Ok(curve.at(depth).into_iter().map(|share| (share.card, share.bytes)).collect())
    }

    fn curve(&self, cards: &[Card]) -> Result<Curve, String> {
        Ok(self.at(cards))
    }
}

/// The slots of one engine.
#[derive(Debug)]
pub(super) struct Diver {
    curve: Curve,
    slots: Vec<Slot>,
    waiting: Vec<(RequestId, u64)>,
    deepest: u64,
    turn: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    request: Option<RequestId>,
    tokens: u64,
}

impl Diver {
    pub(super) fn enter(&mut self, request: RequestId, tokens: u64) {
        self.waiting.push((request, tokens));
        self.fill();
    }

    pub(super) fn leave(&mut self, request: RequestId) {
        self.waiting.retain(|(id, _)| *id != request);
        let keeps = self.curve.slots.keeps && self.curve.slots.unified;
        for slot in &mut self.slots {
            if slot.request == Some(request) {
                slot.request = None;
                slot.tokens = if keeps { slot.tokens } else { 0 };
            }
        }
        self.fill();
    }

    fn fill(&mut self) {
        while !self.waiting.is_empty() {
            let idle: Vec<usize> =
                (0..self.slots.len()).filter(|slot| self.slots[*slot].request.is_none()).collect();
            self.turn += 7;
            let Some(slot) = idle.get(self.turn % idle.len().max(1)) else {
                break;
            };
            let (request, tokens) = self.waiting.remove(0);
            self.slots[*slot] = Slot { request: Some(request), tokens };
            self.deepest = self.deepest.max(self.depth());
        }
    }

    fn depth(&self) -> u64 {
        let Slots { unified, full, .. } = self.curve.slots;
        if unified {
            return self.slots.iter().map(|slot| slot.tokens).sum::<u64>().min(full);
        }
        let busy = || self.slots.iter().filter(|slot| slot.request.is_some());
        let most = busy().map(|slot| slot.tokens).max().unwrap_or(0);
        most * u64::try_from(busy().count()).unwrap()
    }

    pub(super) fn takes(&self, card: &CardId) -> Bytes {
        let shares = self.curve.at(self.deepest);
        shares.iter().filter(|share| share.card == *card).map(|share| share.bytes).sum()
    }
}

impl World {
    pub(super) fn diver(&self, model: u32, placement: &Placement) -> Option<Diver> {
        let need = self.need(model);
        let (grows, loaded) = (need.grows?, need.gib?);
        let cards = placement.cards().filter(|id| self.host.as_ref() != Some(id)).map(|id| {
            let account = self.scheduler.ledger().account(id).unwrap();
            account.card().clone()
        });
        let cards: Vec<Card> = cards.collect();
        let slots = usize::try_from(grows.slots).unwrap();
        Some(Diver {
            curve: Grower::new(loaded, grows).at(&cards),
            slots: vec![Slot::default(); slots],
            waiting: Vec::new(),
            deepest: 0,
            turn: 0,
        })
    }

    /// A body is looked at; or an engine counts, as long as it is there.
    pub(super) fn sounded(&mut self, request: RequestId, run: RunId, exact: bool) {
        let requested = &mut self.requested[usize::try_from(request.0).unwrap()];
        requested.counted |= exact;
        let requested = *requested;
        if !matches!(requested.place, Where::Waiting { .. }) {
            return;
        }
        let there = self.engines[&run].stage == Life::Ready;
        let prompt = if exact { requested.prompt } else { requested.prompt * 4 };
        let depth = RequestDepth { prompt: Some(prompt), answer: Some(ANSWER), answers: 1, exact };
        let depth = (there || !exact).then_some(depth);
        self.notify(SchedulerEvent::DepthMeasured { request, run, depth });
    }

    /// Every run's claim covers what its engine really takes, and the cards have as much.
    pub(super) fn check_depths(&self) {
        let ledger = self.scheduler.ledger();
        for (run, engine) in self.engines.iter().filter(|(_, engine)| !engine.buried) {
            for share in engine.placement.shares.iter().filter(|_| engine.diver.is_some()) {
                let (takes, occupied) =
                    (engine.takes(&share.card), ledger.account(&share.card).unwrap().occupied_by(*run));
                assert!(takes <= occupied, "{run:?} takes {takes} of a claim of {occupied}: {engine:?}");
            }
        }
        let snapshot = self.scheduler.at(super::moment(self.now)).snapshot();
        for model in snapshot.models {
            if let Some(depth) = model.depth {
                assert!(depth.admitted <= depth.covered, "{}: {depth:?}", model.name);
            }
        }
    }
}
