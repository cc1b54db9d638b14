//! Messages on stderr, each written by one `write(2)` call, in the format of the engine's own log.

use alloc::string::String;
use core::fmt::{self, Write};

/// Writes a line that begins with the name of the library.
macro_rules! say {
    ($($word:tt)*) => { $crate::say::line(format_args!($($word)*)) };
}

pub(crate) use say;

pub(crate) fn line(words: fmt::Arguments<'_>) {
    let mut line = String::new();
    let _ = writeln!(line, "plimsoll_phantom: {words}");
    // SAFETY: the bytes are ours. A closed stderr is the engine's choice.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
