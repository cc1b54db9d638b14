//! Grants the engine's requests for device, managed, pool and pinned host memory, and counts them for the
//! simulated card.
//!
//! A request succeeds even if the simulated card is full, because the plan needs the total.

use alloc::collections::BTreeMap;
use core::ffi::c_void;
use core::ptr::null_mut;

use crate::cards::Card;
use crate::report::Report;
use crate::system::{Lock, map, unmap};

/// The driver's large page: every large allocation is a whole number of them.
pub(crate) const PAGE: u64 = 2 << 20;
/// From this size on, an allocation has pages of its own.
const LARGE: u64 = 1 << 20;

/// The interface by which memory was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `cudaMalloc`.
    Device,
    /// `cudaMallocManaged`: the host may touch it.
    Managed,
    /// `cuMemCreate`: physical memory of ggml's virtual pool.
    Pool,
    /// `vkAllocateMemory`, of the card's memory.
    Vulkan,
    /// The same, where the host may map it.
    VulkanMapped,
    /// `cudaMallocHost`, `cudaHostAlloc`, and `vkAllocateMemory` of the host's memory.
    Host,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Managed => "managed",
            Self::Pool => "pool",
            Self::Vulkan | Self::VulkanMapped => "vulkan",
            Self::Host => "host",
        }
    }

    fn access(self) -> Access {
        // DECISION: device and pool memory are addresses without access; other memory is real.
        match self {
            Self::Device | Self::Pool | Self::Vulkan => Access::None,
            Self::Managed | Self::VulkanMapped | Self::Host => Access::Full,
        }
    }
}

/// What the host may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    None,
    Full,
}

pub(crate) struct Memory {
    report: Report,
    ledger: Lock<Ledger>,
}

#[derive(Default)]
struct Ledger {
    /// By address: what `cudaMalloc` and the like returned, and what is mapped of a pool.
    taken: BTreeMap<usize, Taken>,
    /// Physical memory that is not mapped yet, by handle.
    handles: BTreeMap<u64, Taken>,
    /// Address ranges of pools, and their sizes.
    ranges: BTreeMap<usize, usize>,
    /// Bytes in use on each card.
    used: [u64; Card::MOST],
    next: u64,
}

#[derive(Clone, Copy)]
struct Taken {
    number: u64,
    kind: Kind,
    card: usize,
    bytes: usize,
}

impl Taken {
    /// Bytes that it takes of its card.
    fn weighs(&self) -> u64 {
        let bytes = widened(self.bytes);
        match self.kind {
            Kind::Host => 0,
            _ if bytes >= LARGE => bytes.next_multiple_of(PAGE),
            _ => bytes,
        }
    }
}

impl Memory {
    pub(crate) fn new(report: Report) -> Self {
        Self { report, ledger: Lock::new(Ledger::default()) }
    }

    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    /// Free bytes now, given the bytes free at the start.
    pub(crate) fn free(&self, card: usize, at_start: u64) -> u64 {
        let used = self.ledger.hold().used.get(card).copied().unwrap_or(0);
        at_start.saturating_sub(used)
    }

    /// New memory; null where the address space is too small.
    pub(crate) fn take(&self, kind: Kind, card: usize, bytes: usize) -> *mut c_void {
        let mut ledger = self.ledger.hold();
        let Some(taken) = ledger.admit(kind, card, bytes) else { return null_mut() };
        let Some(address) = map(bytes, kind.access()) else {
            ledger.subtract(&taken);
            return null_mut();
        };
        ledger.taken.insert(address.addr(), taken);
        self.report.taken(taken.number, kind, card, bytes);
        address
    }

    /// Gives memory back; false where nothing begins there.
    pub(crate) fn give(&self, address: *mut c_void) -> bool {
        let mut ledger = self.ledger.hold();
        let Some(taken) = ledger.taken.remove(&address.addr()) else { return false };
        ledger.subtract(&taken);
        unmap(address, taken.bytes);
        self.report.given(taken.number);
        true
    }

    /// Physical memory of a pool, by handle; `None` where there is no such card.
    pub(crate) fn create(&self, card: usize, bytes: usize) -> Option<u64> {
        let mut ledger = self.ledger.hold();
        let taken = ledger.admit(Kind::Pool, card, bytes)?;
        ledger.handles.insert(taken.number, taken);
        self.report.taken(taken.number, Kind::Pool, card, bytes);
        Some(taken.number)
    }

    /// A handle is let go; memory that is mapped stays.
    pub(crate) fn release(&self, handle: u64) {
        let mut ledger = self.ledger.hold();
        if let Some(taken) = ledger.handles.remove(&handle) {
            ledger.subtract(&taken);
            self.report.given(handle);
        }
    }

    /// Memory of a handle at an address: it lives as long as the mapping.
    pub(crate) fn attach(&self, address: usize, handle: u64) -> bool {
        let mut ledger = self.ledger.hold();
        let taken = ledger.handles.remove(&handle);
        taken.is_some_and(|taken| ledger.taken.insert(address, taken).is_none())
    }

    /// Mappings of a range are released.
    pub(crate) fn detach(&self, address: usize, bytes: usize) {
        let mut ledger = self.ledger.hold();
        let end = address.saturating_add(bytes);
        while let Some((&start, &taken)) = ledger.taken.range(address..end).next() {
            ledger.taken.remove(&start);
            ledger.subtract(&taken);
            self.report.given(taken.number);
        }
    }

    /// Addresses for a pool.
    pub(crate) fn reserve(&self, bytes: usize) -> *mut c_void {
        let address = map(bytes, Access::None).unwrap_or(null_mut());
        if !address.is_null() {
            self.ledger.hold().ranges.insert(address.addr(), bytes);
        }
        address
    }

    pub(crate) fn unreserve(&self, address: *mut c_void) {
        if let Some(bytes) = self.ledger.hold().ranges.remove(&address.addr()) {
            unmap(address, bytes);
        }
    }
}

impl Ledger {
    fn admit(&mut self, kind: Kind, card: usize, bytes: usize) -> Option<Taken> {
        let taken = Taken { number: self.next, kind, card, bytes };
        let used = self.used.get_mut(card)?;
        *used = used.saturating_add(taken.weighs());
        self.next += 1;
        Some(taken)
    }

    fn subtract(&mut self, taken: &Taken) {
        if let Some(used) = self.used.get_mut(taken.card) {
            *used = used.saturating_sub(taken.weighs());
        }
    }
}

fn widened(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
