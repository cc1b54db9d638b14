//! The stand-in as it is used: preloaded into a program that was linked with a CUDA runtime, under that
//! runtime's name, on a machine without CUDA.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod artefact;
mod asked;
mod backend;
mod hip;
mod vulkan;
