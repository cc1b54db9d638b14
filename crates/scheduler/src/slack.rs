//! What runs hold beyond their need.
//!
//! A claim is what a run takes at full depth, which few requests reach. While somebody waits, whatever a run holds beyond what its
//! requests may reach, and beyond what it was measured to take, counts as free, and is taken from it just as far as is needed.
//! A run whose own requests wait keeps what it has. Nothing that was admitted is ever uncovered: the floor is what
//! the run needs for all that it has let in.

use plimsoll_base::{Bytes, CardId, Placement, RunId, Share};

use super::effect::Effect;
use super::model::{Model, Phase};
use super::moment::ModelId;
use super::scheduler::Scheduler;
use crate::place::{Holds, Ledger};

impl Scheduler {
    /// What the model's run could give up now.
    pub(super) fn slack(&self, model: &Model) -> Vec<Share> {
        let Some((run, occupancy)) = model.watched() else {
            return Vec::new();
        };
        let ready = matches!(run.phase, Phase::Ready { .. }) && run.takes_requests();
        if !ready || !model.queue.is_empty() {
            return Vec::new();
        }
        let measured = self.ledger.measured_shares(run.id);
        let spare = occupancy.needs(occupancy.admitted()).into_iter().map(|need| {
            let held = self.held_by(run.id, &need.card);
            let seen = measured.iter().find(|share| share.card == need.card);
            let floor = need.bytes.max(seen.map_or(Bytes::ZERO, |share| share.bytes));
            Share::new(need.card, held.saturating_sub(floor))
        });
        spare.filter(|share| !share.bytes.is_zero()).collect()
    }

    /// Tells the owner what the run's claim on the card is now.
    pub(super) fn claimed(&mut self, run: RunId, card: &CardId) {
        let share = Share::new(card.clone(), self.held_by(run, card));
        self.emit(Effect::Claimed { run, share });
    }

    pub(super) fn held_by(&self, run: RunId, card: &CardId) -> Bytes {
        let account = self.ledger.account(card);
        account.map_or(Bytes::ZERO, |account| account.held_by(run))
    }

    /// All that is held beyond need, but by `except`; the least recently used first.
    pub(super) fn spare(&self, except: Option<ModelId>) -> Vec<(RunId, Share)> {
        let models = (0_u32..).map(ModelId).zip(&self.models);
        let mut all: Vec<(u64, RunId, Share)> = models
            .filter(|(id, _)| Some(*id) != except)
            .filter_map(|(_, model)| Some((model.as_ref()?, model.as_ref()?.run.as_ref()?)))
            .flat_map(|(model, run)| {
                let slack = self.slack(model);
                slack.into_iter().map(|share| (run.stamp, run.id, share))
            })
            .collect();
        all.sort_by_key(|(stamp, run, _)| (*stamp, *run));
        all.into_iter().map(|(_, run, share)| (run, share)).collect()
    }

    /// The books as they would be if nobody held more than it needs; `None` if nobody does.
    pub(super) fn slimmed(&self) -> Option<Ledger> {
        let spare = self.spare(None);
        let mut ledger = (!spare.is_empty()).then(|| self.ledger.clone())?;
        for (run, share) in spare {
            let held = self.held_by(run, &share.card);
            ledger.shrink(run, &share.card, held.saturating_sub(share.bytes));
        }
        Some(ledger)
    }

    /// Lowers claims of others, as far as `placement` lacks room beside what is held for those who have waited longer.
    pub(super) fn take_slack(&mut self, except: Option<ModelId>, placement: &Placement, holds: &Holds) {
        let spare = self.spare(except);
        for share in placement.shares.iter().filter(|share| !share.bytes.is_zero()) {
            for (run, spare) in spare.iter().filter(|(_, spare)| spare.card == share.card) {
                let Some(account) = self.ledger.account(&share.card) else {
                    continue;
                };
                let lacking = (share.bytes + holds.on(&share.card)).saturating_sub(account.free());
                let held = account.held_by(*run);
                if !lacking.is_zero() {
                    let wanted = held.saturating_sub(lacking.min(spare.bytes));
                    self.ledger.shrink(*run, &share.card, wanted);
                    self.claimed(*run, &share.card);
                }
            }
        }
    }
}
