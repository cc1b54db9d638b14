//! `libplimsoll_phantom.so`: CUDA, HIP and Vulkan without a card behind them.
//!
//! An engine's own, unmodified backend for one of them runs on it and says what it takes: which operations the card gets,
//! how buffers are rounded, what its pool asks for. The library is preloaded, and its file stands under the
//! names that the backend was linked with (`libcudart.so.13`, `libcublas.so.13`, `libcuda.so.1`, `libvulkan.so.1`), so that
//! the loader needs neither on the machine.
//!
//! - `cards`: what the card says of itself, as it was told.
//! - `memory`: addresses without memory behind them, and real memory where the host reads.
//! - `runtime`, `driver`, `blas`: the functions. Launches do nothing, and copies copy nothing.
//! - `hip`: the same functions under AMD's names.
//! - `vulkan_limits`, `vulkan`: what the card says of itself in Vulkan's words, and Vulkan's functions.
//! - `kernel`: how many blocks of a kernel run side by side, which decides the scratch of attention.
//! - `report`: every allocation, as JSON lines.
//! - `populate`, `weights`: weights and caches that are never read.
//!
//! The library is built with the profile `guard` (panic = abort), and is then `no_std`: it needs libc and
//! nothing else.
#![cfg_attr(panic = "abort", no_std)]

extern crate alloc;

mod blas;
mod cards;
mod driver;
mod hip;
mod kernel;
mod machine;
mod memory;
#[cfg(not(test))]
mod populate;
mod properties;
mod report;
mod runtime;
mod say;
#[cfg(panic = "abort")]
mod unwind;
mod vulkan;
mod vulkan_limits;
#[cfg(not(test))]
mod weights;

/// Functions whose answer is success, whatever they are asked.
///
/// DECISION: without parameters. The caller of a C function removes what it passed, on every machine that this
/// is built for, so one body serves all signatures of all versions.
macro_rules! succeeding {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name() -> core::ffi::c_int {
            0
        }
    )* };
}

/// Functions that make an object: the address of a word goes through the first pointer.
macro_rules! making {
    ($($name:ident)*) => { $(
        /// # Safety
        /// The first argument is null, or the address of a pointer.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(made: *mut *mut core::ffi::c_void) -> core::ffi::c_int {
            // SAFETY: the caller's promise.
            unsafe { $crate::machine::make(made) }
        }
    )* };
}

pub(crate) use {making, succeeding};
