//! Holds an allocation trace: the requests of a program to its allocator, in order.
//!
//! A trace identifies blocks by numbers, because an address is used again after a free. Blocks that are never
//! freed are allowed.

use std::collections::BTreeMap;

use plimsoll_pool::Stream;

mod csv;
mod record;

pub use csv::{CsvError, CsvFault, csv};
pub use record::{RecordFault, RecordedRequest, TraceRecordError};

/// No card has a block of 256 TiB: a larger size is damage.
const LARGEST: u64 = 1 << 48;
/// Blocks are numbered with 32 bits, and a trace of that many steps is tens of gigabytes.
const MOST_BLOCKS: u32 = 1 << 30;

/// One request to an allocator. Blocks are numbered from 0 in the order of their allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceStep {
    Allocate { block: u32, size: u64, stream: Stream },
    Free { block: u32, stream: Stream },
}

// DECISION: `Builder` rejects impossible requests, so no input makes an inconsistent trace.
/// The requests of a program to its allocator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    steps: Vec<TraceStep>,
    blocks: u32,
    peak_live: u64,
    refused: u64,
}

impl Trace {
    pub fn steps(&self) -> &[TraceStep] {
        &self.steps
    }

    /// Number of blocks; their numbers are smaller.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The most bytes that were live at once, a lower bound for every allocator.
    pub fn peak_live(&self) -> u64 {
        self.peak_live
    }

    /// Number of requests that the recorded allocator refused. They are not steps, because nothing was
    /// allocated.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// Error: a step that cannot have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("the block is allocated again before it is freed")]
    Live,
    #[error("the block is freed but was never allocated; a trace must start when the program starts")]
    NotLive,
    #[error("the block is freed with a different size than the {allocated} bytes that were allocated")]
    OtherSize { allocated: u64 },
    #[error("the block is larger than {LARGEST} bytes, which no card can hold")]
    TooLarge,
    #[error("the trace has more than {MOST_BLOCKS} blocks; shorten the trace")]
    TooMany,
}

/// Builder of a trace from steps whose blocks are named as in their source.
#[derive(Debug, Default)]
pub struct TraceBuilder {
    trace: Trace,
    live: BTreeMap<u64, (u32, u64)>,
    bytes: u64,
}

impl TraceBuilder {
    /// Adds an allocation; a request for 0 bytes is left out.
    pub fn allocate(&mut self, name: u64, size: u64, stream: Stream) -> Result<(), Fault> {
        if size == 0 {
            return Ok(());
        }
        if size > LARGEST {
            return Err(Fault::TooLarge);
        }
        let block = self.trace.blocks;
        if block >= MOST_BLOCKS {
            return Err(Fault::TooMany);
        }
        // Checked before anything changes: a trace with a fault is not used, but it must not be inconsistent
        // either.
        let bytes = self.bytes.checked_add(size).ok_or(Fault::TooLarge)?;
        if self.live.insert(name, (block, size)).is_some() {
            return Err(Fault::Live);
        }
        self.bytes = bytes;
        self.trace.blocks = block + 1;
        // Kept here, where every step passes, so that no reader of a trace needs a second pass.
        self.trace.peak_live = self.trace.peak_live.max(bytes);
        self.trace.steps.push(TraceStep::Allocate { block, size, stream });
        Ok(())
    }

    /// Frees a block; `size` is set if the source has it. A size of 0 frees a request that was left out.
    pub fn free(&mut self, name: u64, size: Option<u64>, stream: Stream) -> Result<(), Fault> {
        if size == Some(0) {
            return Ok(());
        }
        // Removed before the size is compared: the trace ends with the fault in any case.
        let (block, allocated) = self.live.remove(&name).ok_or(Fault::NotLive)?;
        if size.is_some_and(|size| size != allocated) {
            return Err(Fault::OtherSize { allocated });
        }
        self.bytes -= allocated;
        self.trace.steps.push(TraceStep::Free { block, stream });
        Ok(())
    }

    pub(crate) fn refuse(&mut self) {
        self.trace.refused += 1;
    }

    pub fn steps(&self) -> usize {
        self.trace.steps.len()
    }

    pub fn finish(self) -> Trace {
        self.trace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Stream = Stream(0);

    #[test]
    fn names_may_be_used_again_and_blocks_are_numbered_in_order() {
        let mut builder = TraceBuilder::default();
        for size in [16, 32] {
            builder.allocate(7, size, STREAM).unwrap();
            builder.free(7, None, STREAM).unwrap();
        }
        let trace = builder.finish();
        assert_eq!((trace.blocks(), trace.peak_live(), trace.steps().len()), (2, 32, 4));
        assert_eq!(trace.steps()[3], TraceStep::Free { block: 1, stream: STREAM });
    }

    #[test]
    fn impossible_allocations_and_frees_are_rejected() {
        let mut builder = TraceBuilder::default();
        builder.allocate(1, 16, STREAM).unwrap();
        assert_eq!(builder.free(2, None, STREAM), Err(Fault::NotLive));
        assert_eq!(builder.allocate(1, 16, STREAM), Err(Fault::Live));
        assert_eq!(builder.allocate(3, LARGEST + 1, STREAM), Err(Fault::TooLarge));
        assert_eq!(builder.free(1, Some(8), STREAM), Err(Fault::OtherSize { allocated: 16 }));
    }

    #[test]
    fn a_request_for_nothing_is_no_step() {
        let mut builder = TraceBuilder::default();
        for _ in 0..2 {
            builder.allocate(0, 0, STREAM).unwrap();
        }
        builder.free(0, Some(0), STREAM).unwrap();
        assert_eq!(builder.steps(), 0);
    }
}
