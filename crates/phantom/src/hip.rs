//! Simulates, without a GPU, the functions of the HIP runtime, hipBLAS and rocBLAS that differ from CUDA's.
//!
//! The module `runtime` exports the other functions under both names.
//!
//! ggml's HIP backend is its CUDA backend with other headers (`vendors/hip.h`), so only properties and
//! attributes differ. A card has no virtual memory management here, as in usual ROCm builds.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::machine::{INVALID, INVALID_DEVICE, SUCCESS, give, machine};
use crate::properties::HIP;
use crate::report::say;
use crate::runtime::properties;

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

crate::exported! {
    /// The handle is the binary's own address. Its code is AMD's and is not read.
    fn __hipRegisterFatBinary(binary: *mut c_void) -> *mut c_void { binary }

    fn hipDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
        /// `hipDeviceAttributeCooperativeLaunch`; the numbers are not CUDA's.
        const COOPERATIVE_LAUNCH: c_int = 10;
        let card = machine().card(device);
        card.map_or(INVALID_DEVICE, |_| give(value, c_int::from(attribute == COOPERATIVE_LAUNCH)))
    }

    fn hipGetDevicePropertiesR0600(place: *mut c_void, device: c_int) -> c_int {
        const ARCHITECTURE: usize = 1160;
        const WARP: usize = 308;
        let answer = properties(&HIP, place, device);
        let Some(card) = machine().card(device).filter(|_| answer == SUCCESS) else { return answer };
        // Asked for in every allocation.
        static STATED: AtomicBool = AtomicBool::new(false);
        if !STATED.swap(true, Relaxed) {
            say!("ROCm runtime");
        }
        let architecture = card.architecture.to_bytes_with_nul();
        // Lanes of a wave: 64 before RDNA.
        let lanes: u32 = if architecture.starts_with(b"gfx9") { 64 } else { 32 };
        place.byte_add(WARP).cast::<u32>().write(lanes);
        let text = place.byte_add(ARCHITECTURE).cast::<u8>();
        text.copy_from_nonoverlapping(architecture.as_ptr(), architecture.len().min(64));
        answer
    }

    fn rocblas_get_version_string(text: *mut c_char, room: usize) -> c_int {
        if text.is_null() || room < 2 {
            return INVALID;
        }
        text.cast::<[u8; 2]>().write(*b"4\0");
        SUCCESS
    }

    fn rocblas_get_version_string_size(size: *mut usize) -> c_int { give(size, 2) }
}
