//! `plimsoll exec-child`: the trampoline between the launcher and an engine (hidden).
//!
//! The parent-death signal can only be set by the process that it shall hit, between fork and exec, where
//! safe Rust cannot run code. So the launcher starts this program, which sets it on itself and becomes the
//! engine; the setting survives exec. A parent that died before that moment sends no signal any more, so its
//! number is checked afterwards.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use plimsoll_launch::CHILD_MARK;
use plimsoll_wire::control::EXEC_FAILED;
use rustix::process::{Pid, Signal, getpid, getppid, set_child_subreaper, set_parent_process_death_signal};

/// As shells have it: the program was not found, or could not be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Process id of the launcher
    #[arg(long)]
    parent: i32,
    /// Program and arguments to become
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let (program, rest) = match arguments.command.split_first() {
        Some((program, rest)) => (program, rest),
        None => return ExitCode::from(NOT_FOUND),
    };
    // Descriptors that the daemon inherited without close-on-exec (from a shell, a terminal) are no engine's
    // affair.
    close_fds::set_fds_cloexec(3, &[]);
    // Orphans of the engine stay in its tree, where the launcher finds them. Kernels before 3.4 lack it; then
    // the mark in the environment is what is left.
    let own = getpid();
    let _ = set_child_subreaper(Some(own));
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    let parent = getppid().map(Pid::as_raw_nonzero);
    if bound.is_err() || parent.map(i32::from) != Some(arguments.parent) {
        return ExitCode::FAILURE;
    }
    let mark = own.as_raw_nonzero().to_string();
    let error = Command::new(program).args(rest).env(CHILD_MARK, mark).exec();
    let _ = writeln!(
        std::io::stderr(),
        "{EXEC_FAILED}{}: {error}",
        program.to_string_lossy()
    );
    match error.kind() {
        std::io::ErrorKind::NotFound => ExitCode::from(NOT_FOUND),
        _ => ExitCode::from(NOT_EXECUTABLE),
    }
}
