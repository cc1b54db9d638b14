//! Lists the modules that test the public interface of `plimsoll-planner`. `src/lib.rs` includes this file,
//! so that they and the unit tests are one binary.

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
mod margins;
mod measured;
mod phantom;
mod plan_properties;
mod repack;
mod shapes;
mod specimens;
mod speed;
mod unified;
mod zoo;
