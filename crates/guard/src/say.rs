//! One line on stderr, by one `write(2)`: no buffer that a fork would double, no lock, no allocation.

use core::fmt::{self, Write};

use crate::text::Text;

/// Says a line, with who says it.
macro_rules! say {
    ($($word:tt)*) => { $crate::say::line(format_args!($($word)*)) };
}

pub(crate) use say;

pub(crate) fn line(words: fmt::Arguments<'_>) {
    let mut line = Text::new();
    // A line that is too long is cut.
    let _ = writeln!(line, "plimsoll guard: {words}");
    let bytes = line.as_bytes();
    // SAFETY: the bytes are ours. A closed stderr is the program's choice.
    unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}
