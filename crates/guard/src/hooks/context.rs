//! Hooks of CUDA context creation and destruction, which count a context's memory.
//!
//! If so configured, a context on a card that the program was not given is refused.

use core::ffi::{c_int, c_uint, c_void};

use crate::driver::{self, Context, CuResult, DeviceOrdinal, SUCCESS};
use crate::hooks::hooks;
use crate::state::CardIndex;
use crate::{contexts, ggml};

/// CUDA_ERROR_DEVICE_UNAVAILABLE: the answer of a card in exclusive mode, which programs handle.
const UNAVAILABLE: CuResult = 46;

hooks! {
    in CUDA;

    fn cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain" since 7000
        (context: *mut Context, device: DeviceOrdinal) calls real
    {
        open(context, device, true, || real(context, device))
    }

    fn cuCtxCreate_v2 = "cuCtxCreate" since 3020 (context: *mut Context, flags: c_uint, device: DeviceOrdinal) calls real {
        open(context, device, false, || real(context, flags, device))
    }

    fn cuCtxCreate_v3 = "cuCtxCreate" since 11040
        (context: *mut Context, affinity: *mut c_void, count: c_int, flags: c_uint, device: DeviceOrdinal) calls real
    {
        open(context, device, false, || real(context, affinity, count, flags, device))
    }

    fn cuCtxCreate_v4 = "cuCtxCreate" since 12050
        (context: *mut Context, parameters: *mut c_void, flags: c_uint, device: DeviceOrdinal) calls real
    {
        open(context, device, false, || real(context, parameters, flags, device))
    }

    fn cuCtxDestroy_v2 = "cuCtxDestroy" since 4000 (context: Context) calls real {
        ggml::context_ending();
        let result = real(context);
        if result == SUCCESS {
            contexts::closed(context.addr());
        }
        result
    }

    fn cuDevicePrimaryCtxRelease_v2 = "cuDevicePrimaryCtxRelease" since 11000 (device: DeviceOrdinal) calls real {
        end(device, || real(device))
    }

    fn cuDevicePrimaryCtxRelease = "cuDevicePrimaryCtxRelease" since 7000 (device: DeviceOrdinal) calls real {
        end(device, || real(device))
    }

    fn cuDevicePrimaryCtxReset_v2 = "cuDevicePrimaryCtxReset" since 11000 (device: DeviceOrdinal) calls real {
        end(device, || real(device))
    }

    fn cuDevicePrimaryCtxReset = "cuDevicePrimaryCtxReset" since 7000 (device: DeviceOrdinal) calls real {
        end(device, || real(device))
    }
}

/// # Safety
/// After `real` succeeds, `context` can be read.
unsafe fn open(
    context: *mut Context,
    device: DeviceOrdinal,
    primary: bool,
    real: impl FnOnce() -> CuResult,
) -> CuResult {
    let Some(index) = CardIndex::of(device) else {
        return real();
    };
    if contexts::refused(index) {
        return UNAVAILABLE;
    }
    // NVML is read before the context exists; afterwards its size cannot be distinguished from other memory.
    let before = contexts::opening(index);
    let result = real();
    if result == SUCCESS {
        // SAFETY: the driver succeeded, so it has written the handle.
        let handle = unsafe { (*context).addr() };
        contexts::opened(handle, index, primary, before);
    }
    result
}

/// Releases or resets a primary context. It is gone only when its last reference is.
fn end(device: DeviceOrdinal, real: impl FnOnce() -> CuResult) -> CuResult {
    ggml::context_ending();
    let result = real();
    let (mut flags, mut active) = (0, 1);
    // SAFETY: the places are ours.
    let known =
        unsafe { driver::cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active) } == SUCCESS;
    if result == SUCCESS
        && known
        && active == 0
        && let Some(index) = CardIndex::of(device)
    {
        contexts::primary_closed(index);
    }
    result
}
