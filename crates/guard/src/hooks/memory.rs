//! Replaces `cuMemAlloc` and its variants, to count and limit linear device memory.
//!
//! Managed memory is counted only on cards where the driver cannot move it to the host.

use core::ffi::c_uint;

use crate::account::Substitute;
use crate::account::blocks::{BLOCKS, BlockKind, DeviceBlock};
use crate::account::claim::ClaimOutcome;
use crate::driver::{self, Attribute, CuResult, DevicePointer, SUCCESS, device_attribute};
use crate::driver_guard::current_card;
use crate::hooks::{hooks, unified};
use crate::state::{CardIndex, ledger};
use crate::{ggml, ladder, spill};

/// The driver rounds rows up to this, on every card there has been.
const ROW: u64 = 512;

hooks! {
    in CUDA;

    fn cuMemAlloc_v2 | hipMalloc = "cuMemAlloc" since 3020 (pointer: *mut DevicePointer, size: usize) calls real {
        linear(pointer, size, &mut || real(pointer, size))
    }

    fn cuMemAllocPitch_v2 | hipMemAllocPitch = "cuMemAllocPitch" since 3020
        (pointer: *mut DevicePointer, pitch: *mut usize, width: usize, height: usize, element: c_uint) calls real
    {
        pitched(pointer, pitch, width, height, &mut || real(pointer, pitch, width, height, element))
    }

    fn cuMemAllocManaged | hipMallocManaged = "cuMemAllocManaged" since 6000
        (pointer: *mut DevicePointer, size: usize, flags: c_uint) calls real
    {
        let ask = &mut || real(pointer, size, flags);
        let card = target(pointer);
        if let Some(index) = card {
            unified::say_once(index);
        }
        match card {
            Some(_) if unified::is_overflow_alone() => {
                linear(pointer, size, &mut || driver::cuMemAlloc_v2(pointer, size))
            }
            Some(index) if managed_stays(index) => allocate(index, pointer, bytes(size), Substitute::Nothing, ask),
            Some(index) => {
                let result = ask();
                if result == SUCCESS {
                    given(index, *pointer, bytes(size), BlockKind::Managed);
                }
                result
            }
            None => ask(),
        }
    }

    fn cuMemFree_v2 | hipFree = "cuMemFree" since 3020 (pointer: DevicePointer) calls real {
        let result = free(pointer, || real(pointer));
        ladder::answer();
        result
    }
}

/// A request for linear memory.
///
/// # Safety
/// `pointer` is null or can be written to.
pub(crate) unsafe fn linear(
    pointer: *mut DevicePointer,
    size: usize,
    ask: &mut dyn FnMut() -> CuResult,
) -> CuResult {
    ggml::look();
    match target(pointer) {
        // SAFETY: as the caller promises.
        Some(index) => unsafe { allocate(index, pointer, bytes(size), spillable(pointer, size), ask) },
        None => ask(),
    }
}

/// A request for rows that the driver aligns.
///
/// # Safety
/// `pointer` and `pitch` are null or can be written to.
pub(crate) unsafe fn pitched(
    pointer: *mut DevicePointer,
    pitch: *mut usize,
    width: usize,
    height: usize,
    ask: &mut dyn FnMut() -> CuResult,
) -> CuResult {
    let Some(index) = target(pointer).filter(|_| !pitch.is_null()) else { return ask() };
    // The pitch is known only after the call; the claim is corrected to it below.
    let row = bytes(width).saturating_add(ROW - 1) / ROW * ROW;
    let expected = row.saturating_mul(bytes(height));
    let outcome = ladder::ask(index, expected, Substitute::Range(pointer, expected), ask);
    if outcome == ClaimOutcome::Elsewhere {
        // SAFETY: not null, and so to be written to.
        unsafe { pitch.write(usize::try_from(row).unwrap_or(width)) };
    }
    if outcome == ClaimOutcome::Given {
        // SAFETY: the driver succeeded, so it has written both.
        let (pointer, pitch) = unsafe { (*pointer, *pitch) };
        let size = bytes(pitch).saturating_mul(bytes(height));
        ledger::charge(index, size.saturating_sub(expected));
        ledger::give(index, expected.saturating_sub(size));
        given(index, pointer, size, BlockKind::Linear);
    }
    outcome.code()
}

/// The card of a request; None for a null pointer or a thread without a context, for which the driver has its
/// own answer.
fn target(place: *mut DevicePointer) -> Option<CardIndex> {
    if place.is_null() { None } else { current_card() }
}

pub(crate) fn bytes(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

fn spillable(pointer: *mut DevicePointer, size: usize) -> Substitute {
    Substitute::Range(pointer, bytes(size))
}

/// True if managed memory of this card stays on it, because the driver cannot move it while kernels run.
fn managed_stays(index: CardIndex) -> bool {
    device_attribute(index.device(), Attribute::ConcurrentManagedAccess, 1) == 0
}

/// # Safety
/// After `ask` succeeds, `pointer` can be read.
unsafe fn allocate(
    index: CardIndex,
    pointer: *mut DevicePointer,
    size: u64,
    instead: Substitute,
    ask: &mut dyn FnMut() -> CuResult,
) -> CuResult {
    let outcome = ladder::ask(index, size, instead, ask);
    if outcome == ClaimOutcome::Given {
        // SAFETY: the driver succeeded, so it has written the address.
        given(index, unsafe { *pointer }, size, BlockKind::Linear);
    }
    outcome.code()
}

/// Enters a block that the driver gave and the card is charged with.
pub(crate) fn given(index: CardIndex, pointer: DevicePointer, size: u64, kind: BlockKind) {
    BLOCKS.insert(pointer, DeviceBlock::new(index, size, kind, 0));
}

fn free(pointer: DevicePointer, real: impl FnOnce() -> CuResult) -> CuResult {
    // Guard's own ranges first: the driver would refuse their addresses.
    if let Some(result) = spill::free(pointer) {
        return result;
    }
    if ggml::release(pointer) {
        return SUCCESS;
    }
    BLOCKS.free(pointer, real, |block| block.gone(0))
}
