//! Installer of packages that guard's tests need.
//!
//! They are a C++ compiler for the imitations of ggml's pool and, for aarch64, the target's standard library,
//! a C compiler and an emulator.

use std::process::{Command, ExitCode};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const PACKAGES: &[&str] = &["g++", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"];

/// Installs what is missing, by name.
pub(crate) fn run() -> ExitCode {
    let target = runs("rustup", &["target", "add", TARGET]);
    let programs = ["c++", "aarch64-linux-gnu-gcc", "qemu-aarch64"];
    let there = programs.iter().all(|program| runs(program, &["--version"]));
    let tools = there || {
        let install = [&["install", "--yes", "--no-install-recommends"], PACKAGES].concat();
        runs("apt-get", &["update"]) && runs("apt-get", &install)
    };
    if !(target && tools) {
        eprintln!("cannot install {TARGET} or one of {}; install them by hand", PACKAGES.join(", "));
    }
    ExitCode::from(u8::from(!(target && tools)))
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}
