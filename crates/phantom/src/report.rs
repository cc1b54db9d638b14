//! Report of all buffers and pool sizes, as JSON lines in the file that `PLIMSOLL_PHANTOM_REPORT` names.
//!
//! DECISION: one `write(2)` a line to a file opened for append, so that nothing is lost when the engine is
//! killed, and several processes may share a file. Every line has `event`; sizes are plain bytes.
//!
//! | event | says |
//! |---|---|
//! | `load` | `abi`, `ggml`, `build`, `generation` and its `evidence`, `cards` |
//! | `buffer` | `id`, `where` (`CUDA0`, `CUDA_Host`), `bytes`: a buffer was made |
//! | `free` | the same, and `usage` (`any`, `weights`, `compute`) |
//! | `depth` | see [`crate::depth`] |

use alloc::ffi::CString;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ffi::c_int;
use core::fmt::{self, Write};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::cards::Card;
use crate::engine::Engine;
use crate::generation::{self, Generation};
use crate::probe::Version;
use crate::say::say;

pub(crate) struct Report {
    file: c_int,
    /// Pool requests in the columns of RAPIDS RMM's log; closed unless a trace is configured.
    trace: c_int,
    /// Number of the next block in the trace.
    block: AtomicU64,
}

const CLOSED: c_int = -1;

impl Report {
    /// Opens the files that are configured.
    pub(crate) fn open(report: Option<&str>, trace: Option<&str>) -> Self {
        let trace = trace.map_or(CLOSED, open);
        write(trace, "Thread,Time,Action,Pointer,Size,Stream\n");
        Self {
            file: report.map_or(CLOSED, open),
            trace,
            block: AtomicU64::new(1),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.file >= 0 || self.trace >= 0
    }

    /// Writes one line.
    pub(crate) fn line(&self, words: fmt::Arguments<'_>) {
        if self.file >= 0 {
            // Formatted first, so that the line goes out in one write.
            let mut line = String::new();
            let _ = writeln!(line, "{words}");
            write(self.file, &line);
        }
    }

    /// Writes the requests of one stream to the trace; `None` frees the block that was taken last.
    pub(crate) fn requests(&self, stream: u64, steps: &[Option<u64>]) {
        if self.trace < 0 {
            return;
        }
        let mut lines = String::new();
        let mut lent = Vec::new();
        for step in steps {
            let (action, (block, bytes)) = match *step {
                Some(bytes) => {
                    let block = (self.block.fetch_add(1, Relaxed), bytes);
                    lent.push(block);
                    ("allocate", block)
                }
                None => match lent.pop() {
                    Some(block) => ("free", block),
                    None => continue,
                },
            };
            let _ = writeln!(lines, "1,0,{action},{block:#x},{bytes},{stream:#x}");
        }
        write(self.trace, &lines);
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
        let cards: Vec<String> = cards.iter().map(card).collect();
        self.line(format_args!(
            "{{\"event\":\"load\",\"abi\":{},\"ggml\":{},\"build\":{build},\"generation\":\"{}\",\"evidence\":\"{evidence}\",\"cards\":[{}]}}",
            version.number(),
            Quoted(&engine.version),
            generation::name(generation),
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
            // `ggml-backend.h:ggml_backend_buffer_usage`.
            1 => "weights",
            2 => "compute",
            _ => "any",
        };
        self.line(format_args!(
            "{{\"event\":\"free\",\"id\":{id},\"where\":\"{place}\",\"bytes\":{bytes},\"usage\":\"{usage}\"}}"
        ));
    }
}

/// Opens a file for append; reports on stderr if that fails.
fn open(path: &str) -> c_int {
    const MODE: libc::mode_t = 0o644;
    // O_APPEND keeps the lines of several processes whole; O_CLOEXEC keeps the file from the engine's
    // children.
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

/// Writes text. A full disk loses lines, but does not end the engine.
fn write(file: c_int, text: &str) {
    if file >= 0 {
        // SAFETY: the bytes are ours.
        unsafe { libc::write(file, text.as_ptr().cast(), text.len()) };
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
