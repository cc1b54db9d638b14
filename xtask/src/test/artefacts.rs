//! Builds the programs and libraries that the tests run, once before the tests.
//!
//! A test that runs alone under `cargo test` builds what it needs. Under nextest every test is a process, so
//! several hundred processes would each call cargo. The variable `PLIMSOLL_TESTS_ARE_BUILT` tells them to
//! skip this.

use std::path::Path;
use std::process::{Command, ExitCode};

use super::linted;
use crate::{cross, guard};

const TRIPLE: &str = "aarch64-unknown-linux-gnu";

/// All programs, libraries and tests of the workspace, with all lints.
pub(super) fn here(root: &Path) -> ExitCode {
    status(linted::cargo().args(["build", "--workspace", "--all-targets"]).current_dir(root))
}

/// Packages with an ABI of their own, whose types and assembly differ by architecture. They take no C
/// compiler to check.
const FOREIGN: [&str; 3] = ["fake-cuda", "plimsoll-guard", "plimsoll-phantom"];

/// A check of these packages for aarch64. The whole program is built and run with `--long`.
pub(super) fn check_aarch64(root: &Path) -> ExitCode {
    if cross::target() != ExitCode::SUCCESS {
        return ExitCode::FAILURE;
    }
    let packages = FOREIGN.iter().flat_map(|package| ["--package", package]);
    cargo(root, &["check", "--lib", "--target", TRIPLE].into_iter().chain(packages).collect::<Vec<_>>())
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

/// What the tests of a usual run start: nearly nothing to do where the steps before have built them.
pub(super) fn usual(root: &Path) -> bool {
    let builds = [here, guard::run, |_: &Path| cross::programs()];
    builds.iter().all(|build| build(root) == ExitCode::SUCCESS)
}

/// The same, an optimised double of the driver for tests that measure, and what the tests for aarch64 start.
pub(super) fn long(root: &Path) -> bool {
    let double = ["build", "--profile", "guard", "--package", "fake-cuda"];
    usual(root) && cargo(root, &double) == ExitCode::SUCCESS && aarch64(root) == ExitCode::SUCCESS
}

fn cargo(root: &Path, words: &[&str]) -> ExitCode {
    let mut cargo = Command::new("cargo");
    cargo.args(words).env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    status(cargo.current_dir(root))
}

fn status(command: &mut Command) -> ExitCode {
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
