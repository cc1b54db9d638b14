//! Starts `plimsoll run` for its tests.

use std::process::{Command, Output, Stdio};

pub(crate) use crate::pages::hand_written::{HandWritten, library};

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

/// Starts a program as an interactive shell does: whatever runs these tests may itself ignore signals, as
/// jobs in the background of a script do, and ignored signals are inherited.
pub(crate) fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it is text")
}

/// What it printed on stdout, and on stderr.
pub(crate) fn stated(output: &Output) -> (&str, &str) {
    (text(&output.stdout), text(&output.stderr))
}
