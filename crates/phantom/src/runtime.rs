//! Functions of the CUDA runtime.
//!
//! Kernel launches, copies and graphs succeed and do nothing, because no planned size depends on the data.

pub(crate) mod allocate;
pub(crate) mod launch;

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::machine::{INVALID, INVALID_DEVICE, NO_DEVICE, OUT_OF_MEMORY, SUCCESS, give, machine};
use crate::properties::{CUDA_11, CUDA_12, CUDA_13, Layout};

crate::succeeding! {
    cudaDeviceDisablePeerAccess cudaDeviceEnablePeerAccess cudaDeviceReset cudaDeviceSetLimit cudaDeviceSynchronize cudaEventDestroy
    cudaEventQuery cudaEventRecord cudaEventRecordWithFlags cudaEventSynchronize cudaFuncSetAttribute
    cudaFuncSetCacheConfig cudaGetLastError cudaGraphDestroy cudaGraphExecDestroy cudaGraphExecUpdate
    cudaGraphKernelNodeSetParams cudaGraphLaunch cudaHostRegister cudaHostUnregister cudaLaunchCooperativeKernel
    cudaLaunchHostFunc cudaLaunchKernel cudaLaunchKernelExC cudaMemAdvise cudaMemAdvise_v2 cudaMemPrefetchAsync
    cudaMemPrefetchAsync_v2 cudaMemcpy cudaMemcpy2D cudaMemcpy2DAsync cudaMemcpy3DPeerAsync cudaMemcpyAsync
    cudaMemcpyPeer cudaMemcpyPeerAsync cudaMemset cudaMemset2DAsync cudaMemsetAsync cudaPeekAtLastError
    cudaProfilerStart cudaProfilerStop cudaSetDeviceFlags cudaStreamBeginCapture cudaStreamDestroy cudaStreamQuery
    cudaStreamSynchronize cudaStreamWaitEvent cudaThreadExchangeStreamCaptureMode
}

crate::making! {
    cudaEventCreate cudaEventCreateWithFlags cudaGraphInstantiate cudaGraphInstantiateWithFlags cudaStreamCreate
    cudaStreamCreateWithFlags cudaStreamCreateWithPriority
}

/// # Safety
/// The address of a pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaStreamEndCapture(_stream: *mut c_void, graph: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { crate::machine::make(graph) }
}

/// # Safety
/// The address of a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaStreamIsCapturing(_stream: *mut c_void, status: *mut c_int) -> c_int {
    // SAFETY: the caller's promise. 0: no capture is under way.
    unsafe { give(status, 0) }
}

/// Builds of 2025 looked for the nodes that copy: there are none.
///
/// # Safety
/// The third argument is the address of a size.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaGraphGetNodes(
    _graph: *mut c_void,
    _nodes: *mut c_void,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { give(count, 0) }
}

/// # Safety
/// The address of a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaEventElapsedTime(milliseconds: *mut f32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { give(milliseconds, 0.0) }
}

/// # Safety
/// The address of a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaGetDeviceCount(count: *mut c_int) -> c_int {
    let cards = c_int::try_from(machine().cards.len()).unwrap_or(0);
    // SAFETY: the caller's promise.
    let given = unsafe { give(count, cards) };
    // The real runtime reports an error where there is no card, and the engine then goes on without.
    if cards == 0 { NO_DEVICE } else { given }
}

/// # Safety
/// The address of a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaGetDevice(device: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { give(device, c_int::try_from(machine().current()).unwrap_or(0)) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaSetDevice(device: c_int) -> c_int {
    let machine = machine();
    match usize::try_from(device) {
        Ok(number) if number < machine.cards.len() => {
            machine.use_card(number);
            SUCCESS
        }
        _ => INVALID_DEVICE,
    }
}

/// Properties in the layout of CUDA 13, or of 11: CUDA 12 calls the other name.
///
/// # Safety
/// The address of the runtime's structure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaGetDeviceProperties(place: *mut c_void, device: c_int) -> c_int {
    let layout = if machine().runtime >= 13 { &CUDA_13 } else { &CUDA_11 };
    // SAFETY: the caller's promise.
    unsafe { properties(layout, place, device) }
}

/// # Safety
/// The address of the runtime's structure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaGetDeviceProperties_v2(place: *mut c_void, device: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { properties(&CUDA_12, place, device) }
}

/// # Safety
/// `place` is null or of this layout.
unsafe fn properties(layout: &Layout, place: *mut c_void, device: c_int) -> c_int {
    let Some(card) = machine().card(device) else {
        return INVALID_DEVICE;
    };
    if place.is_null() {
        return INVALID;
    }
    // SAFETY: the caller's promise.
    unsafe { layout.fill(place, card, usize::try_from(device).unwrap_or(0)) };
    SUCCESS
}

/// # Safety
/// The address of a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    device: c_int,
) -> c_int {
    match machine().card(device) {
        // SAFETY: the caller's promise.
        Some(card) => unsafe { give(value, c_int::try_from(card.attribute(attribute)).unwrap_or(0)) },
        None => INVALID_DEVICE,
    }
}

/// An address that no card of a machine has, and each of ours has its own.
///
/// # Safety
/// Room for so many bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaDeviceGetPCIBusId(
    text: *mut c_char,
    room: c_int,
    device: c_int,
) -> c_int {
    if machine().card(device).is_none() || text.is_null() {
        return INVALID_DEVICE;
    }
    let bus = alloc::format!("0000:{:02x}:00.0\0", device + 1);
    let room = usize::try_from(room).unwrap_or(0);
    if bus.len() > room {
        return INVALID;
    }
    // SAFETY: the caller's room is as long.
    unsafe { text.cast::<u8>().copy_from_nonoverlapping(bus.as_ptr(), bus.len()) };
    SUCCESS
}

/// # Safety
/// The address of a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaDeviceCanAccessPeer(
    can: *mut c_int,
    _card: c_int,
    _peer: c_int,
) -> c_int {
    // SAFETY: the caller's promise. Peers are only used where a user asks for them, and take no memory.
    unsafe { give(can, 0) }
}

/// # Safety
/// The addresses of two sizes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
    let machine = machine();
    let current = machine.current();
    let Some(card) = machine.cards.get(current) else {
        return NO_DEVICE;
    };
    let sized = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
    // SAFETY: the caller's promise.
    unsafe {
        give(free, sized(machine.memory.free(current, card.free)));
        give(total, sized(card.total))
    }
}

/// # Safety
/// The address of a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaRuntimeGetVersion(version: *mut c_int) -> c_int {
    let runtime = c_int::try_from(machine().runtime).unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe { give(version, runtime * 1000) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetErrorString(error: c_int) -> *const c_char {
    error_text(error).as_ptr()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetErrorName(error: c_int) -> *const c_char {
    error_text(error).as_ptr()
}

/// The runtime's own words, as far as the stand-in has errors.
pub(crate) fn error_text(error: c_int) -> &'static CStr {
    match error {
        SUCCESS => c"no error",
        INVALID => c"invalid argument",
        OUT_OF_MEMORY => c"out of memory",
        NO_DEVICE => c"no CUDA-capable device is detected",
        INVALID_DEVICE => c"invalid device ordinal",
        _ => c"error of plimsoll's stand-in for CUDA",
    }
}
