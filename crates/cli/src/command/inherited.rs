//! Repairs settings inherited from the parent process: ignored signals, and a low limit of open files.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_verb::child::is_ignored;
use rustix::process::{Resource, Signal, getrlimit};
use signal_hook::flag;

use crate::report::ErrorReport;

/// Descriptors that a command needs at least: for signals, timers, a helper process and a program.
const DESCRIPTORS: usize = 32;

/// Repairs inherited settings that would break a command in its middle.
pub(super) fn prepare() -> Result<(), ErrorReport> {
    check_descriptors().map_err(no_descriptors)?;
    if is_ignored(Signal::CHILD) {
        // Where it is ignored, the kernel reaps each child itself, and nobody learns how it ended (wait(2)).
        // A program that is started gets the default back.
        flag::register(Signal::CHILD.as_raw(), Arc::new(AtomicBool::new(false)))
            .map_err(ErrorReport::of("cannot observe how started programs end"))?;
    }
    Ok(())
}

/// Opens as many descriptors as a command needs, and closes them again.
fn check_descriptors() -> io::Result<()> {
    // A copy costs a tenth of a pipe, and every command pays for it at its start.
    let first = io::stdin();
    let copies: io::Result<Vec<OwnedFd>> =
        (0..DESCRIPTORS).map(|_| first.as_fd().try_clone_to_owned()).collect();
    copies.map(drop)
}

fn no_descriptors(error: io::Error) -> ErrorReport {
    let limit = getrlimit(Resource::Nofile).current.map_or_else(String::new, |limit| format!(" of {limit}"));
    ErrorReport::new(format!(
        "cannot open files: {error}\nhint: the limit{limit} is too low; raise it with `ulimit -n`, or close inherited files"
    ))
}
