//! Sets cargo's options for CI's builds: Clippy checks the code as it is compiled, and debug information is
//! left out.
//!
//! DECISION: Clippy compiles the workspace in the place of rustc. A check of its own would read every crate
//! twice more, and take the metadata of every dependency beside its code. Debug information takes a sixth of
//! the time to compile, and a panic names its line without it.

use std::process::Command;

/// Each warning is an error. Clippy divides its arguments at this word.
const LINTS: (&str, &str) = ("CLIPPY_ARGS", "--deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");

/// Cargo for every step that builds or runs what `build` has built, so that nothing is compiled again.
pub(super) fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver").env(LINTS.0, LINTS.1);
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "false");
    cargo
}
