//! Installs the compilers, emulators and other system packages that the tests need.
//!
//! Guard's tests need a C++ compiler to imitate ggml's pool, and Vulkan's loader with Mesa's software driver;
//! those of metrics Prometheus' own tools, those of releases minisign. For aarch64 they need the target's
//! standard library, a C compiler and an emulator. Tests of packages need whole systems: debootstrap creates
//! them, QEMU boots them. Programs for Windows need a linker and Wine.

use std::process::{Command, ExitCode};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const CROSS: &[&str] = &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"];
const VULKAN: &[&str] = &["libvulkan1", "mesa-vulkan-drivers", "vulkan-tools"];
const SYSTEMS: &[&str] = &["debootstrap", "qemu-system-x86", "e2fsprogs", "nix-bin", "rpm", "ruby"];
/// What signs a release, and reads its installation script.
const SIGNED: &[&str] = &["minisign", "shellcheck"];

/// Installs by name what is missing for aarch64.
pub(crate) fn run() -> ExitCode {
    let outcomes = [target(), installed(&["aarch64-linux-gnu-gcc", "qemu-aarch64"], CROSS)];
    ExitCode::from(u8::from(outcomes.contains(&ExitCode::FAILURE)))
}

/// The target's standard library, which is all that a check of its sources takes.
pub(crate) fn target() -> ExitCode {
    if runs("rustup", &["target", "add", TARGET]) {
        return ExitCode::SUCCESS;
    }
    eprintln!("cannot install {TARGET}; install it by hand");
    ExitCode::FAILURE
}

/// The programs that tests start on every machine.
pub(crate) fn programs() -> ExitCode {
    let packages = [&["g++", "prometheus"], VULKAN, SIGNED].concat();
    installed(&["c++", "promtool", "vulkaninfo", "minisign", "shellcheck"], &packages)
}

/// The same for the systems of `cargo xtask test --long`.
pub(crate) fn systems() -> ExitCode {
    installed(
        &["debootstrap", "qemu-system-x86_64", "mke2fs", "nix-instantiate", "rpmbuild", "ruby"],
        SYSTEMS,
    )
}

/// The browser that looks at the web page of `serve`.
pub(crate) fn browser() -> ExitCode {
    installed(&["chromium"], &["chromium"])
}

/// The linker for Windows, and Wine.
pub(crate) fn windows() -> ExitCode {
    let packages = ["gcc-mingw-w64-x86-64-win32", "wine64", "wine", "libwine"];
    installed(&["x86_64-w64-mingw32-gcc", "wine"], &packages)
}

fn installed(programs: &[&str], packages: &[&str]) -> ExitCode {
    let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    let there = programs.iter().all(is_there) || {
        let install = [&["install", "--yes", "--no-install-recommends"], packages].concat();
        runs("apt-get", &["update"]) && runs("apt-get", &install)
    };
    if !there {
        eprintln!("cannot install one of {}; install them by hand", packages.join(", "));
    }
    ExitCode::from(u8::from(!there))
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}
