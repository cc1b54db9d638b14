//! Tests of guard preloaded into real processes, with a fake `libcuda.so.1` whose cards have as much memory
//! as a test allows.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod aarch64;
mod artefact;
mod budget;
mod client;
mod contexts;
mod dialogue;
mod doors;
mod ggml;
mod hip;
mod life;
mod nostd;
mod nvml;
mod pe;
mod pinned;
mod preload;
mod requested;
mod speed;
mod spill;
mod tree;
mod vulkan;
