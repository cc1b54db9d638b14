//! Stand-in for cuBLAS: every function succeeds and computes nothing.
//!
//! The memory of cuBLAS itself is not counted here; a plan includes it in the size of the CUDA context.

use core::ffi::{c_char, c_int};

crate::making! { cublasCreate_v2 cublasLtCreate }

crate::succeeding! {
    cublasDestroy_v2 cublasGemmBatchedEx cublasGemmEx cublasGemmStridedBatchedEx cublasLoggerConfigure cublasLtDestroy
    cublasSetMathMode cublasSetStream_v2 cublasSetWorkspace_v2 cublasSgemmBatched cublasSgemmStridedBatched
    cublasSgemm_v2 cublasStrsmBatched
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
