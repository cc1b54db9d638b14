//! `libplimsoll_guard.so`: stands between an unmodified program and the CUDA driver.
//!
//! It is preloaded, so it lives in every process of a tree, most of which never touch CUDA. It therefore does nothing when it
//! is loaded, needs nothing but libc, and is a pass-through until `PLIMSOLL_GUARD` is set and the driver's own `cuInit` has
//! succeeded. A program reaches the driver through four `doors`; each leads to the same `hooks`, found in one `table`. Hooks
//! call the driver through `driver`, count what it gives in `account`, and climb the `ladder` when there is no more.
//!
//! The artefact is built with the profile `guard` (panic = abort), and is then `no_std`: 0.1 ms less for every exec, no unwinder.
//! With any other profile this is an ordinary crate, for tests and lints. Exports exist in neither unit tests nor rlibs.
#![cfg_attr(panic = "abort", no_std)]
#![allow(
    non_snake_case,
    non_upper_case_globals,
    reason = "the functions of the driver keep their names"
)]

extern crate alloc;

mod account;
mod arm;
mod clock;
mod contexts;
mod doors;
mod driver;
mod ggml;
mod graphs;
mod hooks;
mod ladder;
mod lock;
#[cfg(panic = "abort")]
mod runtime;
mod say;
mod spill;
mod table;
mod text;
mod trace;
