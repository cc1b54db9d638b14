//! Trace of a policy: the requests to it, and its own requests to the driver.
//!
//! DECISION: this crate has no clock, so the sink supplies the time. Blocks and pieces of memory are
//! identified by numbers that are never reused, as [`plimsoll_wire::trace`] requires.

use alloc::collections::BTreeMap;

use plimsoll_wire::page::Refusal;
use plimsoll_wire::trace::{TraceKind, TraceRecord};

use crate::device::{Address, CapturedGraph, DeviceEvent, OutOfMemory, PoolDevice, Stream};
use crate::policy::{Block, Policy, Trim};

/// Destination of trace records.
pub trait Sink {
    /// Nanoseconds since the trace began.
    fn now(&mut self) -> u64;

    fn write(&mut self, record: &TraceRecord);
}

/// A policy whose calls are recorded.
#[derive(Clone, Debug)]
pub struct Traced<P, S> {
    policy: P,
    pen: Pen<S>,
}

#[derive(Clone, Debug)]
struct Pen<S> {
    sink: S,
    card: u8,
    pool: u8,
    next_id: u64,
    blocks: BTreeMap<Address, u64>,
    /// Numbers of allocations and pieces, with their bytes.
    held: BTreeMap<Address, (u64, u64)>,
}

impl<P: Policy, S: Sink> Traced<P, S> {
    /// `card` and `pool` as in [`TraceRecord`].
    pub fn new(policy: P, sink: S, card: u8, pool: u8) -> Self {
        let pen = Pen {
            sink,
            card,
            pool,
            next_id: 1,
            blocks: BTreeMap::new(),
            held: BTreeMap::new(),
        };
        Self { policy, pen }
    }

    pub fn sink(&mut self) -> &mut S {
        &mut self.pen.sink
    }

    /// Runs a call of the policy with a device that records its own calls.
    fn over<'a, T>(
        &'a mut self,
        device: &'a mut dyn PoolDevice,
        act: impl FnOnce(&mut P, &mut dyn PoolDevice) -> T,
    ) -> T {
        let pen = &mut self.pen;
        act(&mut self.policy, &mut Recorder { device, pen })
    }
}

impl<P: Policy, S: Sink> Policy for Traced<P, S> {
    fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        size: u64,
        stream: Stream,
    ) -> Result<Block, OutOfMemory> {
        let outcome = self.over(device, |policy, device| policy.allocate(device, size, stream));
        match &outcome {
            Ok(block) => {
                let id = self.pen.name();
                self.pen.blocks.insert(block.address, id);
                self.pen.write(TraceKind::Alloc, id, size, stream);
            }
            // Number 0: there is no block that the refusal could name.
            Err(_) => self.pen.write(TraceKind::Oom, 0, size, stream),
        }
        outcome
    }

    fn deallocate(&mut self, device: &mut dyn PoolDevice, block: Block, stream: Stream) {
        if let Some(id) = self.pen.blocks.remove(&block.address) {
            self.pen.write(TraceKind::Free, id, block.size, stream);
        }
        self.over(device, |policy, device| policy.deallocate(device, block, stream));
    }

    fn trim(&mut self, device: &mut dyn PoolDevice, trim: Trim) -> u64 {
        self.over(device, |policy, device| policy.trim(device, trim))
    }

    fn capture_begin(&mut self, graph: CapturedGraph) {
        self.pen.write(TraceKind::CaptureBegin, graph.0, 0, Stream(0));
        self.policy.capture_begin(graph);
    }

    fn capture_end(&mut self, graph: CapturedGraph) {
        self.pen.write(TraceKind::CaptureEnd, graph.0, 0, Stream(0));
        self.policy.capture_end(graph);
    }

    fn graph_destroyed(&mut self, graph: CapturedGraph) {
        self.policy.graph_destroyed(graph);
    }

    fn close(&mut self, device: &mut dyn PoolDevice) {
        self.over(device, |policy, device| policy.close(device));
        self.pen.blocks.clear();
    }

    fn reserved(&self) -> u64 {
        self.policy.reserved()
    }

    fn live(&self) -> u64 {
        self.policy.live()
    }
}

impl<S: Sink> Pen<S> {
    fn name(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn write(&mut self, kind: TraceKind, id: u64, size: u64, stream: Stream) {
        let record = TraceRecord {
            time: self.sink.now(),
            id,
            size,
            kind: kind as u8,
            card: self.card,
            pool: self.pool,
            detail: if kind == TraceKind::Oom {
                Refusal::Driver as u8
            } else {
                0
            },
            // Streams beyond 16 bits share the last number.
            stream: u16::try_from(stream.0).unwrap_or(u16::MAX),
            thread: 0,
        };
        self.sink.write(&record);
    }

    fn took(&mut self, kind: TraceKind, at: Address, size: u64) {
        let id = self.name();
        self.held.insert(at, (id, size));
        self.write(kind, id, size, Stream(0));
    }

    fn gave(&mut self, at: Address) {
        if let Some((id, size)) = self.held.remove(&at) {
            self.write(TraceKind::Unmap, id, size, Stream(0));
        }
    }
}

/// The device, with a recorder of its calls.
struct Recorder<'a, S> {
    device: &'a mut dyn PoolDevice,
    pen: &'a mut Pen<S>,
}

impl<S: Sink> PoolDevice for Recorder<'_, S> {
    forward!(granule available reserve release events);

    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        let address = self.device.allocate(size)?;
        self.pen.took(TraceKind::Map, address, size);
        Ok(address)
    }

    fn allocate_host(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        let address = self.device.allocate_host(size)?;
        self.pen.took(TraceKind::Spill, address, size);
        Ok(address)
    }

    fn free(&mut self, address: Address) {
        self.device.free(address);
        self.pen.gave(address);
    }

    fn map(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        self.device.map(at, size)?;
        self.pen.took(TraceKind::Map, at, size);
        Ok(())
    }

    fn map_host(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        self.device.map_host(at, size)?;
        self.pen.took(TraceKind::Spill, at, size);
        Ok(())
    }

    fn unmap(&mut self, at: Address, size: u64) {
        self.device.unmap(at, size);
        self.pen.gave(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ours, Simulated};

    #[derive(Debug, Default)]
    struct Records(Vec<TraceRecord>);

    impl Sink for Records {
        fn now(&mut self) -> u64 {
            u64::try_from(self.0.len()).unwrap()
        }

        fn write(&mut self, record: &TraceRecord) {
            self.0.push(*record);
        }
    }

    #[test]
    fn every_act_is_one_record_and_ids_are_never_used_twice() {
        const MIB: u64 = 1 << 20;
        let mut device = Simulated::new(16 * MIB, MIB);
        let mut policy = Traced::new(Ours::default(), Records::default(), 3, 1);
        for _ in 0..2 {
            let block = policy.allocate(&mut device, 100, Stream(5)).unwrap();
            policy.deallocate(&mut device, block, Stream(5));
        }
        policy.allocate(&mut device, 17 * MIB, Stream(5)).unwrap_err();
        policy.capture_begin(CapturedGraph(9));
        policy.capture_end(CapturedGraph(9));
        policy.trim(&mut device, Trim::All);
        let records = &policy.sink().0;
        let told: Vec<_> = records
            .iter()
            .map(|record| (TraceKind::of(record.kind).unwrap(), record.id, record.size))
            .collect();
        assert_eq!(
            told,
            [
                (TraceKind::Map, 1, MIB),
                (TraceKind::Alloc, 2, 100),
                (TraceKind::Free, 2, 100),
                (TraceKind::Alloc, 3, 100),
                (TraceKind::Free, 3, 100),
                (TraceKind::Unmap, 1, MIB),
                (TraceKind::Oom, 0, 17 * MIB),
                (TraceKind::CaptureBegin, 9, 0),
                (TraceKind::CaptureEnd, 9, 0),
            ]
        );
        assert!(records.iter().all(|record| (record.card, record.pool) == (3, 1)));
        assert!(records.windows(2).all(|pair| pair[0].time < pair[1].time));
    }
}
