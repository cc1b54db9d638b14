//! Builds guard and phantom with the profile `guard`: `target/guard/libplimsoll_guard.so` and
//! `target/guard/libplimsoll_phantom.so`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub(crate) fn run(root: &Path) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--profile", "guard"])
        .args(["--package", "plimsoll-guard", "--package", "plimsoll-phantom"])
        .current_dir(root)
        .status();
    match built {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Where cargo puts what it builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}
