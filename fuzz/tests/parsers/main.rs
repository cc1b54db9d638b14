//! Every parser of hostile input with a public face: a panic, an endless loop or a broken bound is a fault.
//!
//! A few mutants in CI; `cargo xtask test --long fuzz` gives each target a million. The parsers that only the server can
//! reach (heads, bodies, names of models) are fuzzed in `plimsoll-serve`. The answers of netlink and of engines have unit tests
//! with damaged input, and no target yet.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod configurations;
mod logs;
mod machine;
mod models;
mod pages;
