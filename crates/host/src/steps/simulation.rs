//! Predicts the host memory that is free after each reclaim step.

use plimsoll_base::{Bytes, Reason};

use super::super::AllowanceGate;
use super::{Baseline, PlannedStep, ReclaimGoal, ReclaimStep};

/// Predicted memory figures after some steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Simulation {
    ground: Baseline,
    goal: ReclaimGoal,
}

impl Simulation {
    pub(super) fn of(ground: &Baseline, goal: ReclaimGoal) -> Self {
        Self { ground: *ground, goal }
    }

    /// By how much the goal is missed.
    pub(super) fn short(&self) -> Bytes {
        let ground = &self.ground;
        let memory = self.goal.need.saturating_sub(ground.now);
        let whole = match (self.goal.order, ground.pieces) {
            (None, _) => return memory,
            (Some(_), Some(pieces)) => pieces.whole,
            // Blocks that cannot be seen count as absent, so that nothing is promised.
            (Some(_), None) => Bytes::ZERO,
        };
        // Both the amount and the block sizes have to suffice.
        memory.max(self.goal.need.saturating_sub(whole))
    }

    pub(super) fn after(&self, planned: &[PlannedStep]) -> Self {
        planned.iter().fold(*self, |simulated, planned| simulated.step(planned.step).0)
    }

    pub(super) fn carried_through(&self, recipe: &[ReclaimStep]) -> Vec<PlannedStep> {
        let mut simulated = *self;
        let mut planned = Vec::with_capacity(recipe.len());
        for step in recipe {
            let (after, gain) = simulated.step(*step);
            simulated = after;
            planned.push(gain);
        }
        planned
    }

    fn step(&self, step: ReclaimStep) -> (Self, PlannedStep) {
        let ground = &self.ground;
        let mut after = *self;
        let (dropped, mut reason) = match step {
            ReclaimStep::AdviseFiles => {
                after.ground.files = Bytes::ZERO;
                advised(ground)
            }
            ReclaimStep::DropPageCache => dropped(ground, Bytes::ZERO),
            ReclaimStep::WriteAndDropPageCache => {
                after.ground.unwritten = Bytes::ZERO;
                dropped(ground, ground.unwritten)
            }
            ReclaimStep::DropSlab => {
                after.ground.slab = Bytes::ZERO;
                let text = format!(
                    "the kernel can free at most {} of cached directory entries and inodes (SReclaimable)",
                    ground.slab
                );
                (ground.slab, Reason::new("drop_slab", text))
            }
            ReclaimStep::AskNeighbours => return self.requested(),
            ReclaimStep::Compact => return self.moved_together(step, Bytes::MAX),
            ReclaimStep::ClaimHugePages => return self.moved_together(step, ground.claimable),
        };
        if step != ReclaimStep::DropSlab {
            after.ground.droppable = ground.droppable.saturating_sub(dropped);
            // Dropping all page cache drops that of the model's files as well.
            after.ground.files = after.ground.files.min(after.ground.droppable);
        }
        // MemAvailable includes droppable page cache already, so dropping it adds nothing there.
        let frees = match ground.gate {
            AllowanceGate::Free => dropped.min(ground.attainable.saturating_sub(ground.now)),
            AllowanceGate::Available => Bytes::ZERO,
        };
        after.ground.now = ground.now + frees;
        let joins = match (&mut after.ground.pieces, self.goal.order) {
            (Some(pieces), Some(_)) => pieces.gain(dropped, ground.page),
            _ => Bytes::ZERO,
        };
        if joins > dropped {
            let alongside = joins.saturating_sub(dropped);
            reason.text +=
                &format!("; another {alongside} in smaller free blocks may merge with the freed memory");
        }
        (after, PlannedStep { step, frees, joins, reason })
    }

    /// The released memory was a driver's, so it counts as free under either gate, and under a cap on driver
    /// memory.
    fn requested(&self) -> (Self, PlannedStep) {
        let mut after = *self;
        let frees = std::mem::take(&mut after.ground.idle);
        after.ground.now += frees;
        after.ground.attainable += frees;
        let joins = match (&mut after.ground.pieces, self.goal.order) {
            (Some(pieces), Some(_)) => pieces.gain(frees, after.ground.page),
            _ => Bytes::ZERO,
        };
        let text =
            format!("{frees} are idle in the pools of guarded programs, which can be asked to release them");
        let planned = PlannedStep {
            step: ReclaimStep::AskNeighbours,
            frees,
            joins,
            reason: Reason::new("ask_neighbours", text),
        };
        (after, planned)
    }

    /// `within`: blocks of the wanted order that can come of it at most, those included that are there.
    fn moved_together(&self, step: ReclaimStep, within: Bytes) -> (Self, PlannedStep) {
        let mut after = *self;
        let (mut joins, mut text) = (Bytes::ZERO, "the sizes of the free blocks are unknown".to_owned());
        if let (Some(pieces), Some(_)) = (&mut after.ground.pieces, self.goal.order) {
            // Compaction cannot build more blocks than its memory limit, and existing ones count against
            // it.
            joins = pieces.loose.min(within.saturating_sub(pieces.whole));
            let which = if pieces.by_type {
                "these are among movable pages"
            } else {
                "only root can read which of these are among movable pages"
            };
            text = format!(
                "at most {joins} are free in smaller blocks, and {which}; blocks of order {} hold {} now",
                pieces.order, pieces.whole
            );
            pieces.whole += joins;
            pieces.loose = pieces.loose.saturating_sub(joins);
        }
        let code = if step == ReclaimStep::Compact { "compact" } else { "claim_huge_pages" };
        let planned = PlannedStep { step, frees: Bytes::ZERO, joins, reason: Reason::new(code, text) };
        (after, planned)
    }
}

fn advised(ground: &Baseline) -> (Bytes, Reason) {
    let gives = ground.files.min(ground.droppable);
    let text = format!(
        "the model files have about {} in the page cache; of all page cache, {} are clean and not mapped by \
            a process; {gives} can be dropped",
        ground.files, ground.droppable
    );
    (gives, Reason::new("advise_files", text))
}

fn dropped(ground: &Baseline, written: Bytes) -> (Bytes, Reason) {
    let gives = ground.droppable + written;
    let mut text = format!(
        "{} of page cache are clean and not mapped by any process (Active(file) + Inactive(file) - Mapped - \
            Dirty - Writeback)",
        ground.droppable
    );
    if !written.is_zero() {
        text += &format!(
            ", and {written} more will be once they are written to disk (Dirty + Writeback); {gives} in total"
        );
    }
    (gives, Reason::new("drop_page_cache", text))
}
