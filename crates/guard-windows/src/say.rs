//! Writes messages on stderr, each in one piece.

use std::fmt;
use std::io::{self, Write};

/// Writes a line that begins with the name of the library.
macro_rules! say {
    ($($word:tt)*) => { $crate::say::line(format_args!($($word)*)) };
}

pub(crate) use say;

pub(crate) fn line(words: fmt::Arguments<'_>) {
    let line = format!("plimsoll guard: {words}\n");
    // A closed stderr is the program's choice.
    let _ = io::stderr().write_all(line.as_bytes());
}
