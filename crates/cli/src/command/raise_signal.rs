//! `plimsoll raise-signal` (hidden): ends its own process by a given signal.
//!
//! `plimsoll run` becomes this program by exec, to end by the same signal as its child.

use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    signal: i32,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    // The child has written its core dump; a second one would overwrite it.
    let limit = getrlimit(Resource::Core);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), ..limit });
    if let Some(signal) = Signal::from_named_raw(arguments.signal) {
        // The Rust run-time's SIGSEGV handler takes the first signal for a stack overflow and restores the
        // default handler.
        for _ in 0..2 {
            let _ = kill_process(getpid(), signal);
        }
    }
    // Reached only if the signal is ignored, as SIGPIPE is in every Rust program.
    ExitCode::from(u8::try_from(128 + arguments.signal).unwrap_or(u8::MAX))
}
