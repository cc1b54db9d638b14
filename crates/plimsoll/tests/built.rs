//! Finds or builds the programs that tests start in addition to `plimsoll`, such as the fake engine.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of a double, which cargo builds beside the program when the whole workspace is tested, and here
/// otherwise.
pub(crate) fn built(file: &str, package: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_plimsoll")).with_file_name(file);
    if !path.exists() {
        let build = Command::new(env!("CARGO")).args(["build", "--quiet", "--package", package]).status();
        let is_built = build.is_ok_and(|status| status.success()) && path.exists();
        assert!(is_built, "cargo build --package {package}");
    }
    path
}
