//! Every parser of hostile input with a public face: a panic, an endless loop or a broken bound is a fault.
//!
//! A few mutants in CI; `cargo xtask test --long fuzz` gives each target a million. Private parsers are
//! fuzzed in their crates: those of clients' requests and engines' answers in `plimsoll-route`, those of
//! netlink, process names, state lines and answers to Plimsoll's own HTTP client in `plimsoll-engine`.

mod configurations;
mod fleet;
mod logs;
mod machine;
mod models;
mod pages;
