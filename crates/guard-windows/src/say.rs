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

/// Number of bytes, formatted with a unit as Linux's guard does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteSize(pub(crate) u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        match self.0 {
            0..1024 => write!(f, "{} B", self.0),
            1024..MIB => write!(f, "{} KiB", self.0 / 1024),
            bytes => write!(f, "{} MiB", bytes / MIB),
        }
    }
}
