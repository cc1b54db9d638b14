//! Interface between a memory allocator and a card's driver.
//!
//! Memory comes as whole allocations (`cuMemAlloc`) or as a region, an address range mapped piece by piece
//! (`cuMemMap`).

/// Position in a card's address space, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// The address `bytes` further on. Saturates: the end of the address space is in no range.
    #[must_use]
    pub const fn offset(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }
}

/// A queue of work on a card that is executed in order. The caller chooses the number (a handle, an index).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u64);

/// A point in a stream, after all the work submitted before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceEvent(pub u64);

/// A captured graph and everything instantiated from it. It contains the addresses that were in use during
/// its capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapturedGraph(pub u64);

/// Refusal of memory by the card, or by a budget on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{requested} bytes were requested and {free} are free")]
pub struct OutOfMemory {
    /// Bytes of the request that was refused, as the device counts them.
    pub requested: u64,
    /// Bytes that could be had when it was refused.
    pub free: u64,
}

// DECISION: one trait mirrors driver functions one to one, with plain numbers; addresses are never pointers.
// Events replace a clock: they show whether the card has finished with a piece.
/// Interface to a card: its memory and the order of its work.
pub trait PoolDevice {
    /// Granule of every allocation and every piece of a region; a power of two.
    fn granule(&self) -> u64;

    /// Bytes that are available now, within the budget. A hint: other processes use the card too.
    fn available(&self) -> u64;

    /// Takes a range that is backed from the start.
    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory>;

    /// Gives an allocation back: exactly an address that was returned, once, with no work on
    /// it in flight.
    fn free(&mut self, address: Address);

    /// Reserves `size` bytes of addresses without memory. `None` if the card has no virtual memory management
    /// or too few addresses; this is not a lack of memory.
    fn reserve(&mut self, _size: u64) -> Option<Address> {
        None
    }

    /// Maps memory to a piece of a region: whole granules, none of them mapped.
    fn map(&mut self, _at: Address, size: u64) -> Result<(), OutOfMemory> {
        Err(OutOfMemory { requested: size, free: 0 })
    }

    /// Takes the memory from a piece of a region: exactly the address and size of one `map`, with no work on
    /// it in flight. The addresses stay set aside and may be backed again.
    fn unmap(&mut self, _at: Address, _size: u64) {}

    /// Releases the addresses of a region without mapped memory: exactly the address and size of one
    /// `reserve`.
    fn release(&mut self, _at: Address, _size: u64) {}

    /// Records an event behind the submitted work of a stream. Every event ends in one
    /// [`PoolDevice::forget`].
    fn record(&mut self, stream: Stream) -> DeviceEvent;

    /// True if all the work before an event is done. Never waits.
    fn done(&mut self, event: DeviceEvent) -> bool;

    /// Waits on the CPU until an event is done. Where that fails, the event is not done afterwards, either.
    fn wait(&mut self, event: DeviceEvent);

    /// Has later work of a stream wait until an event is done: on the card where the device can, else on the
    /// CPU. A pool with one stream never calls it.
    fn order(&mut self, _stream: Stream, event: DeviceEvent) {
        self.wait(event);
    }

    /// Releases an event.
    fn forget(&mut self, event: DeviceEvent);

    /// Waits for the submitted work of a stream. False if that failed, and nothing may be given back.
    fn finish(&mut self, stream: Stream) -> bool {
        let event = self.record(stream);
        self.wait(event);
        let done = self.done(event);
        self.forget(event);
        done
    }

    /// True if a stream's work is being captured into a graph. Then none of the calls above may use it,
    /// and nothing may be freed or unmapped; memory allocated or mapped in the meantime is not part of the
    /// graph.
    fn capturing(&self, stream: Stream) -> bool;
}
