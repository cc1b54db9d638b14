//! `libplimsoll_phantom.so`: stands in for CUDA, HIP and Vulkan on a machine without a GPU, when preloaded.
//!
//! An unmodified engine runs on it, and the memory that its backend requests is recorded for a plan.
//!
//! - `cards`: properties of the simulated cards.
//! - `memory`: address ranges without memory, and real memory for data that the host reads.
//! - `runtime`, `driver`: the exported functions of CUDA and cuBLAS. Kernel launches and copies do nothing.
//! - `hip`: the same functions under AMD's names.
//! - `vulkan_limits`, `vulkan`: limits of a card by its vendor, and Vulkan's functions.
//! - `kernel`: occupancy, which determines the temporary memory of attention.
//! - `report`: every allocation, as JSON lines.
//! - `weights`: replaced functions, so that weights are not read and caches are not cleared.
//!
//! - `linux`, `windows`: all that is asked of the operating system.
//!
//! With the profile `guard` (panic = abort), the library is `no_std` on Linux and needs only libc.
#![cfg_attr(all(unix, panic = "abort"), no_std)]

extern crate alloc;

mod cards;
mod driver;
mod hip;
mod kernel;
#[cfg(unix)]
mod linux;
mod machine;
mod memory;
mod properties;
mod report;
mod runtime;
#[cfg(all(unix, panic = "abort"))]
mod unwind;
mod visible;
mod vulkan;
mod vulkan_limits;
#[cfg(all(unix, not(test)))]
mod weights;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use linux as system;
#[cfg(windows)]
use windows as system;

/// Functions whose answer is success, whatever they are asked.
///
/// DECISION: without parameters. The caller of a C function removes what it passed, on every machine that
/// this is built for, so one body serves all signatures of all versions.
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
    ($($name:ident)*) => {
        $crate::exported! { $(fn $name(created: *mut *mut core::ffi::c_void) -> core::ffi::c_int {
            $crate::machine::make(created)
        })* }
    };
}

/// Functions that a foreign interface declares. Their pointers are null, or valid for their types. Parameters
/// that come last and are not read may be left out, as above. `as` gives one function a second name.
macro_rules! exported {
    ($(#[$about:meta])* fn $name:ident as $twin:ident $(as $more:ident)* ($($given:tt)*) -> $answer:ty $body:block $($rest:tt)*) => {
        $crate::exported! { $(#[$about])* fn $name($($given)*) -> $answer $body }
        $crate::exported! { fn $twin $(as $more)* ($($given)*) -> $answer $body $($rest)* }
    };
    ($(#[$about:meta])* fn $name:ident $given:tt $(-> $answer:ty)? $body:block $($rest:tt)*) => {
        $(#[$about])*
        /// # Safety
        /// As of the interface that declares the function.
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, reason = "some of them need no promise")]
        pub(crate) unsafe extern "C" fn $name $given $(-> $answer)? {
            // SAFETY: the caller's promise.
            unsafe { $body }
        }
        $crate::exported! { $($rest)* }
    };
    () => {};
}

pub(crate) use {exported, making, succeeding};

// Tests of the preloaded library, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
#[cfg(unix)]
#[path = "../tests/process/main.rs"]
mod runner;
