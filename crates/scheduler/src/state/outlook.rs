//! Forecasts each model for displays: its rank among the models to stop next, and the wait of its requests.

use plimsoll_base::{Order, Reason};
use serde::Serialize;

use super::StateRef;
use super::tenants::Prospect;
use crate::models::ModelSlot;
use crate::place::CardStanding;
use crate::time::{ModelId, Moment};

/// Possible next events of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelOutlook {
    /// Readiness of its run to stop for another model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standing: Option<CardStanding>,
    /// Its place, from 1, among the runs that may be stopped now: idle ones first, then those that are
    /// quickly loaded again. The set of runs that is stopped has the least cost together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaves: Option<usize>,
    /// End of its time to live, if it stays idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Moment>,
    /// The reason why its run is being stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stops: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitView>,
}

/// The wait of a model's requests, or of an operator, for the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitView {
    /// `check`, `load`, `room` or `slot`.
    pub cause: &'static str,
    pub reason: Reason,
    /// Start of the longest wait.
    pub since: Moment,
    /// The last deadline; None while an operator orders the load, too, because that has none.
    pub until: Option<Moment>,
    /// Models that stop for it.
    pub stops: Vec<String>,
}

impl StateRef<'_> {
    /// The outlook of every model, for a model that would be wanted now.
    pub fn outlook(self) -> Vec<(ModelId, ModelOutlook)> {
        // No model has this number.
        let asking = ModelId(u32::MAX);
        let (contention, case) = (self.contention_with(Some(asking)), self.swap_case(asking));
        let running = self.models.running().zip(&contention.runs);
        let prospects: Vec<(ModelId, u64, Prospect)> = running
            .map(|((id, slot, run), facts)| (id, run.stamp, self.prospect(case, facts, slot, run)))
            .collect();
        let stops = |standing| matches!(standing, CardStanding::Idle | CardStanding::Busy);
        let ready = prospects.iter().filter(|(.., prospect)| stops(prospect.standing));
        let mut ready: Vec<_> =
            ready.map(|(id, stamp, prospect)| (prospect.standing, prospect.cost, *stamp, *id)).collect();
        ready.order();
        let place = |id| ready.iter().position(|(.., other)| *other == id).map(|at| at + 1);
        let standing = |id| Some(prospects.iter().find(|(of, ..)| *of == id)?.2.standing);
        let of = |(id, slot): (ModelId, &ModelSlot)| {
            let run = slot.run.as_ref();
            let leaving = run.filter(|run| run.leaves() || run.draining.is_some());
            let outlook = ModelOutlook {
                standing: standing(id),
                leaves: place(id),
                expires: slot.idle_end(),
                stops: leaving.and_then(|run| self.stop_reason(run.id)),
                wait: self.wait_view(id, slot),
            };
            (id, outlook)
        };
        self.models.iter().map(of).collect()
    }

    fn wait_view(self, id: ModelId, slot: &ModelSlot) -> Option<WaitView> {
        let since = self.waits_since(slot);
        if since == Moment::NEVER {
            return None;
        }
        let (cause, reason) = self.wait_reason(id)?;
        let deadlines = slot.line.iter().filter_map(|id| self.queue.get(id)).map(|request| request.deadline);
        let victims = slot.victims().filter_map(|run| self.model_of(*run));
        let mut stops: Vec<String> = victims.map(|(_, slot)| slot.name.to_string()).collect();
        stops.dedup();
        let until = deadlines.max().filter(|_| slot.load_wanted.is_none());
        Some(WaitView { cause, reason, since, until, stops })
    }
}
