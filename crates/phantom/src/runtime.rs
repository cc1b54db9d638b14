//! Simulates the functions of the CUDA runtime and of cuBLAS.
//!
//! Launches, copies, graphs and products succeed and do nothing: no planned size depends on the data.

pub(crate) mod launch;

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::machine::{INVALID, INVALID_DEVICE, NO_DEVICE, OUT_OF_MEMORY, SUCCESS, give, machine, make};
use crate::memory::Kind;
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
    cublasDestroy_v2 cublasGemmBatchedEx cublasGemmEx cublasGemmStridedBatchedEx cublasLoggerConfigure cublasLtDestroy
    cublasSetMathMode cublasSetStream_v2 cublasSetWorkspace_v2 cublasSgemmBatched cublasSgemmStridedBatched
    cublasSgemm_v2 cublasStrsmBatched
}

crate::making! {
    cudaEventCreate cudaEventCreateWithFlags cudaGraphInstantiate cudaGraphInstantiateWithFlags cudaStreamCreate
    cudaStreamCreateWithFlags cudaStreamCreateWithPriority cublasLtCreate
}

crate::exported! {
    fn cudaStreamEndCapture as hipStreamEndCapture(_stream: *mut c_void, graph: *mut *mut c_void) -> c_int { make(graph) }

    /// 0: no capture is under way.
    fn cudaStreamIsCapturing(_stream: *mut c_void, status: *mut c_int) -> c_int { give(status, 0) }

    /// Builds of 2025 searched for nodes that copy, and found none.
    fn cudaGraphGetNodes(_graph: *mut c_void, _nodes: *mut c_void, count: *mut usize) -> c_int { give(count, 0) }

    fn cudaEventElapsedTime(milliseconds: *mut f32) -> c_int { give(milliseconds, 0.0) }

    /// The real runtime reports an error where there is no card, and the engine then goes on without.
    fn cudaGetDeviceCount as hipGetDeviceCount(count: *mut c_int) -> c_int {
        let cards = c_int::try_from(machine().cards.len()).unwrap_or(0);
        let given = give(count, cards);
        if cards == 0 { NO_DEVICE } else { given }
    }

    fn cudaGetDevice as hipGetDevice(device: *mut c_int) -> c_int {
        give(device, c_int::try_from(machine().current()).unwrap_or(0))
    }

    fn cudaSetDevice as hipSetDevice(device: c_int) -> c_int {
        match usize::try_from(device) {
            Ok(number) if number < machine().cards.len() => {
                machine().use_card(number);
                SUCCESS
            }
            _ => INVALID_DEVICE,
        }
    }

    /// Properties in the layout of CUDA 13, or of 11: CUDA 12 calls the other name.
    fn cudaGetDeviceProperties(place: *mut c_void, device: c_int) -> c_int {
        properties(if machine().runtime >= 13 { &CUDA_13 } else { &CUDA_11 }, place, device)
    }

    fn cudaGetDeviceProperties_v2(place: *mut c_void, device: c_int) -> c_int {
        properties(&CUDA_12, place, device)
    }

    fn cudaDeviceGetAttribute as cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
        let Some(card) = machine().card(device) else { return INVALID_DEVICE };
        give(value, c_int::try_from(card.attribute(attribute)).unwrap_or(0))
    }

    /// An address that no card of a machine has, and each of ours has its own; `room` bytes are the caller's.
    fn cudaDeviceGetPCIBusId as hipDeviceGetPCIBusId(text: *mut c_char, room: c_int, device: c_int) -> c_int {
        if machine().card(device).is_none() || text.is_null() {
            return INVALID_DEVICE;
        }
        let bus = alloc::format!("0000:{:02x}:00.0\0", device + 1);
        if bus.len() > usize::try_from(room).unwrap_or(0) {
            return INVALID;
        }
        text.cast::<u8>().copy_from_nonoverlapping(bus.as_ptr(), bus.len());
        SUCCESS
    }

    /// Peers are only used where a user asks for them, and take no memory.
    fn cudaDeviceCanAccessPeer as hipDeviceCanAccessPeer(can: *mut c_int) -> c_int { give(can, 0) }

    fn cudaMemGetInfo as hipMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
        let current = machine().current();
        let Some(card) = machine().cards.get(current) else { return NO_DEVICE };
        let sized = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        give(free, sized(machine().memory.free(current, card.free)));
        give(total, sized(card.total))
    }

    fn cudaRuntimeGetVersion(version: *mut c_int) -> c_int {
        give(version, c_int::try_from(machine().runtime).unwrap_or(0) * 1000)
    }

    fn cudaGetErrorString as cudaGetErrorName as hipGetErrorString(error: c_int) -> *const c_char {
        error_text(error).as_ptr()
    }

    fn cudaMalloc as hipMalloc(place: *mut *mut c_void, bytes: usize) -> c_int {
        allocate(Kind::Device, place, bytes)
    }

    fn cudaMallocManaged as hipMallocManaged(place: *mut *mut c_void, bytes: usize) -> c_int {
        allocate(Kind::Managed, place, bytes)
    }

    fn cudaMallocHost as cudaHostAlloc as hipHostMalloc(place: *mut *mut c_void, bytes: usize) -> c_int {
        allocate(Kind::Host, place, bytes)
    }

    /// Null is allowed, and `cudaFree(0)` is a known way to open the context.
    fn cudaFree as cudaFreeHost as hipFree as hipHostFree(address: *mut c_void) -> c_int {
        if address.is_null() || machine().memory.give(address) { SUCCESS } else { INVALID }
    }

    /// One address serves both, as with unified addressing.
    fn cudaHostGetDevicePointer as hipHostGetDevicePointer(place: *mut *mut c_void, host: *mut c_void) -> c_int {
        give(place, host)
    }

    /// The memory of cuBLAS itself is not counted here; the report says which card it is opened on.
    fn cublasCreate_v2(handle: *mut *mut c_void) -> c_int {
        machine().memory.report().opened_blas(machine().current());
        make(handle)
    }

    /// The second name is of CUDA before 11.4.2.
    fn cublasGetStatusString as cublasGetStatusName() -> *const c_char { c"plimsoll's stand-in for cuBLAS".as_ptr() }
}

/// # Safety
/// The address of an address.
unsafe fn allocate(kind: Kind, place: *mut *mut c_void, bytes: usize) -> c_int {
    let address = machine().memory.take(kind, machine().current(), bytes);
    // SAFETY: the caller's promise.
    unsafe { give(place, address) };
    if address.is_null() { OUT_OF_MEMORY } else { SUCCESS }
}

/// # Safety
/// `place` is null or of this layout.
pub(crate) unsafe fn properties(layout: &Layout, place: *mut c_void, device: c_int) -> c_int {
    let Some(card) = machine().card(device) else { return INVALID_DEVICE };
    if place.is_null() {
        return INVALID;
    }
    // SAFETY: the caller's promise.
    unsafe { layout.fill(place, card, usize::try_from(device).unwrap_or(0)) };
    SUCCESS
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
