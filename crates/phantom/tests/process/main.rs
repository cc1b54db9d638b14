//! Phantom as it is used: opened by a host that does what ggml's loader does, in each version of the
//! interface.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod artefact;
mod declined;
mod host;
mod loaded;
