//! Hooks of functions that only AMD's HIP runtime has. HIP's other functions share the hooks of their CUDA
//! counterparts.

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::capture::created;
use super::info::{limit, lower};
use super::memory::{bytes, linear, pitched};
use crate::contexts;
use crate::driver::hip::{context_of, device};
use crate::driver::{CuResult, CuStream, DeviceOrdinal, DevicePointer, SUCCESS};
use crate::ggml;
use crate::hooks::hooks;
use crate::interpose::named;
use crate::spill;
use crate::state::{CardIndex, card, peers};

/// Offset of the card's size in `hipDeviceProp_t` of ROCm 5, which `hipGetDeviceProperties` still fills.
const TOTAL_R0000: usize = 256;
/// The same since ROCm 6 (`hip_runtime_api.h` 6.4.3).
const TOTAL_R0600: usize = 288;

hooks! {
    in HIP when by_hip;

    fn hipInit = "" since 0 (flags: c_uint) calls real { real(flags) }

    fn hipGetDeviceCount = "" since 0 (count: *mut c_int) calls real { real(count) }

    fn hipExtMallocWithFlags = "" since 0 (pointer: *mut DevicePointer, size: usize, flags: c_uint) calls real {
        linear(pointer, size, &mut || real(pointer, size, flags))
    }

    fn hipMallocPitch = "" since 0
        (pointer: *mut DevicePointer, pitch: *mut usize, width: usize, height: usize) calls real
    {
        pitched(pointer, pitch, width, height, &mut || real(pointer, pitch, width, height))
    }

    fn hipGetDevicePropertiesR0600 = "" since 0 (properties: *mut c_void, device: DeviceOrdinal) calls real {
        described(properties, device, TOTAL_R0600, real(properties, device))
    }

    fn hipGetDevicePropertiesR0000 = "" since 0 (properties: *mut c_void, device: DeviceOrdinal) calls real {
        described(properties, device, TOTAL_R0000, real(properties, device))
    }

    fn hipGetDeviceProperties = "" since 0 (properties: *mut c_void, device: DeviceOrdinal) calls real {
        described(properties, device, TOTAL_R0000, real(properties, device))
    }

    fn hipStreamCreate = "" since 0 (stream: *mut CuStream) calls real {
        created(stream, real(stream))
    }

    fn hipExtStreamCreateWithCUMask = "" since 0 (stream: *mut CuStream, count: u32, mask: *const u32) calls real {
        created(stream, real(stream, count, mask))
    }

    fn hipDeviceReset = "" since 0 () calls real {
        ggml::context_ending();
        let result = real();
        if result == SUCCESS && let Some(index) = CardIndex::of(device()) {
            // A device's context opens by itself, so it is entered when it ends.
            contexts::opened(context_of(index.device()), index, true, None);
            contexts::primary_closed(index);
        }
        result
    }

    fn hipDeviceEnablePeerAccess = "" since 0 (owner: DeviceOrdinal, flags: c_uint) calls real {
        let result = real(owner, flags);
        let user = device();
        if result == SUCCESS && peers::enable(user, owner) {
            ggml::grant(user, owner);
            spill::enable_peer(user, owner);
        }
        result
    }

    fn hipGetProcAddress = "" since 0
        (symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int) calls real
    {
        let result = real(symbol, function, version, flags, status);
        if result == SUCCESS && !symbol.is_null() && !function.is_null() {
            substitute(symbol, function);
        }
        result
    }
}

/// Lowers the size of a card in its properties to the budget.
///
/// # Safety
/// After success `properties` is null or a structure with the size at `offset`.
unsafe fn described(
    properties: *mut c_void,
    device: DeviceOrdinal,
    offset: usize,
    result: CuResult,
) -> CuResult {
    let index = CardIndex::of(device);
    let Some(limit) = limit(index).filter(|_| result == SUCCESS && !properties.is_null()) else {
        return result;
    };
    let total = index.map(|index| card(index).total.load(core::sync::atomic::Ordering::Relaxed));
    // SAFETY: a member of the structure, aligned as the structure is.
    let place = unsafe { properties.byte_add(offset) }.cast::<usize>();
    // A runtime whose structure has another layout is left alone.
    // SAFETY: as above.
    if total == Some(bytes(unsafe { place.read() })) {
        // SAFETY: as above.
        unsafe { lower(place, |total| limit.total(total)) };
    }
    result
}

/// Replaces the runtime's function by the hook for it.
///
/// # Safety
/// A C string, and the address that the runtime wrote for it.
unsafe fn substitute(symbol: *const c_char, function: *mut *mut c_void) {
    // SAFETY: as the caller promises.
    let (hook, theirs) = unsafe { (named(symbol), *function) };
    if let Some(hook) = hook.filter(|hook| hook.slot.function() == theirs) {
        // SAFETY: as the caller promises.
        unsafe { *function = hook.address() };
    }
}
