//! Allocates managed or pinned memory, for requests that are placed in host memory as a whole.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use plimsoll_wire::page::CARDS;

use crate::account::spilled;
use crate::driver::{CuResult, DeviceOrdinal, DevicePointer, OUT_OF_MEMORY, SUCCESS};
use crate::driver_guard;
use crate::state::CardIndex;

mod real {
    use super::*;

    crate::driver::real! {
        by INTERFACE;
        cuMemAllocManaged = hipMallocManaged(pointer: *mut DevicePointer, size: u64, flags: c_uint);
        cuMemFree_v2 = hipFree(pointer: DevicePointer);
        cuMemAdvise = hipMemAdvise(pointer: DevicePointer, size: u64, advice: c_int, device: DeviceOrdinal);
        cuMemHostAlloc = hipHostMalloc(pointer: *mut *mut c_void, size: u64, flags: c_uint);
        cuMemHostGetDevicePointer_v2 = hipHostGetDevicePointer(device: *mut DevicePointer, host: *mut c_void, flags: c_uint);
        cuMemFreeHost = hipHostFree(pointer: *mut c_void);
    }
}

const ATTACH_GLOBAL: c_uint = 1;
const PREFERRED_LOCATION: c_int = 3;
const ACCESSED_BY: c_int = 5;
const CPU: DeviceOrdinal = -1;
/// For every context, and at the same address for the card.
const PORTABLE_AND_MAPPED: c_uint = 1 | 2;

// DECISION: all managed memory together stays within the free bytes of the card. Beyond that, the driver
// migrates pages, which can hang the GPU. The driver is advised to keep managed memory on the host.
/// Managed bytes that guard has allocated, per card.
static MANAGED: [AtomicU64; CARDS] = [const { AtomicU64::new(0) }; CARDS];

fn managed_on(card: CardIndex) -> &'static AtomicU64 {
    &MANAGED[card.place()]
}

/// Allocates managed memory for the card of the calling thread's context, within the free bytes of that card.
pub(crate) fn managed(card: CardIndex, size: u64) -> Result<DevicePointer, CuResult> {
    let Some((free, _)) = driver_guard::memory_of(card.device()) else {
        return Err(OUT_OF_MEMORY);
    };
    // In sum with guard's earlier requests: the driver counts managed memory as free until it is touched.
    let within = |requested: u64| requested.checked_add(size).filter(|sum| *sum <= free);
    if managed_on(card).fetch_update(Relaxed, Relaxed, within).is_err() {
        return Err(OUT_OF_MEMORY);
    }
    let mut pointer = 0;
    // SAFETY: the place is ours.
    let code = unsafe { real::cuMemAllocManaged(&raw mut pointer, size, ATTACH_GLOBAL) };
    if code != SUCCESS {
        spilled::lower(managed_on(card), size);
        return Err(code);
    }
    // SAFETY: the range was allocated just now. Advice that is not taken costs speed and no more.
    unsafe {
        real::cuMemAdvise(pointer, size, PREFERRED_LOCATION, CPU);
        real::cuMemAdvise(pointer, size, ACCESSED_BY, card.device());
    }
    Ok(pointer)
}

/// Frees memory of [`managed`]. The driver waits for work that uses it.
pub(crate) fn free_managed(card: CardIndex, pointer: DevicePointer, size: u64) -> CuResult {
    spilled::lower(managed_on(card), size);
    // SAFETY: the caller passes what `managed` gave, once.
    unsafe { real::cuMemFree_v2(pointer) }
}

/// Allocates page-locked host memory, under the address that the card sees.
pub(crate) fn pinned(size: u64) -> Result<DevicePointer, CuResult> {
    let (mut host, mut device) = (null_mut(), 0);
    // SAFETY: the places are ours.
    unsafe {
        let code = real::cuMemHostAlloc(&raw mut host, size, PORTABLE_AND_MAPPED);
        if code != SUCCESS {
            return Err(code);
        }
        let code = real::cuMemHostGetDevicePointer_v2(&raw mut device, host, 0);
        if code == SUCCESS && usize::try_from(device) == Ok(host.addr()) {
            return Ok(device);
        }
        // Without unified addressing the memory has two addresses, and frees by the other one would miss it.
        real::cuMemFreeHost(host);
    }
    Err(OUT_OF_MEMORY)
}

/// Frees memory of [`pinned`].
pub(crate) fn free_pinned(pointer: DevicePointer) -> CuResult {
    let host = usize::try_from(pointer).map_or(null_mut(), core::ptr::with_exposed_provenance_mut);
    // SAFETY: the caller passes what `pinned` gave, once.
    unsafe { real::cuMemFreeHost(host) }
}
