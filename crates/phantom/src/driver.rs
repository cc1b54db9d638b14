//! Simulates the functions of libcuda that ggml calls directly: virtual memory management for its pool.
//!
//! An engine with a static CUDA runtime needs further, undocumented functions. It finds no card here.

use core::ffi::{c_char, c_int, c_ulonglong, c_void};

use crate::machine::{INVALID, INVALID_DEVICE, NO_DEVICE, OUT_OF_MEMORY, SUCCESS, give, machine};
use crate::memory::PAGE;
use crate::report::say;
use crate::runtime::error_text;

crate::succeeding! { cuMemSetAccess cuCtxSynchronize cuProfilerStart cuProfilerStop }

/// `CUmemAllocationProp`, as far as it names the card.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct AllocationProperties {
    kind: c_int,
    handles: c_int,
    location_kind: c_int,
    location: c_int,
}

crate::exported! {
    fn cuInit() -> c_int {
        if machine().runtime == 0 {
            say!("static CUDA runtime");
            return NO_DEVICE;
        }
        SUCCESS
    }

    /// 13.0 serves every runtime.
    fn cuDriverGetVersion(version: *mut c_int) -> c_int { give(version, 13_000) }

    fn cuDeviceGetCount(count: *mut c_int) -> c_int {
        give(count, c_int::try_from(machine().cards.len()).unwrap_or(0))
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
        machine().card(ordinal).map_or(INVALID_DEVICE, |_| give(device, ordinal))
    }

    fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
        give(text, error_text(error).as_ptr())
    }

    fn cuMemAddressReserve(place: *mut *mut c_void, bytes: usize) -> c_int {
        let address = machine().memory.reserve(bytes);
        if address.is_null() { OUT_OF_MEMORY } else { give(place, address) }
    }

    fn cuMemAddressFree(address: *mut c_void) -> c_int {
        machine().memory.unreserve(address);
        SUCCESS
    }

    fn cuMemCreate(handle: *mut c_ulonglong, bytes: usize, properties: *const AllocationProperties) -> c_int {
        let Some(properties) = properties.as_ref() else { return INVALID };
        let number = usize::try_from(properties.location).unwrap_or(usize::MAX);
        if number >= machine().cards.len() {
            return INVALID_DEVICE;
        }
        machine().memory.create(number, bytes).map_or(OUT_OF_MEMORY, |created| give(handle, created))
    }

    fn cuMemRelease(handle: c_ulonglong) -> c_int {
        machine().memory.release(handle);
        SUCCESS
    }

    fn cuMemMap(address: *mut c_void, _bytes: usize, _offset: usize, handle: c_ulonglong) -> c_int {
        if machine().memory.attach(address.addr(), handle) { SUCCESS } else { INVALID }
    }

    fn cuMemUnmap(address: *mut c_void, bytes: usize) -> c_int {
        machine().memory.detach(address.addr(), bytes);
        SUCCESS
    }

    /// Both granularities were this on an H200.
    fn cuMemGetAllocationGranularity(size: *mut usize) -> c_int {
        give(size, usize::try_from(PAGE).unwrap_or(usize::MAX))
    }
}
