//! Tests once per card whether a kind of host memory can follow device memory in a spilled allocation.
//!
//! A memset, a kernel and a copy cross the border between device and host memory, and the bytes are compared.

use alloc::vec;
use core::ffi::c_void;

use super::make;
use super::own_stream::OwnStream;
use super::touch::TouchKernel;
use super::vmm::{self, Location};
use crate::driver::{CuResult, CuStream, DevicePointer, SUCCESS};
use crate::policy::placement::BorderCopies;
use crate::state::ranges::SpillPlace;
use crate::state::{CardIndex, ledger};

mod real {
    use super::*;

    crate::driver::real! {
        by INTERFACE;
        cuMemsetD8Async = hipMemsetD8Async(at: DevicePointer, value: u8, count: u64, stream: CuStream);
        cuMemcpyDtoHAsync_v2 = hipMemcpyDtoHAsync(to: *mut c_void, from: DevicePointer, size: u64, stream: CuStream);
    }
}

/// Bytes touched on each side of the border.
const TOUCHED: u64 = 4096;

/// Guard's own stream and, if the driver can compile it, the test kernel that runs in it.
#[derive(Debug)]
struct ProbeStream {
    stream: OwnStream,
    kernel: Option<TouchKernel>,
}

impl ProbeStream {
    fn new() -> Option<Self> {
        Some(Self { stream: OwnStream::new()?, kernel: TouchKernel::load() })
    }

    /// Fills `size` bytes with `value`, has the kernel add one to each, and reads them back. Err is the code
    /// of the first failure.
    fn touch(&self, at: DevicePointer, size: u64, value: u8) -> Result<bool, CuResult> {
        let expected = value + u8::from(self.kernel.is_some());
        // Filled with the complement: bytes that were never copied cannot pass for the expected ones.
        let mut back = vec![!expected; usize::try_from(size).unwrap_or(0)];
        let stream = self.stream.handle();
        let kernel = |kernel: &TouchKernel| kernel.touch(at, size, stream);
        // SAFETY: the addresses are mapped by us, and the buffer has room for `size` bytes. Both outlive the
        // work, which is waited for whatever failed.
        let codes = unsafe {
            [
                real::cuMemsetD8Async(at, value, size, stream),
                self.kernel.as_ref().map_or(SUCCESS, kernel),
                real::cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), at, size, stream),
                self.stream.wait(),
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

/// Test range: a granule of the card followed by a granule of host memory.
#[derive(Debug)]
struct BorderTrial {
    card: CardIndex,
    base: DevicePointer,
    granule: u64,
    head: bool,
    tail: bool,
}

impl BorderTrial {
    fn new(index: CardIndex, place: SpillPlace) -> Option<Self> {
        let device = index.device();
        let granule = make::granule(index, Some(place)).ok()?;
        let mut trial =
            Self { card: index, base: vmm::reserve(2 * granule).ok()?, granule, head: false, tail: false };
        let location = Location::of(place)?;
        trial.tail = vmm::attach(trial.base + granule, granule, location, device).is_ok();
        if trial.tail && ledger::take(index, granule) {
            trial.head = vmm::attach(trial.base, granule, Location::card(device), device).is_ok();
            if !trial.head {
                ledger::take_back(index, granule);
            }
        }
        trial.tail.then_some(trial)
    }

    fn result(&self) -> Option<BorderCopies> {
        let stream = ProbeStream::new()?;
        let border = self.base + self.granule;
        if self.head && stream.reaches(border - TOUCHED, 2 * TOUCHED, 0x5a) {
            return Some(BorderCopies::Whole);
        }
        // Without a head only the host memory can be tried.
        (!self.head && stream.reaches(border, TOUCHED, 0xa5)).then_some(BorderCopies::Untried)
    }
}

impl Drop for BorderTrial {
    fn drop(&mut self) {
        if self.tail {
            let _ = vmm::detach(self.base + self.granule, self.granule);
        }
        if self.head {
            let _ = vmm::detach(self.base, self.granule);
            ledger::take_back(self.card, self.granule);
        }
        let _ = vmm::free_addresses(self.base, 2 * self.granule);
    }
}

/// Tries whether copies cross from the card's memory into `place`; None if the place cannot be used.
pub(crate) fn probe(card: CardIndex, place: SpillPlace) -> Option<BorderCopies> {
    BorderTrial::new(card, place)?.result()
}
