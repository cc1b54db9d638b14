//! Functions of libcuda that ggml calls directly: virtual memory management for its pool.
//!
//! A CUDA runtime that is linked statically into an engine needs further, undocumented driver functions. Such
//! an engine finds no card here.

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::machine::{INVALID, INVALID_DEVICE, NO_DEVICE, OUT_OF_MEMORY, SUCCESS, give, machine};
use crate::memory::PAGE;
use crate::runtime::error_text;
use crate::say::say;

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

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuInit(_flags: c_uint) -> c_int {
    let machine = machine();
    if machine.runtime == 0 {
        say!("static CUDA runtime");
        return NO_DEVICE;
    }
    SUCCESS
}

/// # Safety
/// The address of a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller's promise. 13.0 serves every runtime.
    unsafe { give(version, 13_000) }
}

/// # Safety
/// As of the driver.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { give(count, c_int::try_from(machine().cards.len()).unwrap_or(0)) }
}

/// # Safety
/// The address of a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    match machine().card(ordinal) {
        // SAFETY: the caller's promise.
        Some(_) => unsafe { give(device, ordinal) },
        None => INVALID_DEVICE,
    }
}

/// # Safety
/// The address of a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    device: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { crate::runtime::cudaDeviceGetAttribute(value, attribute, device) }
}

/// # Safety
/// The address of a pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { give(text, error_text(error).as_ptr()) }
}

/// # Safety
/// The address of an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAddressReserve(
    place: *mut *mut c_void,
    bytes: usize,
    _alignment: usize,
    _wish: *mut c_void,
    _flags: c_ulonglong,
) -> c_int {
    let address = machine().memory.reserve(bytes);
    if address.is_null() {
        return OUT_OF_MEMORY;
    }
    // SAFETY: the caller's promise.
    unsafe { give(place, address) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAddressFree(address: *mut c_void, _bytes: usize) -> c_int {
    machine().memory.unreserve(address);
    SUCCESS
}

/// # Safety
/// The addresses of a handle, and of a structure that names the card.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemCreate(
    handle: *mut c_ulonglong,
    bytes: usize,
    properties: *const AllocationProperties,
    _flags: c_ulonglong,
) -> c_int {
    // SAFETY: null, or the structure.
    let Some(properties) = (unsafe { properties.as_ref() }) else {
        return INVALID;
    };
    let machine = machine();
    let number = usize::try_from(properties.location).unwrap_or(usize::MAX);
    if number >= machine.cards.len() {
        return INVALID_DEVICE;
    }
    match machine.memory.create(number, bytes) {
        // SAFETY: the caller's promise.
        Some(made) => unsafe { give(handle, made) },
        None => OUT_OF_MEMORY,
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemRelease(handle: c_ulonglong) -> c_int {
    machine().memory.release(handle);
    SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemMap(
    address: *mut c_void,
    _bytes: usize,
    _offset: usize,
    handle: c_ulonglong,
    _flags: c_ulonglong,
) -> c_int {
    match machine().memory.attach(address.addr(), handle) {
        true => SUCCESS,
        false => INVALID,
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemUnmap(address: *mut c_void, bytes: usize) -> c_int {
    machine().memory.detach(address.addr(), bytes);
    SUCCESS
}

/// # Safety
/// The address of a size.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemGetAllocationGranularity(
    size: *mut usize,
    _properties: *const AllocationProperties,
    _option: c_int,
) -> c_int {
    // SAFETY: the caller's promise. Both granularities were this on an H200.
    unsafe { give(size, usize::try_from(PAGE).unwrap_or(usize::MAX)) }
}
