//! Reads the scheduler's state, for decisions and reports, without changing it.
//!
//! Functions that only read the state are methods of [`StateRef`]; only the modules in `scheduler/` change
//! it.

mod budgets;
mod depth_gate;
pub(crate) mod depth_need;
mod hold;
mod measuring;
mod obstacle;
mod outlook;
mod slack;
mod snapshot;
mod stop_reason;
mod swap;
mod tenants;
pub(crate) mod turns;
mod wait_line;
mod wait_reason;
mod what_if;

pub use outlook::{ModelOutlook, WaitView};
pub use snapshot::{CardView, DepthView, HolderView, ModelView, SchedulerSnapshot, YieldView};
pub use what_if::{WhatIf, WhatIfKeptFree, WhatIfVerdict};

pub(crate) use budgets::BudgetRequest;
pub(crate) use depth_gate::DepthGate;
pub(crate) use swap::Contention;
pub(crate) use tenants::{RoomVerdict, Tenants};

use std::collections::BTreeMap;

use plimsoll_base::{Bytes, CardId, Priority, Reason, RunId};

use super::models::{ModelSlot, ModelTable, RunState};
use super::queue::Queue;
use super::runs::Runs;
use super::spec::SchedulerSettings;
use super::time::{ModelId, Moment};
use crate::place::Ledger;

/// The scheduler's state at one moment. Its methods change nothing.
#[derive(Clone, Copy, Debug)]
pub struct StateRef<'a> {
    pub(crate) settings: &'a SchedulerSettings,
    pub(crate) models: &'a ModelTable,
    pub(crate) queue: &'a Queue,
    pub(crate) runs: &'a Runs,
    pub(crate) budgets: &'a [BudgetRequest],
    pub(crate) yielding: &'a BTreeMap<RunId, (CardId, Reason)>,
    pub(crate) ledger: &'a Ledger,
    pub(crate) now: Moment,
    pub(crate) closing: bool,
}

impl<'a> StateRef<'a> {
    pub(crate) fn model(self, id: ModelId) -> Option<&'a ModelSlot> {
        self.models.get(id)
    }

    pub(crate) fn model_of(self, run: RunId) -> Option<(ModelId, &'a ModelSlot)> {
        let id = self.runs.model_of(run)?;
        Some((id, self.models.get(id)?))
    }

    /// A run with a process, and its model.
    pub(crate) fn live(self, run: RunId) -> Option<(ModelId, &'a ModelSlot, &'a RunState)> {
        let (id, slot) = self.model_of(run)?;
        Some((id, slot, slot.run.as_ref()?))
    }

    pub(crate) fn occupied_by(self, run: RunId, card: &CardId) -> Bytes {
        let account = self.ledger.account(card);
        account.map_or(Bytes::ZERO, |account| account.occupied_by(run))
    }

    /// Runs that could be sent a request and have none.
    pub(crate) fn idle_runs(self) -> Vec<RunId> {
        let runs = self.models.running().map(|(_, _, run)| run);
        runs.filter(|run| run.is_idle()).map(|run| run.id).collect()
    }

    /// Idle runs on any of the cards that may be stopped, with their models.
    pub(crate) fn idle_on(self, cards: &[CardId]) -> Vec<(ModelId, RunId)> {
        let on_cards = |run: RunId| cards.iter().any(|card| !self.occupied_by(run, card).is_zero());
        // Pinned runs and runs with requests never make room here.
        let idle = self.models.running().filter(|(_, slot, run)| run.is_idle() && !slot.is_pinned());
        idle.map(|(id, _, run)| (id, run.id)).filter(|(_, run)| on_cards(*run)).collect()
    }

    /// True if the two models never run at once: they share a port, or the configuration keeps them apart.
    pub(crate) fn excludes(self, slot: &ModelSlot, other: ModelId) -> bool {
        self.model(other).is_some_and(|other| {
            let shares_port = slot.spec.port.is_some() && slot.spec.port == other.spec.port;
            let (own, its) = (&slot.spec.company, &other.spec.company);
            shares_port || own.excludes(&slot.name, its, &other.name)
        })
    }

    /// The other model of a run that the configuration keeps apart from this one.
    pub(crate) fn apart_from_any(self, id: ModelId, runs: &[RunId]) -> Option<&'a str> {
        let apart = self.apart_from(id);
        if apart.is_empty() {
            return None;
        }
        let run = runs.iter().find(|run| apart.contains(run))?;
        Some(&*self.model_of(*run)?.1.name)
    }

    /// The port that a model would share with a run.
    pub(crate) fn port_between(self, slot: &ModelSlot, run: RunId) -> Option<u16> {
        let port = slot.spec.port?;
        (self.live(run)?.2.port == Some(port)).then_some(port)
    }

    /// The port that a model shares with one of the runs, and the other model's name.
    pub(crate) fn on_port_of(self, slot: &ModelSlot, runs: &[RunId]) -> Option<(u16, &'a str)> {
        let found = |run: &RunId| Some((self.port_between(slot, *run)?, &*self.model_of(*run)?.1.name));
        runs.iter().find_map(found)
    }

    /// The arrival of the request that has waited for the model longest, or of the order to load it. It is
    /// not before the end of the model's last turn, after which others come first.
    pub(crate) fn waits_since(self, slot: &ModelSlot) -> Moment {
        let left = slot.left.map(|left| left.since);
        let first = [slot.line.oldest(), slot.load_wanted, left].into_iter().flatten().min();
        first.map_or(Moment::NEVER, |first| first.max(slot.turn_ended))
    }

    /// The same as [`Self::waits_since`], later by the delays of the requests' priorities and of the model's.
    pub(crate) fn counts_since(self, slot: &ModelSlot) -> Moment {
        let left = slot.left.map(|left| left.since);
        let load_order =
            slot.load_wanted.into_iter().chain(left).map(|since| since + Priority::Normal.delay());
        let first = load_order.chain(slot.line.first_counted()).min();
        first.map_or(Moment::NEVER, |since| since.max(slot.turn_ended) + slot.spec.priority.delay())
    }
}
