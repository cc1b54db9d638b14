//! Writes the memory that an engine requests from the cards as JSON lines, to the file that the environment
//! variable `PLIMSOLL_PHANTOM_REPORT` names.
//!
//! | event | meaning | other keys |
//! |---|---|---|
//! | `take` | an allocation | `id`, `kind` (`device`, `managed`, `pool`, …), `device`, `bytes` |
//! | `give` | a free | `id` |
//! | `blas` | cuBLAS was opened | `device` |
//! | `guess` | an occupancy that is estimated for lack of code for the card | `kernel`, `blocks` |
//!
//! Each line is one `write(2)` to a file opened for append, so no line is lost when the engine is killed.
//! Messages to the user are lines on stderr, in the format of the engine's own log.

use alloc::string::String;
use core::fmt::{self, Write};

use crate::memory::Kind;
use crate::system::Sink;

/// Writes a line on stderr that begins with the name of the library.
macro_rules! say {
    ($($word:tt)*) => {
        $crate::report::line(&$crate::system::Sink::STDERR, format_args!("plimsoll_phantom: {}", format_args!($($word)*)))
    };
}

pub(crate) use say;

pub(crate) struct Report {
    file: Option<Sink>,
}

impl Report {
    /// Opens the file, if one is named.
    pub(crate) fn open(path: Option<&str>) -> Self {
        Self { file: path.and_then(open) }
    }

    fn line(&self, words: fmt::Arguments<'_>) {
        if let Some(file) = &self.file {
            line(file, words);
        }
    }

    pub(crate) fn taken(&self, id: u64, kind: Kind, device: usize, bytes: usize) {
        self.line(format_args!(
            "{{\"event\":\"take\",\"id\":{id},\"kind\":\"{}\",\"device\":{device},\"bytes\":{bytes}}}",
            kind.name()
        ));
    }

    pub(crate) fn given(&self, id: u64) {
        self.line(format_args!("{{\"event\":\"give\",\"id\":{id}}}"));
    }

    pub(crate) fn opened_blas(&self, device: usize) {
        self.line(format_args!("{{\"event\":\"blas\",\"device\":{device}}}"));
    }

    pub(crate) fn guessed(&self, kernel: &str, blocks: u32) {
        // A mangled name holds no character that JSON would write in another way.
        self.line(format_args!("{{\"event\":\"guess\",\"kernel\":{kernel:?},\"blocks\":{blocks}}}"));
    }
}

/// Opens a file for append; reports on stderr if that fails.
fn open(path: &str) -> Option<Sink> {
    let file = Sink::of_file(path);
    if file.is_none() {
        say!("cannot write {path}; there will be no report in it");
    }
    file
}

/// Writes a line.
pub(crate) fn line(file: &Sink, words: fmt::Arguments<'_>) {
    // Formatted first, so that the line goes out in one write.
    let mut line = String::new();
    let _ = writeln!(line, "{words}");
    file.append(&line);
}
