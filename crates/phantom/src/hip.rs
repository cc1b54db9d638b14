//! Functions of the HIP runtime, hipBLAS and rocBLAS: those of CUDA under AMD's names.
//!
//! ggml's HIP backend is its CUDA backend with other headers (`vendors/hip.h`), so most functions are shared.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::machine::{INVALID, INVALID_DEVICE, give, machine};
use crate::properties::{CUDA_12, FunctionAttributes};
use crate::runtime::{self, allocate, launch};
use crate::say::say;

crate::succeeding! {
    __hipPushCallConfiguration __hipRegisterFunction __hipRegisterVar __hipUnregisterFatBinary hipDeviceEnablePeerAccess
    hipDeviceDisablePeerAccess hipDeviceSynchronize hipEventDestroy hipEventRecord hipEventSynchronize
    hipFuncSetAttribute hipGetLastError hipGraphDestroy hipGraphExecDestroy hipGraphExecUpdate hipGraphLaunch
    hipHostRegister hipHostUnregister hipLaunchCooperativeKernel hipLaunchKernel hipMemAdvise hipMemcpy hipMemcpy2DAsync
    hipMemcpyAsync hipMemcpyPeerAsync hipMemset hipMemsetAsync hipPeekAtLastError hipStreamBeginCapture
    hipStreamDestroy hipStreamSynchronize hipStreamWaitEvent
    hipblasDestroy hipblasGemmBatchedEx hipblasGemmEx hipblasGemmStridedBatchedEx hipblasSetStream hipblasSgemm
    hipblasSgemmBatched hipblasSgemmStridedBatched hipblasStrsmBatched rocblas_initialize
}

crate::making! {
    hipEventCreate hipEventCreateWithFlags hipGraphInstantiate hipStreamCreate hipStreamCreateWithFlags hipblasCreate
}

// Only properties and attributes differ. A card has no virtual memory management here, as in usual ROCm
// builds.
/// Functions that are CUDA's, argument for argument.
macro_rules! same {
    ($($name:ident = $of:path, ($($argument:ident: $type:ty),*);)*) => { $(
        /// # Safety
        /// As of CUDA's function.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the caller's promise.
            #[allow(unused_unsafe, reason = "some of them are safe")]
            unsafe { $of($($argument),*) }
        }
    )* };
}

same! {
    hipGetDeviceCount = runtime::cudaGetDeviceCount, (count: *mut c_int);
    hipGetDevice = runtime::cudaGetDevice, (device: *mut c_int);
    hipSetDevice = runtime::cudaSetDevice, (device: c_int);
    hipMemGetInfo = runtime::cudaMemGetInfo, (free: *mut usize, total: *mut usize);
    hipDeviceGetPCIBusId = runtime::cudaDeviceGetPCIBusId, (text: *mut c_char, room: c_int, device: c_int);
    hipDeviceCanAccessPeer = runtime::cudaDeviceCanAccessPeer, (can: *mut c_int, card: c_int, peer: c_int);
    hipStreamEndCapture = runtime::cudaStreamEndCapture, (stream: *mut c_void, graph: *mut *mut c_void);
    hipMalloc = allocate::cudaMalloc, (place: *mut *mut c_void, bytes: usize);
    hipMallocManaged = allocate::cudaMallocManaged, (place: *mut *mut c_void, bytes: usize, flags: c_uint);
    hipHostMalloc = allocate::cudaHostAlloc, (place: *mut *mut c_void, bytes: usize, flags: c_uint);
    hipFree = allocate::cudaFree, (address: *mut c_void);
    hipHostFree = allocate::cudaFreeHost, (address: *mut c_void);
    hipHostGetDevicePointer = allocate::cudaHostGetDevicePointer, (place: *mut *mut c_void, host: *mut c_void, flags: c_uint);
    hipFuncGetAttributes = launch::cudaFuncGetAttributes, (place: *mut FunctionAttributes, host: *const c_void);
    hipOccupancyMaxActiveBlocksPerMultiprocessor = launch::cudaOccupancyMaxActiveBlocksPerMultiprocessor,
        (blocks: *mut c_int, host: *const c_void, threads: c_int, dynamic: usize);
    __hipPopCallConfiguration = launch::__cudaPopCallConfiguration,
        (grid: *mut [c_uint; 3], block: *mut [c_uint; 3], shared: *mut usize, stream: *mut *mut c_void);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetErrorString(error: c_int) -> *const c_char {
    runtime::error_text(error).as_ptr()
}

/// The handle is the binary's own address. Its code is AMD's and is not read.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __hipRegisterFatBinary(binary: *mut c_void) -> *mut c_void {
    binary
}

/// # Safety
/// The address of a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    device: c_int,
) -> c_int {
    /// `hipDeviceAttributeCooperativeLaunch`; the numbers are not CUDA's.
    const COOPERATIVE_LAUNCH: c_int = 10;
    match machine().card(device) {
        // SAFETY: the caller's promise.
        Some(_) => unsafe { give(value, c_int::from(attribute == COOPERATIVE_LAUNCH)) },
        None => INVALID_DEVICE,
    }
}

/// Properties of ROCm 6 and 7: those of CUDA 12, and AMD's behind them (`hip_runtime_api.h` 6.4.3).
///
/// # Safety
/// The address of `hipDeviceProp_tR0600`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipGetDevicePropertiesR0600(place: *mut c_void, device: c_int) -> c_int {
    const SIZE: usize = 1472;
    const ARCHITECTURE: usize = 1160;
    const WARP: usize = 308;
    let Some(card) = machine().card(device) else {
        return INVALID_DEVICE;
    };
    if place.is_null() {
        return INVALID;
    }
    // Asked for in every allocation.
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        say!("ROCm runtime");
    }
    let architecture = card.architecture.to_bytes_with_nul();
    // Lanes of a wave: 64 before RDNA.
    let lanes: u32 = if architecture.starts_with(b"gfx9") { 64 } else { 32 };
    // SAFETY: the structure has this size, and what is written lies in it.
    unsafe {
        place.write_bytes(0, SIZE);
        CUDA_12.fill(place, card, usize::try_from(device).unwrap_or(0));
        place.byte_add(WARP).cast::<u32>().write(lanes);
        let text = place.byte_add(ARCHITECTURE).cast::<u8>();
        text.copy_from_nonoverlapping(architecture.as_ptr(), architecture.len().min(64));
    }
    0
}

/// # Safety
/// Room for so many bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rocblas_get_version_string(text: *mut c_char, room: usize) -> c_int {
    if text.is_null() || room < 2 {
        return INVALID;
    }
    // SAFETY: the caller's room.
    unsafe { text.cast::<[u8; 2]>().write(*b"4\0") };
    0
}

/// # Safety
/// The address of a size.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rocblas_get_version_string_size(size: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { give(size, 2) }
}
