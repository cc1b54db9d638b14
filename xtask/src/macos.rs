//! `cargo xtask macos`: compiles the crates that plan and diagnose for macOS, without linking them.
//!
//! A linker for macOS needs Apple's SDK, so nothing runs. It is no step of CI, since it builds Rust's library
//! first.

use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::debian::run_to_end;
use crate::standard_library::StandardLibrary;

const TARGET: &str = "aarch64-apple-darwin";
const PACKAGES: [&str; 3] = ["plimsoll-plan", "plimsoll-doctor", "plimsoll-config"];

pub(crate) fn run(root: &Path) -> ExitCode {
    match compiled(root) {
        Ok(()) => {
            println!("macos: {} compile for {TARGET}; nothing was linked or run", PACKAGES.join(", "));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("macos: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compiled(root: &Path) -> io::Result<()> {
    let library = StandardLibrary::find_or_build(root, TARGET)?;
    let mut cargo = Command::new("cargo");
    cargo.args(["check", "--target", TARGET]).current_dir(root);
    if let Some(flags) = library.flags() {
        cargo.env("CARGO_TARGET_AARCH64_APPLE_DARWIN_RUSTFLAGS", flags);
    }
    run_to_end(cargo.args(PACKAGES.iter().flat_map(|package| ["--package", package])))
}
