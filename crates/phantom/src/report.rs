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

use alloc::ffi::CString;
use alloc::string::String;
use core::ffi::c_int;
use core::fmt::{self, Write};

use crate::memory::Kind;

/// Writes a line on stderr that begins with the name of the library.
macro_rules! say {
    ($($word:tt)*) => {
        $crate::report::line(libc::STDERR_FILENO, format_args!("plimsoll_phantom: {}", format_args!($($word)*)))
    };
}

pub(crate) use say;

pub(crate) struct Report {
    file: c_int,
}

const CLOSED: c_int = -1;

impl Report {
    /// Opens the file, if one is named.
    pub(crate) fn open(path: Option<&str>) -> Self {
        Self { file: path.map_or(CLOSED, open) }
    }

    fn line(&self, words: fmt::Arguments<'_>) {
        if self.file >= 0 {
            line(self.file, words);
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
fn open(path: &str) -> c_int {
    const MODE: libc::mode_t = 0o644;
    // O_APPEND keeps lines of several processes whole; O_CLOEXEC keeps the file from the engine's children.
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    let file = CString::new(path).map_or(CLOSED, |path| {
        // SAFETY: a C string; O_CREAT takes the mode.
        unsafe { libc::open(path.as_ptr(), flags, MODE) }
    });
    if file < 0 {
        say!("cannot write {path}; there will be no report in it");
    }
    file
}

/// Writes a line. A full disk loses lines, and stderr may be closed, but that does not end the engine.
pub(crate) fn line(file: c_int, words: fmt::Arguments<'_>) {
    // Formatted first, so that the line goes out in one write.
    let mut line = String::new();
    let _ = writeln!(line, "{words}");
    // SAFETY: the bytes are ours.
    unsafe { libc::write(file, line.as_ptr().cast(), line.len()) };
}
