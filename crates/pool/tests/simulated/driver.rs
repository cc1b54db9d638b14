//! Simulates the driver calls of a card: what each does, what it costs, and which misuse it detects.

use plimsoll_pool::{Address, DeviceEvent, OutOfMemory, PoolDevice, Stream};

use super::{Simulated, Violation};

impl Simulated {
    /// Checks a return of `start..end`, of any kind of memory.
    fn judge_return(&mut self, call: &'static str, start: u64, end: u64) {
        if self.streams.any_capture() {
            self.violate(Violation::DuringCapture { call });
        }
        if let Some(stream) = self.streams.in_flight(start, end) {
            let address = Address(start);
            self.violate(Violation::InFlight { address, stream });
        }
    }

    /// Checks that a call may name this stream.
    fn judge_stream(&mut self, call: &'static str, stream: Stream) {
        if self.streams.capturing(stream) {
            self.violate(Violation::DuringCapture { call });
        }
    }

    /// End of the work before an event, if the event exists.
    fn end_of(&mut self, event: DeviceEvent) -> Option<u64> {
        let end = self.streams.end_of(event);
        if end.is_none() {
            self.violate(Violation::NoEvent { event });
        }
        end
    }

    /// Refuses requests that an injected fault names.
    fn grant(&mut self, size: u64) -> Result<(), OutOfMemory> {
        let free = self.memory.free();
        if self.faults.refuse(size) {
            return Err(OutOfMemory { requested: size, free });
        }
        Ok(())
    }
}

impl PoolDevice for Simulated {
    fn granule(&self) -> u64 {
        self.memory.granule()
    }

    fn available(&self) -> u64 {
        self.memory.free()
    }

    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        self.calls.allocate += 1;
        self.advance(self.latency.allocate);
        self.grant(size)?;
        let address = self.memory.allocate(size)?;
        // Granted requests only: they are compared with recordings of real drivers.
        self.driver_sizes.push(size);
        Ok(address)
    }

    fn free(&mut self, address: Address) {
        self.calls.free += 1;
        self.advance(self.latency.free);
        match self.memory.free_allocation(address) {
            Some(size) => self.judge_return("free", address.0, address.0 + size),
            None => self.violate(Violation::NotOccupied { address }),
        }
    }

    fn reserve(&mut self, size: u64) -> Option<Address> {
        self.calls.reserve += 1;
        self.advance(self.latency.reserve);
        self.memory.reserve(size)
    }

    fn map(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        self.calls.map += 1;
        self.advance(self.latency.map);
        self.grant(size)?;
        if !self.memory.can_map(at, size) {
            // Recorded, and mapped all the same: the policy under test goes on, and the test reports the
            // first broken rule.
            self.violate(Violation::Misplaced { address: at, size });
        }
        self.memory.map(at, size)?;
        self.driver_sizes.push(size);
        Ok(())
    }

    fn unmap(&mut self, at: Address, size: u64) {
        self.calls.unmap += 1;
        self.advance(self.latency.unmap);
        if self.memory.unmap(at, size) {
            self.judge_return("unmap", at.0, at.0 + size);
        } else {
            self.violate(Violation::NotOccupied { address: at });
        }
    }

    fn release(&mut self, at: Address, size: u64) {
        self.calls.release += 1;
        self.advance(self.latency.reserve);
        if self.memory.any_backed(at.0, at.offset(size).0) {
            self.violate(Violation::StillBacked { address: at });
        }
        if !self.memory.release(at, size) {
            self.violate(Violation::NotOccupied { address: at });
        }
    }

    fn record(&mut self, stream: Stream) -> DeviceEvent {
        self.calls.record += 1;
        self.advance(self.latency.record);
        self.judge_stream("record", stream);
        self.streams.record(stream)
    }

    fn done(&mut self, event: DeviceEvent) -> bool {
        self.calls.query += 1;
        self.advance(self.latency.query);
        self.end_of(event).is_some_and(|end| end <= self.now())
    }

    fn wait(&mut self, event: DeviceEvent) {
        self.calls.wait += 1;
        if self.streams.any_capture() {
            self.violate(Violation::DuringCapture { call: "wait" });
        }
        let until = self.end_of(event).unwrap_or_default();
        self.advance(until.saturating_sub(self.now()));
    }

    fn order(&mut self, stream: Stream, event: DeviceEvent) {
        self.calls.order += 1;
        self.judge_stream("order", stream);
        let until = self.end_of(event).unwrap_or_default();
        self.streams.delay(stream, until);
    }

    fn forget(&mut self, event: DeviceEvent) {
        if !self.streams.forget(event) {
            self.violate(Violation::NoEvent { event });
        }
    }

    fn capturing(&self, stream: Stream) -> bool {
        self.streams.capturing(stream)
    }
}
