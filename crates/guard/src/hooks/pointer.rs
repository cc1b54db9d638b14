//! Hooks of pointer queries, which make memory that is partly in host memory look like memory of
//! `cuMemAlloc`.
//!
//! A spilled range is device memory followed by host memory. The driver would describe only one of the two
//! parts, which misleads UCX and the CUDA runtime.

use core::ffi::{c_int, c_uint, c_void};

use crate::account::physical;
use crate::driver::{CuResult, CuStream, DeviceOrdinal, DevicePointer, INVALID_VALUE, SUCCESS};
use crate::hooks::{hooks, unified};
use crate::spill::vmm::Location;
use crate::state::peers;
use crate::state::ranges::{self, SpillRange};
use crate::{driver_guard, ggml, spill};

/// `CUpointer_attribute`.
type Attribute = c_int;

const CONTEXT: Attribute = 1;
const MEMORY_TYPE: Attribute = 2;
const DEVICE_POINTER: Attribute = 3;
const HOST_POINTER: Attribute = 4;
const IS_MANAGED: Attribute = 8;
const DEVICE_ORDINAL: Attribute = 9;
const IS_IPC_CAPABLE: Attribute = 10;
const RANGE_START: Attribute = 11;
const RANGE_SIZE: Attribute = 12;
const MAPPED: Attribute = 13;
const ALLOWED_HANDLE_TYPES: Attribute = 14;
const MEMORY_POOL: Attribute = 17;
const MAPPING_SIZE: Attribute = 18;
const MAPPING_BASE: Attribute = 19;

/// CU_MEMORYTYPE_DEVICE.
const DEVICE_MEMORY: u32 = 2;

/// Answer to a query about a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttributeAnswer {
    Word(u32),
    Long(u64),
    /// No value, as for all device memory: an error in a query of one attribute, zero in a query of many.
    Nothing,
    /// The driver's, for the first byte of the range.
    Driver,
}

fn answer(range: &SpillRange, attribute: Attribute, pointer: DevicePointer) -> AttributeAnswer {
    match attribute {
        CONTEXT => AttributeAnswer::Long(u64::try_from(range.context).unwrap_or(0)),
        MEMORY_TYPE => AttributeAnswer::Word(DEVICE_MEMORY),
        DEVICE_POINTER => AttributeAnswer::Long(pointer),
        HOST_POINTER => AttributeAnswer::Nothing,
        IS_MANAGED | IS_IPC_CAPABLE => AttributeAnswer::Word(0),
        DEVICE_ORDINAL => AttributeAnswer::Word(u32::from_ne_bytes(range.device.to_ne_bytes())),
        RANGE_START | MAPPING_BASE => AttributeAnswer::Long(range.base),
        RANGE_SIZE => AttributeAnswer::Long(range.requested),
        MAPPING_SIZE => AttributeAnswer::Long(range.size),
        MAPPED => AttributeAnswer::Word(1),
        ALLOWED_HANDLE_TYPES | MEMORY_POOL => AttributeAnswer::Long(0),
        _ => AttributeAnswer::Driver,
    }
}

/// Guard's answer, and the first byte of the range; None for memory of the driver.
fn about(pointer: DevicePointer, attribute: Attribute) -> Option<(AttributeAnswer, DevicePointer)> {
    ranges::find(pointer, |range| (answer(range, attribute, pointer), range.base))
        .or_else(|| physical::spilled_at(pointer).map(|card| (of_memory(attribute, card.device()), pointer)))
}

/// The answer for memory that the program mapped itself, and that was spilled.
fn of_memory(attribute: Attribute, device: DeviceOrdinal) -> AttributeAnswer {
    match attribute {
        MEMORY_TYPE => AttributeAnswer::Word(DEVICE_MEMORY),
        HOST_POINTER => AttributeAnswer::Nothing,
        DEVICE_ORDINAL => AttributeAnswer::Word(u32::from_ne_bytes(device.to_ne_bytes())),
        _ => AttributeAnswer::Driver,
    }
}

/// Answers one attribute at `data`, which the driver would write to as well.
///
/// # Safety
/// `data` has room for the attribute, whose type is its own (`cuda.h`).
unsafe fn notify(
    data: *mut c_void,
    answer: AttributeAnswer,
    many: bool,
    ask: impl FnOnce() -> CuResult,
) -> CuResult {
    if data.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: room for a word or a long, as the caller promises.
    unsafe {
        match answer {
            AttributeAnswer::Word(word) => data.cast::<u32>().write_unaligned(word),
            AttributeAnswer::Long(long) => data.cast::<u64>().write_unaligned(long),
            AttributeAnswer::Nothing if many => data.cast::<u64>().write_unaligned(0),
            AttributeAnswer::Nothing => return INVALID_VALUE,
            AttributeAnswer::Driver => return ask(),
        }
    }
    SUCCESS
}

/// Succeeds without effect for a spilled range, and where the card's memory stands for managed memory;
/// otherwise calls `real`.
fn unless_ours(pointer: DevicePointer, real: impl FnOnce() -> CuResult) -> CuResult {
    if ranges::has(pointer) || unified::is_overflow_alone() { SUCCESS } else { real() }
}

hooks! {
    in CUDA;

    fn cuPointerGetAttribute = "cuPointerGetAttribute" since 4000
        (data: *mut c_void, attribute: Attribute, pointer: DevicePointer) calls real
    {
        match about(pointer, attribute) {
            None => real(data, attribute, pointer),
            Some((answer, base)) => notify(data, answer, false, || real(data, attribute, base)),
        }
    }

    fn cuPointerGetAttributes = "cuPointerGetAttributes" since 7000
        (count: c_uint, attributes: *const Attribute, data: *mut *mut c_void, pointer: DevicePointer) calls real
    {
        if attributes.is_null() || data.is_null() || about(pointer, MEMORY_TYPE).is_none() {
            return real(count, attributes, data, pointer);
        }
        for index in 0..usize::try_from(count).unwrap_or(0) {
            let (attribute, place) = (*attributes.add(index), *data.add(index));
            let Some((answer, base)) = about(pointer, attribute) else {
                return INVALID_VALUE;
            };
            // As the driver does: what one attribute has not got does not fail the rest.
            let _ = notify(place, answer, true, || {
                self::real::cuPointerGetAttribute(place, attribute, base)
            });
        }
        SUCCESS
    }

    fn cuMemGetAddressRange_v2 | hipMemGetAddressRange = "cuMemGetAddressRange" since 3020
        (base: *mut DevicePointer, size: *mut u64, pointer: DevicePointer) calls real
    {
        let Some((start, requested)) = ranges::find(pointer, |range| (range.base, range.requested)) else {
            return real(base, size, pointer);
        };
        if !base.is_null() {
            base.write(start);
        }
        if !size.is_null() {
            size.write(requested);
        }
        SUCCESS
    }

    fn cuMemAdvise | hipMemAdvise = "cuMemAdvise" since 8000
        (pointer: DevicePointer, size: u64, advice: c_int, device: DeviceOrdinal) calls real
    {
        unless_ours(pointer, || real(pointer, size, advice, device))
    }

    fn cuMemAdvise_v2 = "cuMemAdvise" since 12020
        (pointer: DevicePointer, size: u64, advice: c_int, location: Location) calls real
    {
        unless_ours(pointer, || real(pointer, size, advice, location))
    }

    fn cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz | hipMemPrefetchAsync = "cuMemPrefetchAsync" since 8000
        (pointer: DevicePointer, size: u64, device: DeviceOrdinal, stream: CuStream) calls real
    {
        unless_ours(pointer, || real(pointer, size, device, stream))
    }

    fn cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz = "cuMemPrefetchAsync" since 12020
        (pointer: DevicePointer, size: u64, location: Location, flags: c_uint, stream: CuStream) calls real
    {
        unless_ours(pointer, || real(pointer, size, location, flags, stream))
    }

    fn cuCtxEnablePeerAccess = "cuCtxEnablePeerAccess" since 4000
        (peer: crate::driver::Context, flags: c_uint) calls real
    {
        let result = real(peer, flags);
        if result == SUCCESS {
            let owner = driver_guard::in_context(peer.expose_provenance(), driver_guard::device);
            if let (Some(user), Some(owner)) = (driver_guard::device(), owner)
                && peers::enable(user, owner)
            {
                ggml::grant(user, owner);
                spill::enable_peer(user, owner);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_device_memory_from_end_to_end() {
        let range = SpillRange {
            base: 0x1000,
            requested: 900,
            size: 1024,
            on_card: 512,
            device: 1,
            context: 77,
            place: None,
            cache: None,
            pieces: Vec::new(),
            residence: Vec::new(),
            is_weights: false,
            id: 0,
        };
        for pointer in [0x1000, 0x1000 + 700] {
            let answer = |attribute| answer(&range, attribute, pointer);
            assert_eq!(answer(MEMORY_TYPE), AttributeAnswer::Word(DEVICE_MEMORY));
            assert_eq!(answer(DEVICE_ORDINAL), AttributeAnswer::Word(1));
            assert_eq!(answer(DEVICE_POINTER), AttributeAnswer::Long(pointer));
            assert_eq!(answer(CONTEXT), AttributeAnswer::Long(77));
            assert_eq!(answer(HOST_POINTER), AttributeAnswer::Nothing);
            assert_eq!(
                (answer(RANGE_START), answer(RANGE_SIZE)),
                (AttributeAnswer::Long(0x1000), AttributeAnswer::Long(900))
            );
            assert_eq!(answer(7), AttributeAnswer::Driver);
        }
    }
}
