//! Writes messages on stderr, each by one `write(2)` call, without a lock, a buffer or an allocation.

use core::fmt::{self, Write};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::descriptor::FileIdentity;
use crate::text::Text;

/// Writes a line that begins with the name of the library.
macro_rules! say {
    ($($word:tt)*) => { $crate::say::line(format_args!($($word)*)) };
}

/// Writes a line that may recur, but not every time (see [`ReportCount`]).
macro_rules! say_some {
    ($($word:tt)*) => {{
        static TIMES: $crate::say::ReportCount = $crate::say::ReportCount::new();
        if TIMES.again().is_some() {
            $crate::say::say!($($word)*);
        }
    }};
}

pub(crate) use {say, say_some};

/// The file that stderr was at the first line.
static STDERR: FileIdentity = FileIdentity::new();

/// Remembers the file that stderr is now, unless a line was written before.
pub(crate) fn remember_stderr() {
    if !STDERR.is_known() {
        STDERR.remember(libc::STDERR_FILENO);
    }
}

/// Writes a line, unless descriptor 2 has become another file since the first one.
pub(crate) fn line(words: fmt::Arguments<'_>) {
    let mut line = Text::new();
    // A line that is too long is cut.
    let _ = writeln!(line, "plimsoll guard: {words}");
    let bytes = line.as_bytes();
    remember_stderr();
    if !STDERR.is(libc::STDERR_FILENO) {
        return;
    }
    // SAFETY: the bytes are ours. A closed stderr is the program's choice.
    unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}

/// Counter of an event that limits its reports: the first few, then only powers of two.
#[derive(Debug)]
pub(crate) struct ReportCount(AtomicU32);

impl ReportCount {
    /// Reported in full before only the powers of two are.
    const IN_FULL: u32 = 8;

    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Counts one occurrence; its number, if it is to be reported.
    pub(crate) fn again(&self) -> Option<u32> {
        let times = self.0.fetch_add(1, Relaxed).saturating_add(1);
        (times <= Self::IN_FULL || times.is_power_of_two()).then_some(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_events_are_reported_more_and_more_rarely() {
        let events = ReportCount::new();
        let reported: Vec<u32> = (0..100).filter_map(|_| events.again()).collect();
        assert_eq!(reported, [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64]);
    }
}
