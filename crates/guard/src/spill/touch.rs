//! Runs a GPU kernel that adds one to each byte of a range, to test whether the GPU can access it.
//!
//! Some cards (consumer Blackwell) reportedly map host memory but fault when a kernel accesses it.

use core::ffi::{c_char, c_uint, c_void};
use core::ptr::null_mut;

use crate::driver::{CuResult, CuStream, DevicePointer, SUCCESS};

mod real {
    use super::*;

    crate::driver::real! {
        by INTERFACE;
        cuModuleLoadData(module: *mut *mut c_void, image: *const c_void);
        cuModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char);
        cuModuleUnload(module: *mut c_void);
        cuLaunchKernel(
            function: *mut c_void,
            blocks: c_uint, blocks_y: c_uint, blocks_z: c_uint,
            threads: c_uint, threads_y: c_uint, threads_z: c_uint,
            shared: c_uint, stream: CuStream, arguments: *mut *mut c_void, more: *mut *mut c_void
        );
    }
}

const PTX: &str = concat!(include_str!("touch.ptx"), "\0");
const THREADS: c_uint = 256;

/// Test kernel, loaded into the calling thread's context.
#[derive(Debug)]
pub(super) struct TouchKernel {
    module: *mut c_void,
    function: *mut c_void,
}

impl TouchKernel {
    pub(super) fn load() -> Option<Self> {
        let mut kernel = Self { module: null_mut(), function: null_mut() };
        // SAFETY: the image is text that ends in zero, as is the name; the places are ours.
        unsafe {
            if real::cuModuleLoadData(&raw mut kernel.module, PTX.as_ptr().cast()) != SUCCESS {
                return None;
            }
            let name = c"plimsoll_touch".as_ptr();
            let found = real::cuModuleGetFunction(&raw mut kernel.function, kernel.module, name);
            (found == SUCCESS).then_some(kernel)
        }
    }

    /// Adds one to each of `count` bytes, in a stream.
    pub(super) fn touch(&self, at: DevicePointer, count: u64, stream: CuStream) -> CuResult {
        let (mut at, mut count) = (at, count);
        let blocks = c_uint::try_from(count.div_ceil(THREADS.into())).unwrap_or(c_uint::MAX);
        let mut arguments = [(&raw mut at).cast(), (&raw mut count).cast()];
        let arguments = arguments.as_mut_ptr();
        // SAFETY: the kernel's two arguments are of eight bytes each and are read before the call returns.
        unsafe {
            real::cuLaunchKernel(self.function, blocks, 1, 1, THREADS, 1, 1, 0, stream, arguments, null_mut())
        }
    }
}

impl Drop for TouchKernel {
    fn drop(&mut self) {
        if !self.module.is_null() {
            // SAFETY: ours; the probe has waited for its stream.
            unsafe { real::cuModuleUnload(self.module) };
        }
    }
}
