//! Memory of a card for one of guard's pools, claimed from the budget before the driver is asked.

use std::collections::BTreeMap;

use plimsoll_pool::{Address, DeviceEvent, OutOfMemory, PoolDevice, Stream};

use crate::cards::CardIndex;
use crate::driver::{self, CuResult, DevicePointer, SUCCESS};
use crate::fence::Fence;
use crate::{captures, refusal};

/// Rounding of allocations in the account, as the driver aligns them.
const GRANULE: u64 = 512;

/// One allocation in which a pool places its blocks.
#[derive(Clone, Copy, Debug)]
struct Arena {
    base: Address,
    size: u64,
}

/// Access to the driver for one pool.
#[derive(Debug)]
pub(crate) struct Backing {
    card: CardIndex,
    /// Bytes that [`PoolDevice::reserve`] allocates; 0 without an arena.
    planned: u64,
    arena: Option<Arena>,
    /// True if a refusal is recorded, and waited for.
    insists: bool,
    allocations: BTreeMap<Address, u64>,
    fences: BTreeMap<u64, Fence>,
    next_fence: u64,
}

impl Backing {
    pub(crate) fn new(card: CardIndex, planned: u64) -> Self {
        Self {
            card,
            planned,
            arena: None,
            insists: false,
            allocations: BTreeMap::new(),
            fences: BTreeMap::new(),
            next_fence: 0,
        }
    }

    pub(crate) fn card(&self) -> CardIndex {
        self.card
    }

    pub(crate) fn insist(&mut self, insists: bool) {
        self.insists = insists;
    }

    /// True if an address lies in the arena.
    pub(crate) fn is_in_arena(&self, address: Address) -> bool {
        self.arena.is_some_and(|arena| (arena.base..arena.base.offset(arena.size)).contains(&address))
    }

    fn ask(&self, size: u64) -> Result<Address, OutOfMemory> {
        let mut pointer: DevicePointer = 0;
        let bytes = usize::try_from(size).unwrap_or(usize::MAX);
        // SAFETY: the place is ours.
        let mut real = || unsafe { driver::cuMemAlloc_v2(&raw mut pointer, bytes) };
        let code: CuResult = if self.insists {
            refusal::ask(self.card, size, &mut real)
        } else {
            refusal::attempt(self.card, size, &mut real).unwrap_or(driver::OUT_OF_MEMORY)
        };
        if code != SUCCESS {
            return Err(OutOfMemory { requested: size, free: self.card.headroom() });
        }
        self.card.reserve(size);
        Ok(Address(pointer))
    }

    fn give(&self, address: Address, size: u64) {
        // SAFETY: memory of `ask`, and the policy is done with it.
        unsafe { driver::cuMemFree_v2(address.0) };
        self.card.unreserve(size);
        self.card.give(size);
    }
}

impl PoolDevice for Backing {
    fn granule(&self) -> u64 {
        GRANULE
    }

    fn available(&self) -> u64 {
        match self.arena {
            // What the arena has is paid for, so growth in it needs no thrift.
            Some(_) => u64::MAX,
            None => self.card.headroom().min(driver::free_memory().unwrap_or(0)),
        }
    }

    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        let address = self.ask(size)?;
        self.allocations.insert(address, size);
        Ok(address)
    }

    fn free(&mut self, address: Address) {
        if let Some(size) = self.allocations.remove(&address) {
            self.give(address, size);
        }
    }

    // DECISION: an arena is a region whose memory is there from the start: `map` only checks its end, and
    // `unmap` frees nothing. So the driver is asked once, and a prompt frees nothing, which WDDM would do
    // late.
    fn reserve(&mut self, _size: u64) -> Option<Address> {
        let size = self.planned.checked_next_multiple_of(GRANULE).filter(|size| *size > 0)?;
        let base = self.ask(size).ok()?;
        self.arena = Some(Arena { base, size });
        Some(base)
    }

    fn map(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        let end = self.arena.map(|arena| arena.base.offset(arena.size));
        match end {
            Some(end) if at.offset(size) <= end => Ok(()),
            _ => Err(OutOfMemory { requested: size, free: end.map_or(0, |end| end.0.saturating_sub(at.0)) }),
        }
    }

    fn release(&mut self, _at: Address, _size: u64) {
        if let Some(arena) = self.arena.take() {
            self.give(arena.base, arena.size);
        }
    }

    fn record(&mut self, _: Stream) -> DeviceEvent {
        self.next_fence += 1;
        self.fences.insert(self.next_fence, Fence::record());
        DeviceEvent(self.next_fence)
    }

    fn done(&mut self, event: DeviceEvent) -> bool {
        self.fences.get(&event.0).is_some_and(Fence::is_done)
    }

    fn wait(&mut self, event: DeviceEvent) {
        if let Some(fence) = self.fences.get_mut(&event.0) {
            fence.wait();
        }
    }

    fn forget(&mut self, event: DeviceEvent) {
        self.fences.remove(&event.0);
    }

    fn capturing(&self, _: Stream) -> bool {
        captures::capturing()
    }
}
