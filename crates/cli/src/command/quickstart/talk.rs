//! Prints the progress of `plimsoll quickstart` on stderr. Stdout gets only the daemon's address.

use std::fmt::Display;
use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::terminal;

/// Interval of progress lines in a long step.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// Prints one or more lines; a closed stderr does not stop the tour.
pub(super) fn say(text: impl Display) {
    let _ = writeln!(terminal::stderr(), "{text}");
}

/// Begins a part of the tour.
pub(super) fn title(text: impl Display) {
    say(format_args!("\n── {text}"));
}

/// Prints a text of several lines, indented.
pub(super) fn quote(text: &str) {
    for line in text.lines() {
        say(format_args!("   {line}").to_string().trim_end());
    }
}

/// Runs a long step, and prints a progress line every few seconds.
pub(super) fn patiently<T>(work: impl FnOnce() -> T) -> T {
    let (done, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let start = Instant::now();
            // Waiting on the channel instead of sleeping ends the thread at once when the work is done.
            while ended.recv_timeout(SIGN_OF_LIFE) == Err(RecvTimeoutError::Timeout) {
                say(format_args!("   still running after {} s", start.elapsed().as_secs()));
            }
        });
        let result = work();
        // Before the scope ends: the scope joins the thread, which waits for this end of the channel.
        drop(done);
        result
    })
}
