//! `libplimsoll_phantom.so`: a ggml backend that claims to be CUDA and mirrors only its sizes.
//!
//! An unmodified llama.cpp that finds it in `GGML_BACKEND_PATH` builds its own graphs and allocates its own
//! buffers for cards that need not exist. It therefore logs the memory figures that it would log with those
//! cards. Device memory is a range of addresses that cannot be touched; host buffers are real. Nothing is
//! computed: results are zeros.
//!
//! The plugin finds its engine (`engine`), measures the interface version (`probe`), and declines unknown
//! engines with one line on stderr. Sizes and refusals follow ggml's CUDA backend of the engine's own
//! generation (`generation`): `attention`, `support`, `memory`. While the engine replays a prompt, `demand`
//! derives each operation's requests to the run-time pool, and `depth` runs the pools of `plimsoll-pool` on
//! them. Observations go to a file of JSON lines (`report`).
//!
//! NVIDIA's cards are mirrored. ROCm, MUSA, Vulkan and the row split of old builds are not.
//!
//! The library is built with the profile `guard` (panic = abort), and is then `no_std`: it needs libc and
//! nothing else.
#![cfg_attr(panic = "abort", no_std)]

extern crate alloc;

mod abi;
mod attention;
mod backend;
mod cards;
mod demand;
mod depth;
mod device;
mod engine;
mod generation;
mod kinds;
#[cfg(test)]
mod made;
mod memory;
mod phantom;
#[cfg(not(test))]
mod populate;
mod probe;
mod report;
mod say;
mod support;
mod tensor;
#[cfg(panic = "abort")]
mod unwind;

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

/// The registry that ggml's loader asks for; none where the plugin declines.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ggml_backend_init() -> *mut c_void {
    phantom::get().map_or(null_mut(), |phantom| {
        (&raw const phantom.registry).cast_mut().cast()
    })
}

/// Score of the plugin, which ggml's loader asks first; 0 where the plugin declines.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn ggml_backend_score() -> c_int {
    c_int::from(phantom::get().is_some())
}
