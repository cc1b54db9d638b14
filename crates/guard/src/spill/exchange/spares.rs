//! A spare granule on the card and one in host memory, through which granules change their places.

use core::ffi::c_uint;
use core::ptr::null_mut;

use super::super::vmm::{self, Location};
use crate::account::spilled;
use crate::clock;
use crate::driver::{AllocationHandle, CuResult, CuStream, DeviceOrdinal, DevicePointer, SUCCESS};
use crate::state::ranges::SpillPlace;
use crate::state::{CardIndex, ledger};

mod real {
    use super::*;

    crate::driver::real! {
        in CUDA;
        cuStreamCreate(stream: *mut CuStream, flags: c_uint);
        cuStreamDestroy_v2(stream: CuStream);
        cuStreamSynchronize(stream: CuStream);
        cuMemcpyDtoDAsync_v2(to: DevicePointer, from: DevicePointer, size: u64, stream: CuStream);
    }
}

/// CU_STREAM_NON_BLOCKING: does not wait for the default stream.
const NON_BLOCKING: c_uint = 1;

/// Copies of which the time is taken; each goes both ways, one after the other.
const COPIES: u64 = 8;

/// A granule that is mapped for copies, with a handle by which it can be mapped elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spare {
    pub(super) at: DevicePointer,
    /// None once its memory belongs to the program.
    pub(super) handle: Option<AllocationHandle>,
}

#[derive(Debug)]
pub(super) struct Spares {
    index: CardIndex,
    base: DevicePointer,
    pub(super) granule: u64,
    place: SpillPlace,
    pub(super) card: Spare,
    pub(super) host: Spare,
    stream: usize,
}

impl Spares {
    /// Takes both granules, within the budget and the limit of host memory.
    pub(super) fn make(index: CardIndex, granule: u64, place: SpillPlace) -> Option<Self> {
        let base = vmm::reserve(granule.checked_mul(2)?).ok()?;
        let none = |at| Spare { at, handle: None };
        let (card, host) = (none(base), none(base + granule));
        let mut spares = Self { index, base, granule, place, card, host, stream: 0 };
        spares.fill()?;
        Some(spares)
    }

    fn fill(&mut self) -> Option<()> {
        let (device, granule) = (self.device(), self.granule);
        let host = Location::of(self.place)?;
        if !ledger::take(self.index, granule) {
            return None;
        }
        match vmm::attach_held(self.card.at, granule, Location::card(device), device) {
            Ok(handle) => {
                self.card.handle = Some(handle);
                ledger::confirm(self.index, granule);
            }
            Err(_) => {
                ledger::take_back(self.index, granule);
                return None;
            }
        }
        if !spilled::take(self.index, granule) {
            return None;
        }
        match vmm::attach_held(self.host.at, granule, host, device) {
            Ok(handle) => self.host.handle = Some(handle),
            Err(_) => {
                spilled::give(self.index, granule);
                return None;
            }
        }
        let mut stream = null_mut();
        // SAFETY: the place is ours.
        let code = unsafe { real::cuStreamCreate(&raw mut stream, NON_BLOCKING) };
        self.stream = stream.expose_provenance();
        (code == SUCCESS).then_some(())
    }

    pub(super) const fn place(&self) -> Option<SpillPlace> {
        Some(self.place)
    }

    pub(super) fn device(&self) -> DeviceOrdinal {
        self.index.device()
    }

    fn stream(&self) -> CuStream {
        core::ptr::with_exposed_provenance_mut(self.stream)
    }

    /// Copies what leaves the card to the spare in host memory, and what comes to that of the card.
    pub(super) fn copy(&self, leaves: DevicePointer, comes: DevicePointer) -> Result<(), CuResult> {
        let copies = [(self.host.at, leaves), (self.card.at, comes)];
        // SAFETY: granules that are mapped; the stream is ours.
        let copy = |(to, from)| unsafe { real::cuMemcpyDtoDAsync_v2(to, from, self.granule, self.stream()) };
        let copied = copies.map(copy);
        // Waited for whatever failed: a copy that goes on must not meet what follows.
        // SAFETY: the stream is ours.
        let waited = unsafe { real::cuStreamSynchronize(self.stream()) };
        let failed = copied.into_iter().chain([waited]).find(|code| *code != SUCCESS);
        failed.map_or(Ok(()), Err)
    }

    /// Nanoseconds in which a granule comes to the card over the bus of this machine.
    pub(super) fn bus_time(&self) -> Option<u64> {
        let copy = || self.copy(self.card.at, self.host.at).ok();
        // The first copy sets up what later ones find.
        copy()?;
        let start = clock::now();
        (0..COPIES).try_for_each(|_| copy())?;
        Some((clock::now().saturating_sub(start) / (2 * COPIES)).max(1))
    }

    /// Gives the memory back after the driver has destroyed the stream.
    pub(super) fn without_stream(mut self) {
        self.stream = 0;
    }

    /// Counts a granule that has left the card for good.
    pub(super) fn gave_card(&self) {
        ledger::give(self.index, self.granule);
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        for spare in [self.card, self.host] {
            let _ = vmm::detach(spare.at, self.granule);
            if let Some(handle) = spare.handle {
                vmm::release(handle);
            }
        }
        let _ = vmm::free_addresses(self.base, 2 * self.granule);
        if self.card.handle.is_some() {
            ledger::give(self.index, self.granule);
        }
        if self.host.handle.is_some() {
            spilled::give(self.index, self.granule);
        }
        if self.stream != 0 {
            // SAFETY: ours, and idle.
            unsafe { real::cuStreamDestroy_v2(self.stream()) };
        }
    }
}
