//! Computes the part of an engine's granted memory that no admitted request can use.
//!
//! While another model waits for memory, the slack may be taken, unless the engine has queued requests.

use plimsoll_base::{Bytes, Order, RunId, Share};

use super::StateRef;
use crate::models::ModelSlot;
use crate::place::Ledger;
use crate::time::ModelId;

impl StateRef<'_> {
    /// Memory that the model's run could give up now.
    pub(crate) fn slack(self, slot: &ModelSlot) -> Vec<Share> {
        // Each claim then counts only as the memory that its admitted requests need, or as the measured
        // memory if that is larger.
        if let Some(run) = slot.run.as_ref().filter(|run| run.is_asleep() && slot.line.is_empty()) {
            return self.unheld(run.id);
        }
        let Some((run, occupancy)) = slot.tracked() else { return Vec::new() };
        if !run.takes_requests() || !slot.line.is_empty() {
            return Vec::new();
        }
        let measured = self.ledger.measured_shares(run.id);
        let slack = occupancy.needs(occupancy.admitted()).into_iter().map(|need| {
            let occupied = self.occupied_by(run.id, &need.card);
            let seen = measured.iter().find(|share| share.card == need.card);
            // A pool never shrinks, so that measured memory is needed even if no request of that depth is
            // left.
            let floor = need.bytes.max(seen.map_or(Bytes::ZERO, |share| share.bytes));
            Share::new(need.card, occupied.saturating_sub(floor))
        });
        slack.filter(|share| !share.bytes.is_zero()).collect()
    }

    /// The part of a sleeping run's claims that it was measured not to hold. In some containers the driver
    /// lists no processes: a reading of zero measures nothing.
    fn unheld(self, run: RunId) -> Vec<Share> {
        let measured = self.ledger.measured_shares(run).into_iter().filter(|share| !share.bytes.is_zero());
        let unheld = measured.map(|share| {
            let occupied = self.occupied_by(run, &share.card);
            Share::new(share.card, occupied.saturating_sub(share.bytes))
        });
        unheld.filter(|share| !share.bytes.is_zero()).collect()
    }

    /// Slack of all runs but that of `except`; the least recently used first.
    pub(crate) fn all_slack(self, except: Option<ModelId>) -> Vec<(RunId, Share)> {
        let mut all: Vec<(u64, RunId, Share)> = self
            .models
            .running()
            .filter(|(id, ..)| Some(*id) != except)
            .flat_map(|(_, slot, run)| {
                let slack = self.slack(slot);
                slack.into_iter().map(|share| (run.stamp, run.id, share))
            })
            .collect();
        // A run that was used lately will probably need its full depth again.
        all.order_by_key(|(stamp, run, _)| (*stamp, *run));
        all.into_iter().map(|(_, run, share)| (run, share)).collect()
    }

    /// This ledger as it would be without any slack; `None` if it has none.
    pub(crate) fn without_slack(self, ledger: &Ledger) -> Option<Ledger> {
        let slack = self.all_slack(None);
        let mut ledger = (!slack.is_empty()).then(|| ledger.clone())?;
        for (run, share) in slack {
            let occupied = self.occupied_by(run, &share.card);
            ledger.shrink(run, &share.card, occupied.saturating_sub(share.bytes));
        }
        Some(ledger)
    }
}
