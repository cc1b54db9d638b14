//! Tests of the public interface of this crate; `src/lib.rs` includes this file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod cache_layout;
mod contexts;
mod cpu;
mod exact;
mod fit_properties;
mod h200;
mod header_speed;
mod hip;
mod ik;
mod kernels;
mod measured;
mod phantom;
mod plan_properties;
mod repack;
mod shapes;
mod unified;
mod zoo;
