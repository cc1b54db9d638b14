//! Grants a running engine more memory, when a request has more tokens than its present grant covers.
//!
//! Free memory is used first, then the unused part of other claims, then idle engines are stopped. A request
//! that can never fit is refused at once.

use plimsoll_base::{Bytes, CardId, Placement, RunId, Share};

use super::Scheduler;
use crate::effect::SchedulerEffect;
use crate::models::{MemoryWait, PartingCause, RoomObstacle};
use crate::place::{PlacementVerdict, Reservations};
use crate::state::depth_need::DepthNeed;
use crate::time::{ModelId, Moment};

impl Scheduler {
    /// Makes a model wait for a larger claim, or ends that wait: the front of its queue fits the claim, or is
    /// gone.
    pub(super) fn set_depth_wait(&mut self, id: ModelId, wait: Option<MemoryWait>) {
        if self.models.set_depth_wait(id, wait) {
            self.placements.mark_dirty();
        }
    }

    /// Finds memory for the first request of a queue if it is deeper than its run's claim covers.
    pub(super) fn find_depth(&mut self, id: ModelId, since: Moment, reserved: &mut Reservations) {
        let Some(need) = self.state().depth_need(id) else {
            self.set_depth_wait(id, None);
            return self.dispatch_queue(id);
        };
        if !self.state().within_reach(id, &need.needs) {
            if !need.asleep {
                return self.beyond_reach(id, &need, reserved);
            }
            // Pinned models have its memory for good: it may fit on another card.
            self.set_depth_wait(id, None);
            return self.part(id, PartingCause::Lent);
        }
        let extra = self.state().extra(need.run, &need.needs);
        let contention = self.state().contention();
        let found = self.state().more_memory(id, &contention, &extra, reserved);
        let Some((verdict, obstacle, next)) = found else { return };
        // After the time of `patience`, engines in use are drained too, each when its turn is over.
        let impatient = since + self.settings.patience;
        let victims = match verdict {
            PlacementVerdict::Fits(_) => return self.raise_claim(id, &need, &extra, reserved),
            PlacementVerdict::FitsAfter { stop, waits, .. } => {
                Some(stop).filter(|_| !waits || impatient <= self.now)
            }
            _ => None,
        };
        self.set_obstacle(id, obstacle);
        next.into_iter().for_each(|at| self.arm(at));
        if let Some(victims) = victims {
            reserved.reserve(&extra, &victims, self.ledger());
            self.commit(id, &extra, victims, &contention);
        } else {
            self.set_victims(id, Vec::new());
            if self.now < impatient {
                self.arm(impatient);
            }
        }
    }

    /// Handles a first request that does not fit together with the run's other requests and kept sequences:
    /// it waits for them to end, or for a new run.
    fn beyond_reach(&mut self, id: ModelId, need: &DepthNeed, reserved: &mut Reservations) {
        if !self.state().within_reach(id, &need.alone) {
            let refusal = self.state().too_deep(id);
            self.set_depth_wait(id, None);
            if let Some(refusal) = refusal {
                self.refuse_front(id, refusal);
            }
            return self.dispatch_queue(id);
        }
        self.set_victims(id, Vec::new());
        self.set_obstacle(id, RoomObstacle::OwnRequests);
        let extra = self.state().extra(need.run, &need.alone);
        reserved.reserve(&extra, &[], self.ledger());
        // llama-server frees a kept sequence only when another takes its slot, so that only a restart empties
        // all slots.
        if need.in_flight == 0 {
            self.part(id, PartingCause::Afresh);
        }
    }

    fn raise_claim(&mut self, id: ModelId, need: &DepthNeed, extra: &Placement, reserved: &Reservations) {
        // Claims of others shrink first, or the ledger would have no room for the raise.
        self.take_slack(Some(id), extra, reserved);
        for share in &need.needs {
            self.raise(need.run, &share.card, share.bytes);
            self.claim_changed(need.run, &share.card);
        }
        self.woke(need.run);
        self.set_depth_wait(id, None);
        self.dispatch_queue(id);
    }

    /// Makes the front of the queue wait for a larger claim, among all models that wait.
    pub(super) fn wait_for_depth(&mut self, id: ModelId) {
        let waits = self.models.get(id).is_some_and(|slot| slot.depth_wait().is_some());
        if waits {
            self.placements.mark_dirty()
        } else {
            self.set_depth_wait(id, Some(MemoryWait::default()))
        }
    }

    /// Raises a run's claim on a card to `wanted`, or as far as the card has room; `None` if the run has no
    /// claim there.
    pub(super) fn raise(&mut self, run: RunId, card: &CardId, wanted: Bytes) -> Option<Bytes> {
        let claim = self.placements.ledger.raise(run, card, wanted)?;
        // Memory within a raised claim is no error of the plan, or depth would be learned as a need of every
        // later load.
        if let Some((_, run)) = self.run_mut(run) {
            run.grow_placement(card, claim);
        }
        Some(claim)
    }

    /// Reports to the driver the run's claim on a card.
    pub(super) fn claim_changed(&mut self, run: RunId, card: &CardId) {
        let share = Share::new(card.clone(), self.state().occupied_by(run, card));
        self.emit(SchedulerEffect::ClaimChanged { run, share });
    }

    pub(super) fn growth_observed(&mut self, run: RunId, tokens: u64, used: Bytes) {
        if let Some((_, slot)) = self.living_mut(run) {
            slot.record.growth.sample(run, tokens, used);
            if let Some(growth) = slot.record.growth.learned()
                && let Some(occupancy) = slot.occupancy_mut()
            {
                occupancy.learned(growth);
            }
        }
    }
}
