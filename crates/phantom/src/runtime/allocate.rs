//! Allocation functions of the CUDA runtime: device, managed and pinned memory.

use core::ffi::{c_int, c_uint, c_void};

use crate::machine::{INVALID, OUT_OF_MEMORY, SUCCESS, give, machine};
use crate::memory::Kind;

/// # Safety
/// The address of an address.
unsafe fn allocate(kind: Kind, place: *mut *mut c_void, bytes: usize) -> c_int {
    let machine = machine();
    let current = machine.current();
    let address = machine.memory.take(kind, current, bytes);
    // SAFETY: the caller's promise.
    unsafe { give(place, address) };
    if address.is_null() { OUT_OF_MEMORY } else { SUCCESS }
}

/// # Safety
/// The address of an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMalloc(place: *mut *mut c_void, bytes: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { allocate(Kind::Device, place, bytes) }
}

/// # Safety
/// The address of an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMallocManaged(
    place: *mut *mut c_void,
    bytes: usize,
    _flags: c_uint,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { allocate(Kind::Managed, place, bytes) }
}

/// # Safety
/// The address of an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMallocHost(place: *mut *mut c_void, bytes: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { allocate(Kind::Host, place, bytes) }
}

/// # Safety
/// The address of an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaHostAlloc(
    place: *mut *mut c_void,
    bytes: usize,
    _flags: c_uint,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { allocate(Kind::Host, place, bytes) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFree(address: *mut c_void) -> c_int {
    // Null is allowed, and `cudaFree(0)` is a known way to open the context.
    match address.is_null() || machine().memory.give(address) {
        true => SUCCESS,
        false => INVALID,
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFreeHost(address: *mut c_void) -> c_int {
    cudaFree(address)
}

/// # Safety
/// The address of an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaHostGetDevicePointer(
    place: *mut *mut c_void,
    host: *mut c_void,
    _flags: c_uint,
) -> c_int {
    // SAFETY: the caller's promise. One address serves both, as with unified addressing.
    unsafe { give(place, host) }
}
