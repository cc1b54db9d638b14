//! A pool's memory: the driver, as [`plimsoll_pool`] sees a card, within the budget.
//!
//! DECISION: every byte that comes from the driver is taken from the budget first, and charged to the card as it is mapped. A
//! refusal goes to the policy, which gives back what it holds idle; only when that does not help is the request made once more
//! with the ladder behind it ([`Backing::insist`]). Calls are made in the pool's own context, and where the thread is capturing,
//! in relaxed mode: none of them is part of what is captured.

use alloc::collections::BTreeMap;
use core::sync::atomic::Ordering;

use plimsoll_pool::{Address, Device, Event, OutOfMemory, Stream};

use super::fence::Fence;
use crate::account::request::{self, Outcome};
use crate::account::{self, CardIndex, tree};
use crate::driver::{self, CuResult, DevicePointer, SUCCESS};
use crate::graphs;
use crate::ladder::Instead;
use crate::spill::quiet::{self, Relaxed};
use crate::spill::vmm::{self, Location};
use crate::trace::{self, Kind};

mod real {
    use super::DevicePointer;

    crate::driver::real! {
        in CUDA;
        cuMemAlloc_v2(pointer: *mut DevicePointer, size: u64);
        cuMemFree_v2(pointer: DevicePointer);
    }
}

#[derive(Debug)]
pub(super) struct Backing {
    card: CardIndex,
    /// The context in which the pool was first used, by its address.
    context: usize,
    /// Of virtual memory management; 0 where the card has none.
    granule: u64,
    /// The number of the pool in the trace.
    pool: u8,
    /// Whether a refusal climbs the ladder.
    insist: bool,
    /// Sizes of what came from `cuMemAlloc`.
    allocations: BTreeMap<Address, u64>,
    /// Sizes of the mappings.
    mappings: BTreeMap<Address, u64>,
    fences: BTreeMap<u64, Fence>,
    next_fence: u64,
}

/// What every allocation is rounded up to in the account where the card has no granule of its own to tell.
const LINEAR_GRANULE: u64 = 512;

impl Backing {
    /// Memory of the card of the calling thread's context; `None` without one.
    pub(super) fn here(pool: u8) -> Option<Self> {
        let card = account::current()?;
        Some(Self {
            card,
            context: Some(quiet::context()).filter(|context| *context != 0)?,
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

    /// Whether the next refusals climb the ladder.
    pub(super) fn insist(&mut self, insist: bool) {
        self.insist = insist;
    }

    /// Waits for everything that the pool's context submitted. False if it may not be waited for now.
    pub(super) fn synchronize(&self) -> bool {
        // An error is the program's, and its work is over with it.
        quiet::synchronise(self.context).is_some()
    }

    /// Runs `act` in the pool's context, so that no capture notices.
    fn within<R>(&self, act: impl FnOnce() -> R) -> R {
        let _relaxed = Relaxed::begin();
        if quiet::context() == self.context {
            act()
        } else {
            quiet::in_context(self.context, act)
        }
    }

    /// Lets another card use this memory, as `cuMemAlloc`'s follows of itself.
    pub(super) fn grant(&self, user: driver::Device) {
        for (at, size) in &self.mappings {
            // A card that gets no access finds out when it touches the memory.
            let _ = vmm::grant(at.0, *size, user);
        }
    }

    /// What the card and the budget have left.
    fn free_now(&self) -> u64 {
        let free = self.within(vmm::memory).map_or(0, |(free, _)| free);
        tree::headroom(self.card).min(free)
    }

    /// Has the driver give `size` bytes by `give`, within the budget.
    fn ask(&self, size: u64, mut give: impl FnMut() -> CuResult) -> Result<(), OutOfMemory> {
        let mut ask = || self.within(&mut give);
        let given = if self.insist {
            request::ask(self.card, size, Instead::Nothing, &mut ask) == Outcome::Given
        } else {
            request::once(self.card, size, Instead::Nothing, &mut ask) == Ok(Outcome::Given)
        };
        if !given {
            let (asked, free) = (size, self.free_now());
            return Err(OutOfMemory { asked, free });
        }
        let card = account::card(self.card);
        card.reserved.fetch_add(size, Ordering::Relaxed);
        card.idle.fetch_add(size, Ordering::Relaxed);
        card.raise_peaks();
        self.tell(Kind::Map, size);
        Ok(())
    }

    fn given_back(&self, size: u64) {
        let card = account::card(self.card);
        tree::give(self.card, size);
        card.reserved.fetch_sub(size, Ordering::Relaxed);
        card.idle.fetch_sub(size, Ordering::Relaxed);
        self.tell(Kind::Unmap, size);
    }

    fn tell(&self, kind: Kind, size: u64) {
        let event = trace::Event {
            size,
            pool: self.pool,
            ..trace::Event::on(self.card)
        };
        trace::emit(kind, event);
    }
}

/// What regions are made of; 0 where there can be none. Found out by making one: a driver may say that it has virtual memory
/// management and refuse it all the same (containers, WSL).
fn granule(device: driver::Device) -> u64 {
    let _relaxed = Relaxed::begin();
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

impl Device for Backing {
    fn granule(&self) -> u64 {
        if self.granule > 0 {
            self.granule
        } else {
            LINEAR_GRANULE
        }
    }

    /// A region goes by the budget alone: it maps a few MiB ahead, which a driver that has not got them refuses without harm, and
    /// each question to the driver would cost as much as the map that is saved. Where a refusal climbs the ladder, nothing is
    /// asked for but the need.
    fn available(&self) -> u64 {
        match (self.has_regions(), self.insist) {
            (true, true) => 0,
            (true, false) => tree::headroom(self.card),
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
        // What cannot be unmapped is not counted any more: its context is gone, and the memory with it.
        let _ = self.within(|| vmm::detach(at.0, size));
        self.mappings.remove(&at);
        self.given_back(size);
    }

    fn release(&mut self, at: Address, size: u64) {
        let _ = self.within(|| vmm::free_addresses(at.0, size));
    }

    fn record(&mut self, _: Stream) -> Event {
        let fence = self.within(|| Fence::record(self.context));
        self.next_fence += 1;
        self.fences.insert(self.next_fence, fence);
        Event(self.next_fence)
    }

    fn done(&mut self, event: Event) -> bool {
        self.fences.get(&event.0).is_some_and(Fence::done)
    }

    fn wait(&mut self, event: Event) {
        let over = self.synchronize();
        if let Some(fence) = self.fences.get_mut(&event.0).filter(|_| over) {
            fence.over();
        }
    }

    /// A pool has one stream, so that this is never asked for; waiting is right whatever the streams are.
    fn order(&mut self, _: Stream, event: Event) {
        self.wait(event);
    }

    fn forget(&mut self, event: Event) {
        self.fences.remove(&event.0);
    }

    fn capturing(&self, _: Stream) -> bool {
        graphs::capturing()
    }
}
