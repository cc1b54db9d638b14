//! Frees host memory on machines whose GPU shares it.
//!
//! Only steps that are predicted to help are taken, one at a time, with a measurement after each. Steps that
//! need root run in a separate process.
#![forbid(unsafe_code)]

mod cache;
mod card;
mod levers;
mod neighbours;
mod read_ahead;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_cards::Sysroot;
use plimsoll_host::{
    Allowance, AllowanceGate, Baseline, FutileSteps, HostSnapshot, PlannedStep, Privileges, ReclaimGoal,
    ReclaimPlan, ReclaimStep, StepVerdict, allowance, course,
};

pub use self::cache::advise;
pub use cache::{FileCache, OpenModelError, files_of};
pub use card::{CardOutcome, CardRequest, reclaim_on};
pub use levers::{RootSteps, TakeStepError, UNIT, UnitError, program_for_root, quoted, take_as_root, unit};
pub use neighbours::{Neighbour, ProcessMemory, RequestedNeighbour, ask, neighbours};
pub use read_ahead::read_ahead;

/// The memory to free, and the permitted means.
#[derive(Debug)]
pub struct ReclaimRequest {
    pub goal: ReclaimGoal,
    /// The driver's rule for granting memory; `None` for the rule of this machine.
    pub gate: Option<AllowanceGate>,
    /// Model files with a page cache that may be dropped first.
    pub files: Vec<PathBuf>,
    /// The way in which root steps are run.
    pub hands: RootSteps,
    /// The neighbours to ask. `patience` is the time they get to answer.
    pub whom: NeighbourSelection,
    pub patience: Duration,
    pub force: bool,
    pub dry_run: bool,
}

// DECISION: first, other processes under guard (the preloaded library) are asked to release idle memory.
/// Guarded processes that may be requested to release idle memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeighbourSelection {
    Everybody,
    /// All except those with guard pages in one of these folders.
    Except(Vec<PathBuf>),
    Nobody,
}

/// State of the machine at one moment, reduced to the goal's inputs.
#[derive(Clone, Debug)]
pub struct Measure {
    pub snapshot: HostSnapshot,
    pub allowance: Allowance,
    pub files: Vec<FileCache>,
    /// Guarded processes, with the memory they hold on any card.
    pub neighbours: Vec<Neighbour>,
    pub ground: Baseline,
}

/// A step that was taken, and its result.
#[derive(Debug)]
pub struct TakenStep {
    pub planned: PlannedStep,
    pub result: Result<(), TakeStepError>,
    /// The neighbours asked in this step, if it asks any.
    pub requested: Vec<RequestedNeighbour>,
    pub took: Duration,
    /// Growth of free memory and of memory in blocks of the wanted order. Negative if other processes took
    /// more meanwhile.
    pub freed: i128,
    pub joined: i128,
}

#[derive(Debug)]
pub struct ReclaimOutcome {
    pub before: Measure,
    /// The plan made from the state before the first step.
    pub course: ReclaimPlan,
    pub taken: Vec<TakenStep>,
    pub after: Measure,
    /// The plan at the end, with the steps still open.
    pub last: ReclaimPlan,
}

#[derive(Debug, thiserror::Error)]
pub enum ReclaimError {
    #[error("/proc/meminfo does not show how much memory is free and available, so no steps can be chosen")]
    Measure,
    #[error(
        "--contiguous {order}: the kernel's free blocks have orders from 0 to {last}; give an order of these"
    )]
    Order { order: usize, last: usize },
    #[error("the free blocks are unknown: /proc/buddyinfo is missing")]
    Blocks,
    #[error(transparent)]
    OpenModel(#[from] OpenModelError),
    #[error(
        "no step can be taken on the captured file tree of --sysroot\nhint: omit --sysroot, or add --dry-run"
    )]
    Captured,
}

impl ReclaimOutcome {
    pub fn is_enough(&self) -> bool {
        self.last.verdict == StepVerdict::Enough
    }

    /// Neighbours that still hold idle memory at the end.
    pub fn idle(&self) -> impl Iterator<Item = &Neighbour> {
        let neighbours = self.after.neighbours.iter();
        neighbours.filter(|neighbour| !neighbour.occupied.idle.is_zero())
    }
}

/// Takes the steps that help; with `dry_run` only plans them.
pub fn reclaim(tree: &Sysroot, request: &ReclaimRequest) -> Result<ReclaimOutcome, ReclaimError> {
    if request.dry_run {
        return judge(tree, request);
    }
    if !tree.is_live() {
        return Err(ReclaimError::Captured);
    }
    let mut outcome = judge(tree, request)?;
    let mut tried = FutileSteps::default();
    while let Some(planned) = outcome.last.steps.first().cloned() {
        // A step is tried once, so the loop ends even where a step frees nothing.
        tried.add(planned.step);
        let (taken, after) = TakenStep::take(tree, request, planned, &outcome.after)?;
        outcome.last = course(&after.ground, request.goal, request.powers(), &tried);
        outcome.taken.push(taken);
        outcome.after = after;
    }
    Ok(outcome)
}

/// Plans the steps that would help, without taking any.
pub fn judge(tree: &Sysroot, request: &ReclaimRequest) -> Result<ReclaimOutcome, ReclaimError> {
    let before = Measure::take(tree, request)?;
    let course = course(&before.ground, request.goal, request.powers(), &FutileSteps::default());
    Ok(ReclaimOutcome { after: before.clone(), before, last: course.clone(), course, taken: Vec::new() })
}

impl ReclaimRequest {
    /// The permitted means. A dry run includes root steps, to show what they would bring.
    fn powers(&self) -> Privileges {
        Privileges { root: self.hands != RootSteps::None || self.dry_run, force: self.force }
    }
}

impl NeighbourSelection {
    fn there(&self) -> Vec<Neighbour> {
        match self {
            Self::Everybody => neighbours(&[]),
            Self::Except(folders) => {
                let mut found = neighbours(&[]);
                found.retain(|neighbour| !folders.iter().any(|folder| neighbour.is_in(folder)));
                found
            }
            Self::Nobody => Vec::new(),
        }
    }
}

impl Measure {
    fn take(tree: &Sysroot, request: &ReclaimRequest) -> Result<Self, ReclaimError> {
        let snapshot = HostSnapshot::gather(tree);
        let allowance = allowance(&snapshot, request.gate).ok_or(ReclaimError::Measure)?;
        // Checked before any step is taken: an order the kernel does not have can never be reached.
        if let Some(order) = request.goal.order {
            let blocks = snapshot.blocks.as_ref().ok_or(ReclaimError::Blocks)?;
            let last = blocks.orders().checked_sub(1).ok_or(ReclaimError::Blocks)?;
            if order > last {
                return Err(ReclaimError::Order { order, last });
            }
        }
        let files = request.files.iter().map(|path| FileCache::look(path)).collect::<Result<Vec<_>, _>>()?;
        let cached = files.iter().map(FileCache::at_most).sum();
        // Guard pages lie in this machine's shared memory; a captured tree has none.
        let neighbours = if tree.is_live() { request.whom.there() } else { Vec::new() };
        let idle = neighbours.iter().map(|neighbour| neighbour.occupied.idle).sum();
        let ground = Baseline::of(&snapshot, &allowance, request.goal.order, cached, idle);
        Ok(Self { snapshot, allowance, files, neighbours, ground })
    }

    /// Free memory, including the contiguous (CMA) pool.
    pub fn free(&self) -> Bytes {
        self.snapshot.memory.free.unwrap_or_default()
    }

    /// Free memory in blocks of the wanted order or larger, without the contiguous (CMA) pool.
    pub fn whole(&self) -> Bytes {
        self.ground.pieces.map(|pieces| pieces.whole).unwrap_or_default()
    }
}

impl TakenStep {
    fn take(
        tree: &Sysroot,
        request: &ReclaimRequest,
        planned: PlannedStep,
        from: &Measure,
    ) -> Result<(Self, Measure), ReclaimError> {
        // The time covers the step alone: the measurement that follows samples files and takes its own while.
        let start = Instant::now();
        let mut requested = Vec::new();
        let result = match planned.step {
            ReclaimStep::AdviseFiles => cache::advise(&request.files).map_err(TakeStepError::from),
            ReclaimStep::AskNeighbours => {
                requested = ask(from.neighbours.clone(), &[], request.patience);
                Ok(())
            }
            step => request.hands.take(step),
        };
        let took = start.elapsed();
        let after = Measure::take(tree, request)?;
        let taken = Self {
            planned,
            result,
            requested,
            took,
            freed: difference(after.free(), from.free()),
            joined: difference(after.whole(), from.whole()),
        };
        Ok((taken, after))
    }
}

fn difference(after: Bytes, before: Bytes) -> i128 {
    // A signed type wider than `u64`, since other processes may take more than the step freed.
    i128::from(after.get()) - i128::from(before.get())
}

impl From<io::Error> for TakeStepError {
    fn from(error: io::Error) -> Self {
        Self::Advise { error }
    }
}
