//! The bytes that separate processes agree on. No dependency, no allocation, no behaviour.
//!
//! Today: the names of environment variables and llama-server's control channel. The budget page and the
//! trace record of guard join them here.
#![no_std]
#![forbid(unsafe_code)]

pub mod control;
pub mod env;
