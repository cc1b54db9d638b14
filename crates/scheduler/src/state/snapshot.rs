//! Copies the state of models and cards, for `/running`, `/models` and status displays.

use std::time::Duration;

use plimsoll_base::{Bytes, CardId, Reason, RunId, Share, Slots};
use serde::Serialize;

use super::StateRef;
use crate::effect::ModelState;
use crate::load_check::LoadCheck;
use crate::models::ModelSlot;
use crate::place::{Account, Ledger};
use crate::slope::ObservedGrowth;
use crate::time::{ModelId, Moment};

/// All models and cards at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SchedulerSnapshot {
    pub now: Moment,
    pub models: Vec<ModelView>,
    pub cards: Vec<CardView>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelView {
    pub id: ModelId,
    pub name: String,
    pub state: ModelState,
    pub pinned: bool,
    /// End of a pin that an operator limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_until: Option<Moment>,
    pub run: Option<RunId>,
    pub in_flight: u32,
    pub queued: usize,
    /// An operator's load of it, or the replacement of its run, is under way.
    #[serde(skip)]
    pub load_wanted: bool,
    /// Time at which a request was sent to the model, or ended, last; None before the first.
    pub last_used: Option<Moment>,
    /// Time since which a loaded run has had no request; None for one that has, or that loads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Moment>,
    /// Time until which the run counts as busy between two requests; None if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "held_until")]
    pub kept_until: Option<Moment>,
    /// Time at which the run ends if no more requests come; of a busy one, if it became idle now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_end: Option<Moment>,
    /// Memory that the run may take.
    pub claim: Vec<Share>,
    /// The claim is a whole card, because the need is unknown.
    pub alone: bool,
    /// Memory that it was last measured to take.
    pub measured: Vec<Share>,
    /// Added to the demand on every card, because runs ran out of memory or took more than planned.
    pub learned: Bytes,
    /// Observed growth per token; None until two answers of different depth gave it.
    pub growth: Option<ObservedGrowth>,
    /// Depth of the run, if depth costs memory.
    pub depth: Option<DepthView>,
    /// Reason why depth is not tracked.
    pub depth_unwatched: Option<String>,
    /// Requests whose prompt was longer than the context.
    pub overflows: u64,
    /// Time for which loads are held back after crashes; None when they are not.
    #[serde(rename = "held_back")]
    pub deferred: Option<Duration>,
    pub last_failure: Option<Reason>,
    /// Difference between claim and memory taken, for each card after the load.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub load_check: Vec<LoadCheck>,
}

/// The depth of a run, in tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DepthView {
    /// Tokens that it has reached, or may reach with its requests.
    pub admitted: u64,
    /// Tokens that its claim covers.
    pub covered: u64,
    /// Tokens at most.
    pub full: u64,
    /// Division of the depth among slots.
    pub slots: Slots,
    /// Memory for the admitted depth.
    pub needs: Vec<Share>,
    /// Memory that it could give up while other models wait.
    pub spare: Vec<Share>,
    /// Memory that each token of depth adds, as planned or as observed.
    pub bytes_per_token: Bytes,
    /// The next request waits for more memory.
    pub waits: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardView {
    pub id: CardId,
    pub name: String,
    pub total: Bytes,
    /// Memory for all claims together: less reserve and foreign processes, at most the budget.
    pub capacity: Bytes,
    pub claimed: Bytes,
    /// Capacity that no run claims.
    pub free: Bytes,
    /// Used by other processes.
    pub foreign: Bytes,
    /// Memory that an operator keeps free for other processes.
    #[serde(rename = "yield", skip_serializing_if = "Option::is_none")]
    pub yielded: Option<YieldView>,
    pub holders: Vec<HolderView>,
}

/// Memory of a card that an operator keeps free for other processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct YieldView {
    pub bytes: Bytes,
    /// Claims of models that still lie within it.
    pub lacks: Bytes,
    /// The end; None for none.
    pub until: Option<Moment>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HolderView {
    pub run: RunId,
    pub model: String,
    pub claim: Bytes,
    pub measured: Option<Bytes>,
}

impl StateRef<'_> {
    /// A snapshot of all models and cards.
    pub fn snapshot(self) -> SchedulerSnapshot {
        let models = self.models.iter();
        SchedulerSnapshot {
            now: self.now,
            models: models.map(|(id, slot)| self.model_view(id, slot)).collect(),
            cards: self.ledger.accounts().iter().map(card_view).collect(),
        }
    }

    /// One model's part of the snapshot.
    pub(crate) fn model_view(self, id: ModelId, slot: &ModelSlot) -> ModelView {
        let run = slot.run.as_ref();
        let shares =
            |of: fn(&Ledger, RunId) -> Vec<Share>| run.map_or(Vec::new(), |run| of(self.ledger, run.id));
        ModelView {
            id,
            name: slot.name.to_string(),
            state: slot.state(),
            pinned: slot.is_pinned(),
            pinned_until: slot.pinned_until.filter(|until| *until != Moment::NEVER),
            run: run.map(|run| run.id),
            in_flight: run.map_or(0, |run| run.in_flight()),
            queued: slot.line.len(),
            load_wanted: slot.load_wanted.is_some(),
            last_used: slot.last_used,
            idle_since: slot.unused_since(),
            idle_end: slot.run_end_if_idle(self.now),
            kept_until: run
                .filter(|run| run.is_idle())
                .and_then(|_| self.kept_until(slot, self.all_wait()))
                .filter(|until| *until > self.now),
            claim: shares(Ledger::claim_shares),
            alone: run.is_some_and(|run| run.placement.alone),
            measured: shares(Ledger::measured_shares),
            learned: slot.record.learned().total(),
            growth: slot.record.growth.learned(),
            depth: self.depth_view(slot),
            // Shown, because a model that is not tracked may run out of memory on a deep request.
            depth_unwatched: run.and_then(|run| run.depth_unwatched.clone()),
            overflows: slot.overflows,
            deferred: slot.record.deferred(self.now),
            last_failure: slot.record.last_failure.clone(),
            load_check: run.map_or(Vec::new(), |run| run.load_check.clone()),
        }
    }

    fn depth_view(self, slot: &ModelSlot) -> Option<DepthView> {
        let (run, occupancy) = slot.tracked()?;
        let full = occupancy.slots().full;
        Some(DepthView {
            admitted: occupancy.admitted(),
            // A claim may cover more than the context: it includes memory that was learned.
            covered: self.covers(run.id, occupancy).unwrap_or(0).min(full),
            full,
            slots: *occupancy.slots(),
            needs: occupancy.needs(occupancy.admitted()),
            spare: self.slack(slot),
            bytes_per_token: occupancy.curve().bytes_per_token(),
            waits: slot.depth_wait().is_some(),
        })
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
        yielded: account.kept().map(|kept| YieldView {
            bytes: kept.bytes,
            lacks: account.overdrawn(),
            until: Some(kept.until).filter(|until| *until != Moment::NEVER),
        }),
        holders: holders.collect(),
    }
}
