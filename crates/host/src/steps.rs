//! Chooses the steps that free host memory, so that a request of a known size succeeds.
//!
//! Of a fixed list of sequences, the mildest that frees enough is chosen. The effect is a prediction, so the
//! caller takes one step, measures again and asks again.

mod baseline;
mod simulation;

use plimsoll_base::{Bytes, Reason};

use self::simulation::Simulation;
pub use baseline::{Baseline, OrderBlocks};

/// A step that frees memory, from the mildest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReclaimStep {
    /// `posix_fadvise(POSIX_FADV_DONTNEED)` on the model's files: drops their page cache only.
    AdviseFiles,
    /// Asks guarded programs to release idle pool memory, which they can allocate again later.
    AskNeighbours,
    /// `compact_memory`: moves movable pages together. Costs processor time.
    Compact,
    /// `nr_hugepages`: allocates free memory as huge pages, for which the kernel migrates pages block by
    /// block, and frees them again. Meanwhile hardly anything is free, so it comes after `Compact`, which on
    /// some kernels returns at once and migrates almost nothing.
    ClaimHugePages,
    /// `drop_caches = 1`: drops clean page cache of all processes, which will read it again.
    DropPageCache,
    /// `sync`, then `drop_caches = 1`.
    WriteAndDropPageCache,
    /// `drop_caches = 3`: directory entries and inodes too, which slows every program's next look at a file.
    DropSlab,
}

/// The memory request that has to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimGoal {
    pub need: Bytes,
    /// In blocks of 2^order pages or larger.
    pub order: Option<usize>,
}

/// Privileges for taking steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// Steps that only root may take.
    pub root: bool,
    /// Steps that slow the whole system, and steps that are not predicted to be enough.
    pub force: bool,
}

/// A chosen step and its predicted effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedStep {
    pub step: ReclaimStep,
    /// Free memory that it adds.
    pub frees: Bytes,
    /// Memory in blocks of the wanted order that it adds at most.
    pub joins: Bytes,
    /// The arithmetic.
    pub reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepVerdict {
    /// The goal is met as things are.
    Enough,
    /// The course is predicted to reach it, as far as it is not withheld.
    Reachable,
    /// Nothing that may be done reaches it.
    Beyond {
        /// By how much the strongest recipe falls short.
        short: Bytes,
    },
}

/// The chosen steps, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReclaimPlan {
    pub verdict: StepVerdict,
    /// To be taken, in this order.
    pub steps: Vec<PlannedStep>,
    /// Part of the course, and not within the powers given.
    pub withheld: Vec<PlannedStep>,
}

// DECISION: the possible sequences form a fixed list, mildest first. Predicted sizes of large blocks are
// upper bounds, because pinned pages are not visible.
/// Mildest first: steps on the caller's own files, then neighbours under guard, then system-wide steps.
const RECIPES: &[&[ReclaimStep]] = &[
    &[ReclaimStep::AdviseFiles],
    &[ReclaimStep::AskNeighbours],
    &[ReclaimStep::AdviseFiles, ReclaimStep::AskNeighbours],
    &[ReclaimStep::Compact],
    &[ReclaimStep::AdviseFiles, ReclaimStep::Compact],
    &[ReclaimStep::AdviseFiles, ReclaimStep::AskNeighbours, ReclaimStep::Compact],
    &[ReclaimStep::AskNeighbours, ReclaimStep::Compact],
    // Its prediction equals that of compaction, so it is reached only after compaction was tried and gained
    // less.
    &[ReclaimStep::ClaimHugePages],
    &[ReclaimStep::AskNeighbours, ReclaimStep::DropPageCache],
    &[ReclaimStep::DropPageCache],
    &[ReclaimStep::AskNeighbours, ReclaimStep::DropPageCache, ReclaimStep::Compact],
    &[ReclaimStep::DropPageCache, ReclaimStep::Compact],
    &[ReclaimStep::AskNeighbours, ReclaimStep::WriteAndDropPageCache],
    &[ReclaimStep::WriteAndDropPageCache],
    &[ReclaimStep::AskNeighbours, ReclaimStep::WriteAndDropPageCache, ReclaimStep::Compact],
    &[ReclaimStep::WriteAndDropPageCache, ReclaimStep::Compact],
    &[ReclaimStep::AskNeighbours, ReclaimStep::WriteAndDropPageCache, ReclaimStep::DropSlab],
    &[ReclaimStep::WriteAndDropPageCache, ReclaimStep::DropSlab],
    &[
        ReclaimStep::AskNeighbours,
        ReclaimStep::WriteAndDropPageCache,
        ReclaimStep::DropSlab,
        ReclaimStep::Compact,
    ],
    &[ReclaimStep::WriteAndDropPageCache, ReclaimStep::DropSlab, ReclaimStep::Compact],
];

impl ReclaimStep {
    pub const ALL: [Self; 7] = [
        Self::AdviseFiles,
        Self::AskNeighbours,
        Self::Compact,
        Self::ClaimHugePages,
        Self::DropPageCache,
        Self::WriteAndDropPageCache,
        Self::DropSlab,
    ];

    /// As it is written on command lines and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::AdviseFiles => "advise-files",
            Self::AskNeighbours => "ask-neighbours",
            Self::Compact => "compact",
            Self::ClaimHugePages => "claim-huge-pages",
            Self::DropPageCache => "drop-page-cache",
            Self::WriteAndDropPageCache => "write-and-drop-page-cache",
            Self::DropSlab => "drop-slab",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }

    pub fn needs_root(self) -> bool {
        !matches!(self, Self::AdviseFiles | Self::AskNeighbours)
    }

    pub fn needs_force(self) -> bool {
        self == Self::DropSlab
    }
}

/// Chooses steps for `goal`; `tried` are the steps that are not worth repeating.
pub fn course(ground: &Baseline, goal: ReclaimGoal, powers: Privileges, tried: &FutileSteps) -> ReclaimPlan {
    let start = Simulation::of(ground, goal);
    // Checked before any recipe: an empty one is no course.
    if start.short().is_zero() {
        return ReclaimPlan::nothing(StepVerdict::Enough);
    }
    let allowed = |recipe: &&&[ReclaimStep]| {
        let may = |step: &ReclaimStep| powers.force || !step.needs_force();
        // One forbidden or exhausted step rules the recipe out; shorter ones cover the rest.
        recipe.iter().all(|step| may(step) && !tried.has(*step))
    };
    let recipes: Vec<Vec<PlannedStep>> =
        RECIPES.iter().filter(allowed).map(|recipe| start.carried_through(recipe)).collect();
    let usable =
        || recipes.iter().filter(|recipe| recipe.iter().all(PlannedStep::gains) && !recipe.is_empty());
    // The list is ordered by cost, so the first match is the mildest.
    let reached = usable().find(|recipe| start.after(recipe).short().is_zero());
    if let Some(recipe) = reached {
        return ReclaimPlan::within(powers, &start, recipe, StepVerdict::Reachable, tried);
    }
    // Of two that leave the same gap the milder one.
    let strongest = usable().min_by_key(|recipe| start.after(recipe).short());
    let short = strongest.map_or_else(|| start.short(), |recipe| start.after(recipe).short());
    let verdict = StepVerdict::Beyond { short };
    // Without force, steps that cannot reach the goal are not taken at all.
    match strongest.filter(|_| powers.force) {
        Some(recipe) => ReclaimPlan::within(powers, &start, recipe, verdict, tried),
        None => ReclaimPlan::nothing(verdict),
    }
}

/// Steps that were taken and would gain nothing if taken again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FutileSteps(Vec<ReclaimStep>);

impl FutileSteps {
    /// Records that `step` was taken, and the steps that it makes unnecessary: a step that drops more has
    /// also done what a smaller one would. A step that frees memory makes another compaction worthwhile.
    pub fn add(&mut self, step: ReclaimStep) {
        let done: &[ReclaimStep] = match step {
            ReclaimStep::AdviseFiles => &[ReclaimStep::AdviseFiles],
            ReclaimStep::AskNeighbours => &[ReclaimStep::AskNeighbours],
            ReclaimStep::Compact => &[ReclaimStep::Compact],
            ReclaimStep::ClaimHugePages => &[ReclaimStep::Compact, ReclaimStep::ClaimHugePages],
            ReclaimStep::DropPageCache => &[ReclaimStep::AdviseFiles, ReclaimStep::DropPageCache],
            ReclaimStep::WriteAndDropPageCache => {
                &[ReclaimStep::AdviseFiles, ReclaimStep::DropPageCache, ReclaimStep::WriteAndDropPageCache]
            }
            ReclaimStep::DropSlab => &[ReclaimStep::DropSlab],
        };
        let moves = |step: ReclaimStep| matches!(step, ReclaimStep::Compact | ReclaimStep::ClaimHugePages);
        // Freed pages give compaction new material.
        if !moves(step) {
            self.0.retain(|tried| !moves(*tried));
        }
        self.0.extend(done.iter().filter(|step| !self.0.contains(step)).copied().collect::<Vec<_>>());
    }

    pub fn has(&self, step: ReclaimStep) -> bool {
        self.0.contains(&step)
    }
}

impl PlannedStep {
    fn gains(&self) -> bool {
        !(self.frees.is_zero() && self.joins.is_zero())
    }
}

impl ReclaimPlan {
    fn nothing(verdict: StepVerdict) -> Self {
        Self { verdict, steps: Vec::new(), withheld: Vec::new() }
    }

    /// The steps of `recipe` that may be taken, and those that may not. Without any permitted step the page
    /// cache of the model's files is still dropped, which needs no privilege and brings the goal nearer.
    fn within(
        powers: Privileges,
        start: &Simulation,
        recipe: &[PlannedStep],
        verdict: StepVerdict,
        tried: &FutileSteps,
    ) -> Self {
        let (withheld, mut steps): (Vec<PlannedStep>, Vec<PlannedStep>) =
            recipe.iter().cloned().partition(|planned| planned.step.needs_root() && !powers.root);
        if steps.is_empty() && !tried.has(ReclaimStep::AdviseFiles) {
            steps = start.carried_through(&[ReclaimStep::AdviseFiles]);
            steps.retain(PlannedStep::gains);
        }
        Self { verdict, steps, withheld }
    }
}

#[cfg(test)]
mod tests;
