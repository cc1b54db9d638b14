//! Installer of packages that tests need.
//!
//! Guard's tests need a C++ compiler to imitate ggml's pool. For aarch64 they need the target's standard library, a C
//! compiler and an emulator. Tests of metrics run Prometheus' own tools. Tests of packages need whole systems:
//! debootstrap creates them, QEMU boots them.

use std::process::{Command, ExitCode};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const PACKAGES: &[&str] =
    &["g++", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user", "prometheus"];
const SYSTEMS: &[&str] = &["debootstrap", "qemu-system-x86", "e2fsprogs"];

/// Installs what is missing, by name.
pub(crate) fn run() -> ExitCode {
    let target = runs("rustup", &["target", "add", TARGET]);
    let programs = ["c++", "aarch64-linux-gnu-gcc", "qemu-aarch64", "promtool"];
    installed(&programs, PACKAGES, target)
}

/// The same for the systems of `cargo xtask test --long`.
pub(crate) fn systems() -> ExitCode {
    installed(&["debootstrap", "qemu-system-x86_64", "mke2fs"], SYSTEMS, true)
}

/// The browser that looks at the web page of `serve`.
pub(crate) fn browser() -> ExitCode {
    installed(&["chromium"], &["chromium"], true)
}

fn installed(programs: &[&str], packages: &[&str], target: bool) -> ExitCode {
    let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    let there = programs.iter().all(is_there) || {
        let install = [&["install", "--yes", "--no-install-recommends"], packages].concat();
        runs("apt-get", &["update"]) && runs("apt-get", &install)
    };
    if !(target && there) {
        eprintln!("cannot install {TARGET} or one of {}; install them by hand", packages.join(", "));
    }
    ExitCode::from(u8::from(!(target && there)))
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}
