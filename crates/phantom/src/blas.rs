//! Stand-in for cuBLAS: every function succeeds and computes nothing.
//!
//! The memory of cuBLAS itself is not counted here; the report says which card it is opened on.

use core::ffi::{c_char, c_int, c_void};

use crate::machine::{machine, make};

crate::making! { cublasLtCreate }

crate::succeeding! {
    cublasDestroy_v2 cublasGemmBatchedEx cublasGemmEx cublasGemmStridedBatchedEx cublasLoggerConfigure cublasLtDestroy
    cublasSetMathMode cublasSetStream_v2 cublasSetWorkspace_v2 cublasSgemmBatched cublasSgemmStridedBatched
    cublasSgemm_v2 cublasStrsmBatched
}

/// # Safety
/// The address of a handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasCreate_v2(handle: *mut *mut c_void) -> c_int {
    let machine = machine();
    machine.memory.report().opened_blas(machine.current());
    // SAFETY: the caller's promise.
    unsafe { make(handle) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasGetStatusString(_status: c_int) -> *const c_char {
    c"plimsoll's stand-in for cuBLAS".as_ptr()
}

/// The name before CUDA 11.4.2.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasGetStatusName(status: c_int) -> *const c_char {
    cublasGetStatusString(status)
}
