//! Tracks which physical memory lies behind the program's addresses, and which is spare for the next exchange
//! between card and host memory.
//!
//! Spare memory has an address of guard's, to which is copied. Memory keeps that address when it becomes the
//! program's, so it costs no call of the driver to be spare again: the calls take most of the time of an
//! exchange.

use alloc::vec::Vec;

use super::super::vmm::{self, Location};
use super::SPARES;
use super::swap::GranulePlace;
use crate::account::spilled;
use crate::driver::{AllocationHandle, CuResult, DevicePointer};
use crate::state::ranges::SpillPlace;
use crate::state::{CardIndex, ledger};

/// Number of a frame: the memory of one granule.
pub(super) type FrameNumber = usize;

#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    /// None for memory that has never been exchanged, and for memory that is gone.
    handle: Option<AllocationHandle>,
    /// True if it is mapped at its address of guard's.
    is_mapped: bool,
}

#[derive(Debug)]
pub(super) struct Frames {
    index: CardIndex,
    place: SpillPlace,
    pub(super) granule: u64,
    /// Addresses of guard's, one for each frame.
    base: DevicePointer,
    frames: Vec<Frame>,
    /// The frame behind each of the program's granules.
    behind: Vec<FrameNumber>,
    /// Spare frames; each spare of the one kind is used with that of the other in the same place.
    card: Vec<FrameNumber>,
    host: Vec<FrameNumber>,
}

impl Frames {
    /// Frames of so many granules of the program, and [`SPARES`] of each kind within the budget and the limit
    /// of host memory; None without the memory.
    pub(super) fn make(index: CardIndex, granule: u64, place: SpillPlace, count: usize) -> Option<Self> {
        let all = count + 2 * SPARES;
        let size = granule.checked_mul(u64::try_from(all).ok()?)?;
        let mut frames = Self {
            index,
            place,
            granule,
            base: vmm::reserve(size).ok()?,
            frames: alloc::vec![Frame::default(); all],
            behind: (0..count).collect(),
            card: Vec::new(),
            host: Vec::new(),
        };
        for number in (count..all).step_by(2) {
            frames.add_card(number)?;
            frames.add_host(number + 1)?;
        }
        Some(frames)
    }

    fn add_card(&mut self, number: FrameNumber) -> Option<()> {
        if !ledger::take(self.index, self.granule) {
            return None;
        }
        if self.create(number, Location::card(self.index.device())).is_err() {
            ledger::take_back(self.index, self.granule);
            return None;
        }
        ledger::confirm(self.index, self.granule);
        self.card.push(number);
        Some(())
    }

    fn add_host(&mut self, number: FrameNumber) -> Option<()> {
        let location = Location::of(self.place)?;
        if !spilled::take(self.index, self.granule) {
            return None;
        }
        if self.create(number, location).is_err() {
            spilled::give(self.index, self.granule);
            return None;
        }
        self.host.push(number);
        Some(())
    }

    fn create(&mut self, number: FrameNumber, location: Location) -> Result<(), CuResult> {
        let handle = vmm::attach_occupied(self.at(number), self.granule, location, self.index.device())?;
        self.set(number, Frame { handle: Some(handle), is_mapped: true });
        Ok(())
    }

    fn set(&mut self, number: FrameNumber, to: Frame) {
        if let Some(frame) = self.frames.get_mut(number) {
            *frame = to;
        }
    }

    fn get(&self, number: FrameNumber) -> Frame {
        self.frames.get(number).copied().unwrap_or_default()
    }

    /// The address of guard's for a frame.
    fn at(&self, number: FrameNumber) -> DevicePointer {
        self.base + self.granule * u64::try_from(number).unwrap_or(0)
    }

    pub(super) const fn place(&self) -> SpillPlace {
        self.place
    }

    pub(super) const fn index(&self) -> CardIndex {
        self.index
    }

    /// Addresses of the spare memory on the card and in host memory with this number below [`SPARES`].
    pub(super) fn spares(&self, number: usize) -> Option<(DevicePointer, DevicePointer)> {
        Some((self.at(*self.card.get(number)?), self.at(*self.host.get(number)?)))
    }

    /// Spare memory of both kinds with this number, by its handles.
    pub(super) fn spare_handles(&self, number: usize) -> Option<(AllocationHandle, AllocationHandle)> {
        Some((self.get(*self.card.get(number)?).handle?, self.get(*self.host.get(number)?).handle?))
    }

    /// The memory behind a granule of the program.
    pub(super) fn handle_behind(&mut self, granule: GranulePlace) -> Option<AllocationHandle> {
        let number = *self.behind.get(granule.number)?;
        let frame = self.get(number);
        if frame.handle.is_none() {
            let handle = Some(vmm::retain(granule.at).ok()?);
            self.set(number, Frame { handle, ..frame });
        }
        self.get(number).handle
    }

    /// Notes that the spare memory with this number is now behind two granules of the program, one that left
    /// the card and one that came to it. Their former memory becomes the spare. False if that cannot be used.
    pub(super) fn exchanged(&mut self, spare: usize, left: GranulePlace, came: GranulePlace) -> bool {
        let (Some(&of_host), Some(&of_card)) = (self.host.get(spare), self.card.get(spare)) else {
            return false;
        };
        let (Some(&has_left), Some(&has_come)) = (self.behind.get(left.number), self.behind.get(came.number))
        else {
            return false;
        };
        put(&mut self.behind, left.number, of_host);
        put(&mut self.behind, came.number, of_card);
        put(&mut self.card, spare, has_left);
        put(&mut self.host, spare, has_come);
        self.map(has_left) && self.map(has_come)
    }

    /// Maps a frame at its address of guard's.
    fn map(&mut self, number: FrameNumber) -> bool {
        let frame = self.get(number);
        let Some(handle) = frame.handle else { return false };
        let is_mapped =
            frame.is_mapped || vmm::put(self.at(number), self.granule, handle, self.index.device()).is_ok();
        self.set(number, Frame { is_mapped, ..frame });
        is_mapped
    }

    /// Notes that spare host memory is behind a granule that left the card, and that nothing came in its
    /// place.
    pub(super) fn lost(&mut self, spare: usize, left: GranulePlace) {
        if spare >= self.host.len() {
            return;
        }
        let number = self.host.swap_remove(spare);
        let Some(&has_left) = self.behind.get(left.number) else { return };
        put(&mut self.behind, left.number, number);
        self.free(has_left);
        ledger::give(self.index, self.granule);
    }

    /// Gives up guard's hold on a frame, whose memory is freed unless the program has it.
    fn free(&mut self, number: FrameNumber) {
        let frame = self.get(number);
        if frame.is_mapped {
            let _ = vmm::detach(self.at(number), self.granule);
        }
        if let Some(handle) = frame.handle {
            vmm::release(handle);
        }
        self.set(number, Frame::default());
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        (0..self.frames.len()).for_each(|number| self.free(number));
        let size = self.granule * u64::try_from(self.frames.len()).unwrap_or(0);
        let _ = vmm::free_addresses(self.base, size);
        self.card.iter().for_each(|_| ledger::give(self.index, self.granule));
        self.host.iter().for_each(|_| spilled::give(self.index, self.granule));
    }
}

fn put(frames: &mut [FrameNumber], at: usize, number: FrameNumber) {
    if let Some(place) = frames.get_mut(at) {
        *place = number;
    }
}
