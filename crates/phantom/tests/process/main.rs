//! Tests of phantom (the stand-in for a GPU) as users run it: preloaded into a program that was linked with a
//! CUDA runtime, without CUDA.
//!
//! Phantom has the name of that runtime, and the machine has no CUDA installed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod artefact;
mod backend;
mod hip;
mod requested;
mod vulkan;
