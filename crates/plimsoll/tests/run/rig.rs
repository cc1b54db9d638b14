//! How the tests start `plimsoll run`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) use crate::hand_written::{HandWritten, library};

/// `plimsoll run OPTIONS -- COMMAND` under the stand-in, on a machine without cards.
pub(crate) fn run(options: &[&str], command: &[&str]) -> Command {
    let mut run = with_default_signals(env!("CARGO_BIN_EXE_plimsoll"));
    run.arg("run")
        .args(options)
        .arg("--")
        .args(command)
        .env("PLIMSOLL_GUARD_LIBRARY", library())
        .env("PLIMSOLL_NVML", "")
        .stdin(Stdio::null());
    run
}

/// Starts a program as an interactive shell does: whatever runs these tests may itself ignore signals, as jobs in the
/// background of a script do, and ignored signals are inherited.
pub(crate) fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it is text")
}

/// What it printed on stdout, and on stderr.
pub(crate) fn said(output: &Output) -> (&str, &str) {
    (text(&output.stdout), text(&output.stderr))
}

/// A file of a double, which cargo builds beside the program when the whole workspace is tested, and here otherwise.
pub(crate) fn built(file: &str, package: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_plimsoll")).with_file_name(file);
    if !path.exists() {
        let build = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", package])
            .status();
        let is_built = build.is_ok_and(|status| status.success()) && path.exists();
        assert!(is_built, "cargo build --package {package}");
    }
    path
}
