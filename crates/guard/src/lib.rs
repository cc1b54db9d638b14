//! `libplimsoll_guard.so`: counts and limits the GPU memory of an unmodified program into which it is
//! preloaded.
//!
//! It passes every call through until `cuInit` has succeeded, or AMD's HIP runtime has reported a card, in a
//! process with `PLIMSOLL_GUARD` set.
//!
//! The modules form layers, lowest first. A module calls those of a higher layer only through registered
//! functions.
//!
//! | layer | modules |
//! |---|---|
//! | process | `clock`, `descriptor`, `process`, `say`, `settings`, `text` |
//! | driver | `driver`: the real functions of CUDA or HIP, found by walking the loaded objects |
//! | state | `state`: tables and counters; `trace`; `driver_guard`: thread state around driver calls |
//! | policy | `policy`: pure arithmetic, tested alone |
//! | accounts | `account`: count of the memory that the program holds, and claims on the budget |
//! | actions | `spill`, `ladder`, `ggml`, `graphs`, `contexts`: create and release memory, and wait for it |
//! | entry points | `arm`, `hooks`, `interpose`, `vulkan`: exported functions, and how a program finds them |
//!
//! DECISION: the library is `no_std` only with the profile `guard` (panic = abort), which saves 0.1 ms on
//! every exec. Every other profile builds an ordinary crate for tests and lints.
#![cfg_attr(panic = "abort", no_std)]
#![allow(
    non_snake_case,
    non_upper_case_globals,
    reason = "the functions keep the names that the driver gives them"
)]

extern crate alloc;
// Allocator and panic handler of the shipped library; linked even if no item of the crate were named.
extern crate plimsoll_nostd;

mod account;
mod arm;
mod clock;
mod contexts;
mod descriptor;
mod driver;
mod driver_guard;
mod ggml;
mod graphs;
mod hooks;
mod interpose;
mod ladder;
mod policy;
mod process;
mod say;
mod settings;
mod spill;
mod state;
mod text;
mod trace;
mod vulkan;

// Tests of the preloaded library, in this binary because each binary more is linked and stored by itself.
#[cfg(test)]
#[path = "../tests/process/main.rs"]
mod runner;
