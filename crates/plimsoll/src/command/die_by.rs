//! `plimsoll die-by`: ends by a signal (hidden).
//!
//! `plimsoll run` becomes this program when the signal has killed its own: exec has put every handler back, which safe code cannot
//! do otherwise.

use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    signal: i32,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    // The program has left its core; ours would only overwrite it.
    let limit = getrlimit(Resource::Core);
    let _ = setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            ..limit
        },
    );
    if let Some(signal) = Signal::from_named_raw(arguments.signal) {
        // The run-time's own handler of SIGSEGV takes the first for an overflow of the stack, and steps aside.
        for _ in 0..2 {
            let _ = kill_process(getpid(), signal);
        }
    }
    // It is ignored, as SIGPIPE is by every Rust program.
    ExitCode::from(u8::try_from(128 + arguments.signal).unwrap_or(u8::MAX))
}
