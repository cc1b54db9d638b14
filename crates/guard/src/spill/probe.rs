//! Whether a place can hold a tail on this card, found out by trying: once per card, at its first spill.
//!
//! A granule of the place is mapped behind a granule of the card; a memset, a kernel and a copy cross the border, and what comes
//! back is compared. If the crossing is refused, both halves are tried alone. All runs in a stream of its own that waits for no
//! other, so that a busy program is not held up.

use alloc::vec;
use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;

use super::cascade::{Crossing, Place};
use super::make;
use super::touch::Kernel;
use super::vmm::{self, Location};
use crate::account::{CardIndex, tree};
use crate::driver::{CuResult, DevicePointer, SUCCESS, Stream};

mod real {
    use super::*;

    crate::driver::real! {
        in CUDA;
        cuStreamCreate(stream: *mut Stream, flags: c_uint);
        cuStreamDestroy_v2(stream: Stream);
        cuStreamSynchronize(stream: Stream);
        cuMemsetD8Async(at: DevicePointer, value: u8, count: u64, stream: Stream);
        cuMemcpyDtoHAsync_v2(to: *mut c_void, from: DevicePointer, size: u64, stream: Stream);
    }
}

/// Does not wait for the default stream.
const NON_BLOCKING: c_uint = 1;
/// Bytes touched on each side of the border.
const TOUCHED: u64 = 4096;

/// A stream of guard's own, and the kernel that runs in it, where there is one.
#[derive(Debug)]
struct Hand {
    stream: Stream,
    kernel: Option<Kernel>,
}

impl Hand {
    fn new() -> Option<Self> {
        let mut stream = null_mut();
        // SAFETY: the place is ours.
        let code = unsafe { real::cuStreamCreate(&raw mut stream, NON_BLOCKING) };
        (code == SUCCESS).then(|| Self {
            stream,
            kernel: Kernel::load(),
        })
    }

    /// Fills `size` bytes with `value`, has the kernel add one to each, and reads them back; the code of what failed.
    fn touch(&self, at: DevicePointer, size: u64, value: u8) -> Result<bool, CuResult> {
        let expected = value + u8::from(self.kernel.is_some());
        let mut back = vec![!expected; usize::try_from(size).unwrap_or(0)];
        let kernel = |kernel: &Kernel| kernel.touch(at, size, self.stream);
        // SAFETY: the addresses are mapped by us, and the buffer has room for `size` bytes. Both outlive the work, which is waited
        // for whatever failed.
        let codes = unsafe {
            [
                real::cuMemsetD8Async(at, value, size, self.stream),
                self.kernel.as_ref().map_or(SUCCESS, kernel),
                real::cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), at, size, self.stream),
                real::cuStreamSynchronize(self.stream),
            ]
        };
        match codes.into_iter().find(|code| *code != SUCCESS) {
            Some(code) => Err(code),
            None => Ok(back.iter().all(|byte| *byte == expected)),
        }
    }

    fn reaches(&self, at: DevicePointer, size: u64, value: u8) -> bool {
        self.touch(at, size, value) == Ok(true)
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        // SAFETY: ours, and idle.
        unsafe { real::cuStreamDestroy_v2(self.stream) };
    }
}

/// Two granules of addresses, and what is mapped there.
#[derive(Debug)]
struct Trial {
    card: CardIndex,
    base: DevicePointer,
    granule: u64,
    head: bool,
    tail: bool,
}

impl Trial {
    fn new(index: CardIndex, place: Place) -> Option<Self> {
        let device = index.device();
        let granule = make::granule(index, Some(place)).ok()?;
        let mut trial = Self {
            card: index,
            base: vmm::reserve(2 * granule).ok()?,
            granule,
            head: false,
            tail: false,
        };
        let location = Location::of(place)?;
        trial.tail = vmm::attach(trial.base + granule, granule, location, device).is_ok();
        if trial.tail && tree::take(index, granule) {
            trial.head = vmm::attach(trial.base, granule, Location::card(device), device).is_ok();
            if !trial.head {
                tree::take_back(index, granule);
            }
        }
        trial.tail.then_some(trial)
    }

    fn verdict(&self) -> Option<Crossing> {
        let hand = Hand::new()?;
        let border = self.base + self.granule;
        if self.head && hand.reaches(border - TOUCHED, 2 * TOUCHED, 0x5a) {
            return Some(Crossing::Whole);
        }
        let tail = hand.reaches(border, TOUCHED, 0xa5);
        let head = !self.head || hand.reaches(border - TOUCHED, TOUCHED, 0x3c);
        match (tail && head, self.head) {
            (false, _) => None,
            (true, true) => Some(Crossing::Cut),
            (true, false) => Some(Crossing::Untried),
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if self.tail {
            let _ = vmm::detach(self.base + self.granule, self.granule);
        }
        if self.head {
            let _ = vmm::detach(self.base, self.granule);
            tree::take_back(self.card, self.granule);
        }
        let _ = vmm::free_addresses(self.base, 2 * self.granule);
    }
}

/// Whether copies cross from the card's memory into `place`; None if the place cannot be used at all.
pub(crate) fn probe(card: CardIndex, place: Place) -> Option<Crossing> {
    Trial::new(card, place)?.verdict()
}
