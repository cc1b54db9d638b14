//! What was seen, as JSON lines in the file that `PLIMSOLL_PHANTOM_REPORT` names; nothing without it.
//!
//! DECISION: one `write(2)` a line to a file opened for append, so that nothing is lost when the engine is killed, and several
//! processes may share a file. Every line has `event`; sizes are plain bytes.
//!
//! | event | says |
//! |---|---|
//! | `load` | `abi`, `ggml`, `build`, `generation` and its `evidence`, `cards` |
//! | `buffer` | `id`, `where` (`CUDA0`, `CUDA_Host`), `bytes`: a buffer was made |
//! | `free` | the same, and `usage` (`any`, `weights`, `compute`) |
//! | `depth` | see [`crate::depth`] |

use alloc::format;
use alloc::string::{String, ToString};
use core::ffi::c_int;
use core::fmt::{self, Write};

use crate::cards::Card;
use crate::engine::Engine;
use crate::generation::Generation;
use crate::probe::Version;
use crate::say::say;

pub(crate) struct Report {
    file: c_int,
}

const CLOSED: c_int = -1;

impl Report {
    /// Opens the file, if one is named; says so where it cannot be.
    pub(crate) fn open(path: Option<&str>) -> Self {
        let Some(path) = path else {
            return Self { file: CLOSED };
        };
        const MODE: libc::mode_t = 0o644;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        let file = alloc::ffi::CString::new(path).map_or(CLOSED, |path| {
            // SAFETY: a C string; O_CREAT takes the mode.
            unsafe { libc::open(path.as_ptr(), flags, MODE) }
        });
        if file < 0 {
            say!("cannot write the report {path}; there will be none");
        }
        Self { file }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.file >= 0
    }

    /// Writes one line.
    pub(crate) fn line(&self, words: fmt::Arguments<'_>) {
        if !self.is_open() {
            return;
        }
        let mut line = String::new();
        let _ = writeln!(line, "{words}");
        // SAFETY: the bytes are ours. A disk that is full loses a line, not the engine.
        unsafe { libc::write(self.file, line.as_ptr().cast(), line.len()) };
    }

    pub(crate) fn loaded(
        &self,
        engine: &Engine,
        asked: Option<u32>,
        version: Version,
        generation: Generation,
        evidence: &str,
        cards: &[Card],
    ) {
        let build = asked
            .or(engine.build)
            .map_or("null".to_string(), |build| build.to_string());
        let cards: alloc::vec::Vec<String> = cards.iter().map(card).collect();
        self.line(format_args!(
            "{{\"event\":\"load\",\"abi\":{},\"ggml\":{},\"build\":{build},\"generation\":\"{}\",\"evidence\":\"{evidence}\",\"cards\":[{}]}}",
            version.number(),
            Quoted(&engine.version),
            generation.name(),
            cards.join(","),
        ));
    }

    pub(crate) fn allocated(&self, id: u64, place: &str, bytes: u64) {
        self.line(format_args!(
            "{{\"event\":\"buffer\",\"id\":{id},\"where\":\"{place}\",\"bytes\":{bytes}}}"
        ));
    }

    pub(crate) fn freed(&self, id: u64, place: &str, bytes: u64, usage: c_int) {
        let usage = match usage {
            1 => "weights",
            2 => "compute",
            _ => "any",
        };
        self.line(format_args!(
            "{{\"event\":\"free\",\"id\":{id},\"where\":\"{place}\",\"bytes\":{bytes},\"usage\":\"{usage}\"}}"
        ));
    }
}

fn card(card: &Card) -> String {
    format!(
        "{{\"device\":\"{}\",\"name\":{},\"total\":{},\"free\":{},\"cc\":\"{}.{}\",\"sms\":{}}}",
        card.device_name(),
        Quoted(&card.name.to_string_lossy()),
        card.total,
        card.free,
        card.capability / 100,
        card.capability % 100 / 10,
        card.processors,
    )
}

/// Text as a JSON string.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                control if control < ' ' => write!(f, "\\u{:04x}", u32::from(control))?,
                other => f.write_char(other)?,
            }
        }
        f.write_char('"')
    }
}
