//! Choice of reclaim steps: the mildest sequence that lets a request of a known size succeed, or none.
//!
//! DECISION: the possible sequences form a fixed list, mildest first. Each is simulated, and the first that
//! reaches the goal is chosen. If none does, nothing is done, because a step that cannot help only has costs.
//! Predictions of free memory are exact except for concurrent changes. Predictions of large blocks are upper
//! bounds, because pinned pages are not visible. So the caller takes one step, measures again and calls this
//! module again with the steps already tried.

mod baseline;
mod simulation;

use plimsoll_base::{Bytes, Reason};

use self::simulation::Simulation;
pub use baseline::{Ground, Pieces};

/// A step that frees memory, from the mildest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
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
pub struct Goal {
    pub need: Bytes,
    /// In blocks of 2^order pages or larger.
    pub order: Option<usize>,
}

/// Privileges for taking steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Powers {
    /// Steps that only root may take.
    pub root: bool,
    /// Steps that slow the whole system, and steps that are not predicted to be enough.
    pub force: bool,
}

/// A chosen step and its predicted effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub step: Step,
    /// Free memory that it adds.
    pub frees: Bytes,
    /// Memory in blocks of the wanted order that it adds at most.
    pub joins: Bytes,
    /// The arithmetic.
    pub reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
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
pub struct Course {
    pub verdict: Verdict,
    /// To be taken, in this order.
    pub steps: Vec<Planned>,
    /// Part of the course, and not within the powers given.
    pub withheld: Vec<Planned>,
}

/// Mildest first: steps on the caller's own files, then neighbours under guard, then system-wide steps.
const RECIPES: &[&[Step]] = &[
    &[Step::AdviseFiles],
    &[Step::AskNeighbours],
    &[Step::AdviseFiles, Step::AskNeighbours],
    &[Step::Compact],
    &[Step::AdviseFiles, Step::Compact],
    &[Step::AdviseFiles, Step::AskNeighbours, Step::Compact],
    &[Step::AskNeighbours, Step::Compact],
    // Its prediction equals that of compaction, so it is reached only after compaction was tried and gained
    // less.
    &[Step::ClaimHugePages],
    &[Step::AskNeighbours, Step::DropPageCache],
    &[Step::DropPageCache],
    &[Step::AskNeighbours, Step::DropPageCache, Step::Compact],
    &[Step::DropPageCache, Step::Compact],
    &[Step::AskNeighbours, Step::WriteAndDropPageCache],
    &[Step::WriteAndDropPageCache],
    &[Step::AskNeighbours, Step::WriteAndDropPageCache, Step::Compact],
    &[Step::WriteAndDropPageCache, Step::Compact],
    &[Step::AskNeighbours, Step::WriteAndDropPageCache, Step::DropSlab],
    &[Step::WriteAndDropPageCache, Step::DropSlab],
    &[
        Step::AskNeighbours,
        Step::WriteAndDropPageCache,
        Step::DropSlab,
        Step::Compact,
    ],
    &[Step::WriteAndDropPageCache, Step::DropSlab, Step::Compact],
];

impl Step {
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
pub fn course(ground: &Ground, goal: Goal, powers: Powers, tried: &Tried) -> Course {
    let start = Simulation::of(ground, goal);
    // Checked before any recipe: an empty one is no course.
    if start.short().is_zero() {
        return Course::nothing(Verdict::Enough);
    }
    let allowed = |recipe: &&&[Step]| {
        let may = |step: &Step| powers.force || !step.needs_force();
        // One forbidden or exhausted step rules the recipe out; shorter ones cover the rest.
        recipe.iter().all(|step| may(step) && !tried.has(*step))
    };
    let recipes: Vec<Vec<Planned>> = RECIPES
        .iter()
        .filter(allowed)
        .map(|recipe| start.carried_through(recipe))
        .collect();
    let usable = || {
        recipes
            .iter()
            .filter(|recipe| recipe.iter().all(Planned::gains) && !recipe.is_empty())
    };
    // The list is ordered by cost, so the first match is the mildest.
    let reached = usable().find(|recipe| start.after(recipe).short().is_zero());
    if let Some(recipe) = reached {
        return Course::within(powers, &start, recipe, Verdict::Reachable, tried);
    }
    // Of two that leave the same gap the milder one.
    let strongest = usable().min_by_key(|recipe| start.after(recipe).short());
    let short = strongest.map_or_else(|| start.short(), |recipe| start.after(recipe).short());
    let verdict = Verdict::Beyond { short };
    // Without force, steps that cannot reach the goal are not taken at all.
    match strongest.filter(|_| powers.force) {
        Some(recipe) => Course::within(powers, &start, recipe, verdict, tried),
        None => Course::nothing(verdict),
    }
}

/// Steps that were taken and would gain nothing if taken again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tried(Vec<Step>);

impl Tried {
    /// Remembers that `step` was taken. What drops more has done what drops less would do; what frees memory
    /// makes it worth while to compact once more.
    pub fn add(&mut self, step: Step) {
        let done: &[Step] = match step {
            Step::AdviseFiles => &[Step::AdviseFiles],
            Step::AskNeighbours => &[Step::AskNeighbours],
            Step::Compact => &[Step::Compact],
            Step::ClaimHugePages => &[Step::Compact, Step::ClaimHugePages],
            Step::DropPageCache => &[Step::AdviseFiles, Step::DropPageCache],
            Step::WriteAndDropPageCache => &[
                Step::AdviseFiles,
                Step::DropPageCache,
                Step::WriteAndDropPageCache,
            ],
            Step::DropSlab => &[Step::DropSlab],
        };
        let moves = |step: Step| matches!(step, Step::Compact | Step::ClaimHugePages);
        // Freed pages give compaction new material.
        if !moves(step) {
            self.0.retain(|tried| !moves(*tried));
        }
        self.0.extend(
            done.iter()
                .filter(|step| !self.0.contains(step))
                .copied()
                .collect::<Vec<_>>(),
        );
    }

    pub fn has(&self, step: Step) -> bool {
        self.0.contains(&step)
    }
}

impl Planned {
    fn gains(&self) -> bool {
        !(self.frees.is_zero() && self.joins.is_zero())
    }
}

impl Course {
    fn nothing(verdict: Verdict) -> Self {
        Self {
            verdict,
            steps: Vec::new(),
            withheld: Vec::new(),
        }
    }

    /// The steps of `recipe` that may be taken, and those that may not. Without any permitted step the page
    /// cache of the model's files is still dropped, which needs no privilege and brings the goal nearer.
    fn within(
        powers: Powers,
        start: &Simulation,
        recipe: &[Planned],
        verdict: Verdict,
        tried: &Tried,
    ) -> Self {
        let (withheld, mut steps): (Vec<Planned>, Vec<Planned>) = recipe
            .iter()
            .cloned()
            .partition(|planned| planned.step.needs_root() && !powers.root);
        if steps.is_empty() && !tried.has(Step::AdviseFiles) {
            steps = start.carried_through(&[Step::AdviseFiles]);
            steps.retain(Planned::gains);
        }
        Self {
            verdict,
            steps,
            withheld,
        }
    }
}

#[cfg(test)]
mod tests;
