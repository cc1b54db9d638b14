//! Replays an allocation trace with an allocator policy, on a simulated card that only counts bytes.
//!
//! GPU work finishes at once, because a trace has no times. The replay stops where the modelled allocator
//! would fail.

use std::fmt;

use plimsoll_pool::{Address, Block, OutOfMemory};

use crate::trace::{Trace, TraceStep};

mod card;
mod ggml_vmm;
mod kind;

use card::ReplayCard;
pub use ggml_vmm::{Broken, GgmlVmm};
pub use kind::{PolicyKind, ReplayPolicy, UnknownPolicy};

/// A budget that no policy meets.
pub const UNLIMITED: u64 = 1 << 44;

/// Result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayOutcome {
    /// `None` if the trace was replayed to its end.
    pub failure: Option<ReplayFailure>,
    pub peak_reserved: u64,
    /// Sizes of granted driver requests, in order.
    pub driver_sizes: Vec<u64>,
}

impl ReplayOutcome {
    pub fn completed(&self) -> bool {
        self.failure.is_none()
    }
}

/// Failure at which a replay stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayFailure {
    pub step: usize,
    /// Bytes live and reserved at that moment.
    pub live: u64,
    pub reserved: u64,
    pub cause: Cause,
}

/// Cause of a failed replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The policy refused so many bytes.
    Refused {
        size: u64,
        by: OutOfMemory,
    },
    Broken(Broken),
}

impl fmt::Display for ReplayFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}: ", self.step + 1)?;
        match self.cause {
            Cause::Refused { size, by } => write!(
                f,
                "a request for {size} bytes was refused ({by}) while {} bytes were in use and {} bytes were \
                reserved",
                self.live, self.reserved
            ),
            Cause::Broken(broken) => write!(f, "{broken}; the program aborts"),
        }
    }
}

/// Replays `trace` over a new policy of this kind, on a card with `budget` bytes.
pub fn replay(trace: &Trace, kind: PolicyKind, budget: u64) -> ReplayOutcome {
    let mut device = ReplayCard::new(budget, kind.granule());
    let mut policy = kind.policy();
    let mut pass = ReplayPass {
        policy: &mut *policy,
        device: &mut device,
        blocks: vec![NO_BLOCK; usize::try_from(trace.blocks()).unwrap_or_default()],
    };
    let failure = pass.run(trace);
    ReplayOutcome {
        failure,
        peak_reserved: device.peak_reserved(),
        driver_sizes: device.driver_sizes().to_vec(),
    }
}

/// The smallest budget with which the policy completes the trace, found by halving, to a thousandth of the
/// live bytes or a granule; `None` if no budget suffices. A policy may fail with a larger budget than one
/// that suffices; the result was tested.
pub fn smallest_budget(trace: &Trace, kind: PolicyKind) -> Option<u64> {
    let unlimited = replay(trace, kind, UNLIMITED);
    if !unlimited.completed() {
        return None;
    }
    let completes = |budget: u64| replay(trace, kind, budget).completed();
    // Finer steps would cost replays for digits that do not matter.
    let step = kind.granule().max(trace.peak_live() / 1024);
    let least = trace.peak_live().next_multiple_of(kind.granule());
    // A policy without overhead needs no search.
    if completes(least) {
        return Some(least);
    }
    // Invariant of the search: `fails` was seen to fail, `enough` was seen to complete.
    let (mut fails, mut enough) = (least, unlimited.peak_reserved);
    // Refusals on the way can change a policy's decisions, so the peak of an unlimited run need not be
    // enough.
    if !completes(enough) {
        enough = UNLIMITED;
    }
    while enough - fails > step {
        let middle = (fails + (enough - fails) / 2).next_multiple_of(kind.granule());
        if middle >= enough {
            break;
        }
        if completes(middle) {
            enough = middle;
        } else {
            fails = middle;
        }
    }
    Some(enough)
}

const NO_BLOCK: Block = Block { address: Address(0), size: 0 };

struct ReplayPass<'a> {
    policy: &'a mut dyn ReplayPolicy,
    device: &'a mut ReplayCard,
    /// The policy's block for each block of the trace.
    blocks: Vec<Block>,
}

impl ReplayPass<'_> {
    fn run(&mut self, trace: &Trace) -> Option<ReplayFailure> {
        for (step, &request) in trace.steps().iter().enumerate() {
            let cause = match self.step(request) {
                Err(cause) => Some(cause),
                Ok(()) => self.policy.broken().map(Cause::Broken),
            };
            if let Some(cause) = cause {
                let (live, reserved) = (self.policy.live(), self.policy.reserved());
                return Some(ReplayFailure { step, live, reserved, cause });
            }
        }
        None
    }

    fn step(&mut self, step: TraceStep) -> Result<(), Cause> {
        match step {
            TraceStep::Allocate { block, size, stream } => {
                let allocated = self.policy.allocate(self.device, size, stream);
                let allocated = allocated.map_err(|by| match self.policy.broken() {
                    Some(broken) => Cause::Broken(broken),
                    None => Cause::Refused { size, by },
                })?;
                if let Some(place) = self.place(block) {
                    *place = allocated;
                }
            }
            TraceStep::Free { block, stream } => {
                let block = self.place(block).map_or(NO_BLOCK, |place| *place);
                self.policy.deallocate(self.device, block, stream);
            }
        }
        Ok(())
    }

    fn place(&mut self, block: u32) -> Option<&mut Block> {
        self.blocks.get_mut(usize::try_from(block).ok()?)
    }
}
