//! Allocates memory for guard's replacement of a ggml pool from the CUDA driver, within the program's budget.
//!
//! Every byte is claimed from the budget before the driver is called.

use alloc::collections::BTreeMap;
use core::sync::atomic::Ordering;

use plimsoll_pool::{Address, DeviceEvent, OutOfMemory, PoolDevice, Stream};

use super::fence::StreamFence;
use crate::account::Substitute;
use crate::account::claim::{self, ClaimOutcome};
use crate::driver::{self, CuResult, DevicePointer, SUCCESS};
use crate::driver_guard::{self, RelaxedCapture};
use crate::ladder;
use crate::spill::vmm::{self, Location};
use crate::state::{self, CardIndex, captures, ledger};
use crate::trace::{TraceEvent, TraceKind};

mod real {
    use super::DevicePointer;

    crate::driver::real! {
        by INTERFACE;
        cuMemAlloc_v2 = hipMalloc(pointer: *mut DevicePointer, size: u64);
        cuMemFree_v2 = hipFree(pointer: DevicePointer);
    }
}

/// Access to the driver for one pool.
#[derive(Debug)]
pub(super) struct Backing {
    card: CardIndex,
    /// The context in which the pool was first used, by its address.
    context: usize,
    /// Of virtual memory management; 0 where the card has none.
    granule: u64,
    /// The number of the pool in the trace.
    pool: u8,
    /// True if a refusal climbs the ladder.
    insist: bool,
    /// Sizes of allocations from `cuMemAlloc`.
    allocations: BTreeMap<Address, u64>,
    /// Sizes of the mappings.
    mappings: BTreeMap<Address, u64>,
    fences: BTreeMap<u64, StreamFence>,
    next_fence: u64,
}

/// Rounding of allocations in the account where the card has no granule of virtual memory management.
const LINEAR_GRANULE: u64 = 512;

impl Backing {
    /// Memory of the card of the calling thread's context; `None` without one.
    pub(super) fn here(pool: u8) -> Option<Self> {
        let card = driver_guard::current_card()?;
        Some(Self {
            card,
            context: Some(driver_guard::context()).filter(|context| *context != 0)?,
            granule: granule(card.device()),
            pool,
            insist: false,
            allocations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            fences: BTreeMap::new(),
            next_fence: 0,
        })
    }

    pub(super) fn card(&self) -> CardIndex {
        self.card
    }

    pub(super) fn has_regions(&self) -> bool {
        self.granule > 0
    }

    /// Sets whether the next refusals climb the ladder.
    pub(super) fn insist(&mut self, insist: bool) {
        self.insist = insist;
    }

    /// Waits for all submitted work of the pool's context. False if a capture forbids it now.
    pub(super) fn synchronize(&self) -> bool {
        // An error is the program's, and its work is over with it.
        driver_guard::synchronise(self.context).is_some()
    }

    /// Runs `act` in the pool's context, invisible to captures.
    fn within<R>(&self, act: impl FnOnce() -> R) -> R {
        let _relaxed = RelaxedCapture::begin();
        if driver_guard::context() == self.context {
            act()
        } else {
            driver_guard::in_context(self.context, act)
        }
    }

    /// Gives another card access to this memory, as `cuMemAlloc` memory gets by itself.
    pub(super) fn grant(&self, user: driver::DeviceOrdinal) {
        for (at, size) in &self.mappings {
            // A card that gets no access finds out when it touches the memory.
            let _ = vmm::grant(at.0, *size, user);
        }
    }

    /// Free bytes of the card, within the budget.
    fn free_now(&self) -> u64 {
        let free = self.within(driver_guard::memory).map_or(0, |(free, _)| free);
        ledger::headroom(self.card).min(free)
    }

    /// Asks the driver for `size` bytes by `give`, within the budget.
    fn ask(&self, size: u64, mut give: impl FnMut() -> CuResult) -> Result<(), OutOfMemory> {
        // DECISION: after a refusal, the pool first releases its own idle memory, then tries the ladder (a
        // sequence of remedies, `Backing::insist`).
        let mut ask = || self.within(&mut give);
        let given = if self.insist {
            ladder::ask(self.card, size, Substitute::Nothing, &mut ask) == ClaimOutcome::Given
        } else {
            claim::once(self.card, size, Substitute::Nothing, &mut ask) == Ok(ClaimOutcome::Given)
        };
        if !given {
            let (requested, free) = (size, self.free_now());
            return Err(OutOfMemory { requested, free });
        }
        let card = state::card(self.card);
        card.reserved.fetch_add(size, Ordering::Relaxed);
        card.idle.fetch_add(size, Ordering::Relaxed);
        card.raise_peaks();
        self.notify(TraceKind::Map, size);
        Ok(())
    }

    fn given_back(&self, size: u64) {
        let card = state::card(self.card);
        ledger::give(self.card, size);
        card.reserved.fetch_sub(size, Ordering::Relaxed);
        card.idle.fetch_sub(size, Ordering::Relaxed);
        self.notify(TraceKind::Unmap, size);
    }

    fn notify(&self, kind: TraceKind, size: u64) {
        let event = TraceEvent::on(self.card).of(0, size);
        let pool = self.pool;
        TraceEvent { pool, ..event }.emit(kind);
    }
}

/// Granule of regions; 0 where there can be none. Found out by making one: a driver may report virtual memory
/// management and refuse it all the same (containers, WSL).
fn granule(device: driver::DeviceOrdinal) -> u64 {
    let _relaxed = RelaxedCapture::begin();
    let Ok(granule) = vmm::granule(device) else {
        return 0;
    };
    let works = vmm::reserve(granule).is_ok_and(|at| {
        let attached = vmm::attach(at, granule, Location::card(device), device);
        if attached.is_ok() {
            let _ = vmm::detach(at, granule);
        }
        let _ = vmm::free_addresses(at, granule);
        // A card that is full is not one without virtual memory.
        attached.is_ok() || attached == Err(driver::OUT_OF_MEMORY)
    });
    if works { granule } else { 0 }
}

impl PoolDevice for Backing {
    fn granule(&self) -> u64 {
        if self.granule > 0 { self.granule } else { LINEAR_GRANULE }
    }

    /// Free bytes for a region, by the budget alone. A region maps a few MiB ahead, a driver without them
    /// refuses harmlessly, and cuMemGetInfo would cost as much as the map that it saves. While refusals climb
    /// the ladder, nothing is mapped ahead.
    fn available(&self) -> u64 {
        match (self.has_regions(), self.insist) {
            (true, true) => 0,
            (true, false) => ledger::headroom(self.card),
            (false, _) => self.free_now(),
        }
    }

    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        let mut pointer: DevicePointer = 0;
        // SAFETY: the place is ours.
        self.ask(size, || unsafe { real::cuMemAlloc_v2(&raw mut pointer, size) })?;
        self.allocations.insert(Address(pointer), size);
        Ok(Address(pointer))
    }

    fn free(&mut self, address: Address) {
        let Some(size) = self.allocations.remove(&address) else {
            return;
        };
        // SAFETY: of `allocate`, and the policy is done with it.
        self.within(|| unsafe { real::cuMemFree_v2(address.0) });
        self.given_back(size);
    }

    fn reserve(&mut self, size: u64) -> Option<Address> {
        (self.granule > 0).then_some(())?;
        self.within(|| vmm::reserve(size)).ok().map(Address)
    }

    fn map(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        let device = self.card.device();
        let attach = || vmm::attach(at.0, size, Location::card(device), device);
        self.ask(size, || attach().err().unwrap_or(SUCCESS))?;
        self.mappings.insert(at, size);
        Ok(())
    }

    fn unmap(&mut self, at: Address, size: u64) {
        // A mapping that cannot be removed is not counted any more: its context is gone, and the memory with
        // it.
        let _ = self.within(|| vmm::detach(at.0, size));
        self.mappings.remove(&at);
        self.given_back(size);
    }

    fn release(&mut self, at: Address, size: u64) {
        let _ = self.within(|| vmm::free_addresses(at.0, size));
    }

    fn record(&mut self, _: Stream) -> DeviceEvent {
        let fence = self.within(|| StreamFence::record(self.context));
        self.next_fence += 1;
        self.fences.insert(self.next_fence, fence);
        DeviceEvent(self.next_fence)
    }

    fn done(&mut self, event: DeviceEvent) -> bool {
        self.fences.get(&event.0).is_some_and(StreamFence::done)
    }

    fn wait(&mut self, event: DeviceEvent) {
        let over = self.synchronize();
        if let Some(fence) = self.fences.get_mut(&event.0).filter(|_| over) {
            fence.over();
        }
    }

    fn forget(&mut self, event: DeviceEvent) {
        self.fences.remove(&event.0);
    }

    fn capturing(&self, _: Stream) -> bool {
        captures::capturing()
    }
}
