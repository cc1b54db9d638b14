//! Creates a CUDA stream of guard's own, for its copies and memory tests. They need not wait for the
//! program's work.

use core::ffi::c_uint;
use core::ptr::{null_mut, with_exposed_provenance_mut};

use crate::driver::{CuResult, CuStream, SUCCESS};

mod real {
    use super::*;

    crate::driver::real! {
        by INTERFACE;
        cuStreamCreate = hipStreamCreateWithFlags(stream: *mut CuStream, flags: c_uint);
        cuStreamDestroy_v2 = hipStreamDestroy(stream: CuStream);
        cuStreamSynchronize = hipStreamSynchronize(stream: CuStream);
    }
}

/// CU_STREAM_NON_BLOCKING: does not wait for the default stream.
const NON_BLOCKING: c_uint = 1;

/// A stream that is destroyed when it is dropped.
#[derive(Debug)]
pub(super) struct OwnStream(usize);

impl OwnStream {
    pub(super) fn new() -> Option<Self> {
        let mut stream = null_mut();
        // SAFETY: the place is ours.
        let code = unsafe { real::cuStreamCreate(&raw mut stream, NON_BLOCKING) };
        (code == SUCCESS).then(|| Self(stream.expose_provenance()))
    }

    pub(super) fn handle(&self) -> CuStream {
        with_exposed_provenance_mut(self.0)
    }

    /// Waits for all work in the stream.
    pub(super) fn wait(&self) -> CuResult {
        // SAFETY: the stream is ours.
        unsafe { real::cuStreamSynchronize(self.handle()) }
    }

    /// Ends the use of a stream that the driver has destroyed with its context.
    pub(super) const fn forget(self) {
        core::mem::forget(self);
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        // SAFETY: ours, and idle.
        unsafe { real::cuStreamDestroy_v2(self.handle()) };
    }
}
