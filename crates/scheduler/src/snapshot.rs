//! What the scheduler shows: for `/running`, `/models` and the screens.

use std::time::Duration;

use plimsoll_base::{Bytes, CardId, Reason, RunId, Share, Slots};
use serde::Serialize;

use super::effect::State;
use super::growth::Growth;
use super::model::Model;
use super::moment::{ModelId, Moment};
use super::scheduler::Scheduler;
use crate::place::{Account, Ledger};

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    pub now: Moment,
    pub models: Vec<ModelView>,
    pub cards: Vec<CardView>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelView {
    pub id: ModelId,
    pub name: String,
    pub state: State,
    pub pinned: bool,
    pub run: Option<RunId>,
    pub in_flight: u32,
    pub queued: usize,
    /// When a request last came or went; None before the first.
    pub last_used: Option<Moment>,
    /// What the run may take.
    pub claim: Vec<Share>,
    /// The claim is a whole card, because what the run needs is not known.
    pub alone: bool,
    /// What it was last seen to take.
    pub measured: Vec<Share>,
    /// Added to the demand on every card, because memory ran out before.
    pub learned: Bytes,
    /// What a token of depth was seen to add; None until two answers of different depth have shown it.
    pub growth: Option<Growth>,
    /// How deep the run is, where that costs anything.
    pub depth: Option<DepthView>,
    /// Why depth is not watched.
    pub depth_unwatched: Option<String>,
    /// Requests whose prompt was longer than the context.
    pub overflows: u64,
    /// How long loads are held back after crashes; None when they are not.
    pub held_back: Option<Duration>,
    pub last_failure: Option<Reason>,
}

/// The depth of a run, in tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DepthView {
    /// What it has reached, or may reach with the requests that it has.
    pub admitted: u64,
    /// What its claim covers.
    pub covered: u64,
    /// The deepest that it can get.
    pub full: u64,
    /// How its slots share that.
    pub slots: Slots,
    /// What it needs for what is admitted.
    pub needs: Vec<Share>,
    /// What it could give up while others wait.
    pub spare: Vec<Share>,
    /// What a token of depth adds, as planned or as it was seen.
    pub bytes_per_token: Bytes,
    /// The next request waits for more memory.
    pub waits: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardView {
    pub id: CardId,
    pub name: String,
    pub total: Bytes,
    /// What all claims together may take: budget, reserve and strangers taken into account.
    pub capacity: Bytes,
    pub claimed: Bytes,
    /// Capacity that nobody claims.
    pub free: Bytes,
    /// Used by processes that are not ours.
    pub foreign: Bytes,
    pub holders: Vec<HolderView>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HolderView {
    pub run: RunId,
    pub model: String,
    pub claim: Bytes,
    pub measured: Option<Bytes>,
}

impl Scheduler {
    /// Returns what is going on.
    pub fn snapshot(&self, now: Moment) -> Snapshot {
        let models = (0_u32..).zip(&self.models);
        Snapshot {
            now,
            models: models
                .filter_map(|(id, model)| Some(self.model_view(ModelId(id), model.as_ref()?, now)))
                .collect(),
            cards: self.ledger.accounts().iter().map(card_view).collect(),
        }
    }

    /// Returns one model's part of the snapshot.
    pub fn view(&self, id: ModelId, now: Moment) -> Option<ModelView> {
        Some(self.model_view(id, self.model(id)?, now))
    }

    fn model_view(&self, id: ModelId, model: &Model, now: Moment) -> ModelView {
        let run = model.run.as_ref();
        let shares =
            |of: fn(&Ledger, RunId) -> Vec<Share>| run.map_or(Vec::new(), |run| of(&self.ledger, run.id));
        ModelView {
            id,
            name: model.name.to_string(),
            state: model.state(),
            pinned: model.spec.pinned,
            run: run.map(|run| run.id),
            in_flight: run.map_or(0, |run| run.in_flight),
            queued: model.queue.len(),
            last_used: model.last_used,
            claim: shares(Ledger::claim_shares),
            alone: run.is_some_and(|run| run.placement.alone),
            measured: shares(Ledger::measured_shares),
            learned: model.record.learned,
            growth: model.record.slope.learned(),
            depth: self.depth_view(model),
            depth_unwatched: run.and_then(|run| run.occupancy.as_ref().err().cloned()),
            overflows: model.overflows,
            held_back: model.record.held_back(now),
            last_failure: model.record.last_failure.clone(),
        }
    }
}

impl Scheduler {
    fn depth_view(&self, model: &Model) -> Option<DepthView> {
        let (run, occupancy) = model.watched()?;
        let full = occupancy.slots().full;
        Some(DepthView {
            admitted: occupancy.admitted(),
            covered: self.covers(run.id, occupancy).unwrap_or(0).min(full),
            full,
            slots: *occupancy.slots(),
            needs: occupancy.needs(occupancy.admitted()),
            spare: self.slack(model),
            bytes_per_token: occupancy.curve().bytes_per_token(),
            waits: model.deep.is_some(),
        })
    }

    /// True where it matters how many tokens an answer of the run had.
    pub fn watches(&self, run: RunId) -> bool {
        let model = self.living.get(&run).and_then(|model| self.model(*model));
        model.is_some_and(|model| model.watched().is_some())
    }
}

fn card_view(account: &Account) -> CardView {
    let holders = account.claims().iter().map(|claim| HolderView {
        run: claim.run,
        model: claim.holder.to_string(),
        claim: claim.bytes,
        measured: claim.measured,
    });
    CardView {
        id: account.card().id.clone(),
        name: account.card().name.clone(),
        total: account.card().total,
        capacity: account.capacity(),
        claimed: account.claimed(),
        free: account.free(),
        foreign: account.foreign(),
        holders: holders.collect(),
    }
}
