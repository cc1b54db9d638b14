//! `plimsoll exec-child`: trampoline that sets the parent-death signal and then becomes the engine (hidden
//! command).
//!
//! A process can set the parent-death signal only for itself, between fork and exec, where safe Rust cannot
//! run code. So the launcher starts this program, which sets the signal and then executes the engine; the
//! setting survives exec. If the parent died before the signal was set, the signal never arrives, so the
//! parent's process id is checked afterwards.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use plimsoll_launch::CHILD_MARK;
use plimsoll_wire::control::EXEC_FAILED;
use rustix::process::{Pid, Signal, getpid, getppid, set_child_subreaper, set_parent_process_death_signal};

/// Exit statuses of shells: program not found, and program not executable.
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
    // Closes descriptors that the daemon inherited without close-on-exec, for example from a shell or a
    // terminal.
    close_fds::set_fds_cloexec(3, &[]);
    // Orphans of the engine stay in its process tree, where the launcher finds them. Kernels before 3.4 lack
    // subreapers; there the mark in the environment has to suffice.
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
