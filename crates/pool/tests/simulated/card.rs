//! Simulated card for tests of allocators: memory, streams with a completion clock, events, captures and
//! graphs.
//!
//! DECISION: the simulation also checks its callers. Some acts corrupt memory or crash a real card later.
//! Examples are memory released while in use, two streams in one range, a graph launched into freed memory,
//! and a call that invalidates a capture. Each is recorded as a [`Violation`] when it happens, and the
//! simulation continues. Addresses of allocations are never reused, so a use after free is detected. Time is
//! counted in microseconds: every driver call takes its [`Latency`], and work ends when its duration is over.

#![allow(dead_code, reason = "every test program uses a part of the card")]

use plimsoll_pool::{Address, Block, CapturedGraph, DeviceEvent, Stream};

// The parts of the card; this file has the controls for tests.
mod driver;
mod faults;
mod memory;
mod streams;
pub(crate) use faults::Faults;
use memory::SimulatedMemory;
use streams::Streams;

/// Cost of driver calls, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latency {
    pub(crate) allocate: u64,
    pub(crate) free: u64,
    pub(crate) reserve: u64,
    pub(crate) map: u64,
    pub(crate) unmap: u64,
    pub(crate) record: u64,
    pub(crate) query: u64,
}

/// Number of driver calls of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) allocate: u64,
    pub(crate) free: u64,
    pub(crate) reserve: u64,
    pub(crate) release: u64,
    pub(crate) map: u64,
    pub(crate) unmap: u64,
    pub(crate) record: u64,
    pub(crate) query: u64,
    pub(crate) wait: u64,
    pub(crate) order: u64,
}

/// A rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Freed, unmapped or released what is not held as such.
    NotOccupied { address: Address },
    /// A piece of a region that is not whole granules, leaves the region or overlaps another.
    Misplaced { address: Address, size: u64 },
    /// The addresses of a region were given back while some of them were backed.
    StillBacked { address: Address },
    /// Memory was given back while work on `stream` used it.
    InFlight { address: Address, stream: Stream },
    /// Work on `second` uses what work on `first` is still using: a block was handed to another stream too
    /// early.
    UseAfterReuse { address: Address, first: Stream, second: Stream },
    /// Work, of a graph or not, touches memory that is not there.
    Unbacked { address: Address, graph: Option<CapturedGraph> },
    /// A call that breaks a capture in progress.
    DuringCapture { call: &'static str },
    /// An event was used after it was forgotten.
    NoEvent { event: DeviceEvent },
    /// A graph was launched that was never captured, or is destroyed.
    NoGraph { graph: CapturedGraph },
}

/// The device. `Simulated::new` has virtual memory management; see [`Simulated::without_virtual_memory`].
#[derive(Clone, Debug)]
pub(crate) struct Simulated {
    memory: SimulatedMemory,
    streams: Streams,
    faults: Faults,
    latency: Latency,
    calls: Calls,
    driver_sizes: Vec<u64>,
    violations: Vec<Violation>,
}

impl Simulated {
    /// A device of `total` bytes that are given out in multiples of `granule`, a power of two, and with 256
    /// TiB of addresses.
    pub(crate) fn new(total: u64, granule: u64) -> Self {
        Self {
            memory: SimulatedMemory::new(total, granule),
            streams: Streams::default(),
            faults: Faults::default(),
            latency: Latency::default(),
            calls: Calls::default(),
            driver_sizes: Vec::new(),
            violations: Vec::new(),
        }
    }

    /// The same device with so many addresses for regions.
    #[must_use]
    pub(crate) fn with_addresses(mut self, bytes: u64) -> Self {
        self.memory.set_addresses(bytes);
        self
    }

    /// The same device with whole allocations only.
    #[must_use]
    pub(crate) fn without_virtual_memory(self) -> Self {
        self.with_addresses(0)
    }

    #[must_use]
    pub(crate) fn with_latency(mut self, latency: Latency) -> Self {
        self.latency = latency;
        self
    }

    /// From now on these requests for memory are refused.
    pub(crate) fn inject(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// A neighbour came or went: the device now has `total` bytes. What is given out stays given out.
    pub(crate) fn resize(&mut self, total: u64) {
        self.memory.resize(total);
    }

    /// Bytes of the card given out, by allocation or by mapping.
    pub(crate) fn reserved(&self) -> u64 {
        self.memory.used()
    }

    pub(crate) fn peak_reserved(&self) -> u64 {
        self.memory.peak()
    }

    /// Allocations and mapped pieces that are not given back.
    pub(crate) fn pieces(&self) -> usize {
        self.memory.pieces()
    }

    /// Events that were recorded and not forgotten.
    pub(crate) fn events(&self) -> usize {
        self.streams.events()
    }

    pub(crate) fn calls(&self) -> Calls {
        self.calls
    }

    /// Sizes of granted driver requests, allocations and mappings, in order.
    pub(crate) fn driver_sizes(&self) -> &[u64] {
        &self.driver_sizes
    }

    /// Every rule that was broken so far, in order.
    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Microseconds since the device was made.
    pub(crate) fn now(&self) -> u64 {
        self.streams.now()
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, microseconds: u64) {
        self.streams.advance(microseconds);
    }

    /// Waits until all streams are idle.
    pub(crate) fn synchronize(&mut self) {
        if self.streams.any_capture() {
            self.violate(Violation::DuringCapture { call: "synchronize" });
        } else {
            self.streams.drain();
        }
    }

    /// Submits work that uses `blocks` for `microseconds`, or adds it to the graph that is being captured.
    pub(crate) fn launch(&mut self, stream: Stream, microseconds: u64, blocks: &[Block]) {
        let ranges: Vec<_> = blocks.iter().map(|block| (block.address.0, block.end().0)).collect();
        if !self.streams.capture_work(stream, &ranges) {
            self.run(stream, microseconds, &ranges, None);
        }
    }

    pub(crate) fn begin_capture(&mut self, stream: Stream, graph: CapturedGraph) {
        self.streams.begin_capture(stream, graph);
    }

    pub(crate) fn end_capture(&mut self, stream: Stream) {
        self.streams.end_capture(stream);
    }

    /// Submits a graph again: it uses every address that was used while it was captured.
    pub(crate) fn launch_graph(&mut self, graph: CapturedGraph, stream: Stream, microseconds: u64) {
        match self.streams.graph(graph) {
            Some(ranges) => self.run(stream, microseconds, &ranges, Some(graph)),
            None => self.violate(Violation::NoGraph { graph }),
        }
    }

    pub(crate) fn destroy_graph(&mut self, graph: CapturedGraph) {
        self.streams.destroy_graph(graph);
    }

    fn run(
        &mut self,
        stream: Stream,
        microseconds: u64,
        ranges: &[(u64, u64)],
        graph: Option<CapturedGraph>,
    ) {
        for &(start, end) in ranges {
            let address = Address(start);
            if !self.memory.backed(start, end) {
                self.violate(Violation::Unbacked { address, graph });
            }
            if let Some(first) = self.streams.conflict(stream, start, end) {
                let second = stream;
                self.violate(Violation::UseAfterReuse { address, first, second });
            }
        }
        self.streams.submit(stream, microseconds, ranges);
    }

    fn violate(&mut self, violation: Violation) {
        self.violations.push(violation);
    }
}
