//! Build of the programs and libraries that the tests run, once before the tests.
//!
//! A test that runs alone under `cargo test` builds what it needs. Under nextest every test is a process, so
//! several hundred processes would each call cargo. The variable `PLIMSOLL_TESTS_ARE_BUILT` tells them to
//! skip this.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::{cross, guard};

const TRIPLE: &str = "aarch64-unknown-linux-gnu";

/// All programs, libraries and tests of the workspace.
pub(super) fn here(root: &Path) -> ExitCode {
    cargo(root, &["build", "--workspace", "--lib", "--bins", "--tests"])
}

/// The compilers for aarch64, then the program, guard and the driver's double for it.
pub(super) fn aarch64(root: &Path) -> ExitCode {
    let target = ["build", "--target", TRIPLE];
    let debug: &[&str] = &["--package", "plimsoll", "--bin", "plimsoll"];
    let double: &[&str] = &["--package", "fake-cuda", "--lib"];
    let guard: &[&str] = &["--package", "plimsoll-guard", "--profile", "guard"];
    if cross::run() != ExitCode::SUCCESS {
        return ExitCode::FAILURE;
    }
    for words in [debug, double, guard] {
        let built = cargo(root, &[&target, words].concat());
        if built != ExitCode::SUCCESS {
            return built;
        }
    }
    ExitCode::SUCCESS
}

/// All of them: nearly nothing to do where the steps before have built them.
pub(super) fn all(root: &Path) -> bool {
    let builds = [here, guard::run, aarch64];
    builds.iter().all(|build| build(root) == ExitCode::SUCCESS)
}

fn cargo(root: &Path, words: &[&str]) -> ExitCode {
    let status = Command::new("cargo")
        .args(words)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .current_dir(root)
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
