//! Collects evidence about a running process for `plimsoll doctor`: its memory, its limits, and the end of
//! its log file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use plimsoll_base::{Reason, masked_text};
use plimsoll_doctor::{LineSource, LogReader};

use super::Findings;
use super::log::feed;
use super::machine::{holders, locked_limit};
use crate::report::ErrorReport;

/// Bytes read from the end of its log.
const LOG_END: u64 = 4 << 20;
/// Lines of `/proc/PID/status` that are printed.
const STATUS: [&str; 5] = ["VmRSS", "VmLck", "VmPin", "VmSwap", "RssAnon"];
// Files of `/proc` have a size of 0, so only a limit on the reading bounds memory.
const MOST: u64 = 1 << 20;

pub(super) fn look(pid: u32) -> Result<Findings, ErrorReport> {
    let fail = |error: io::Error| {
        ErrorReport::input(ErrorReport::new(format!("process {pid} cannot be examined: {error}")))
    };
    let status = read(pid, "status").map_err(fail)?;
    let words = read(pid, "cmdline").map_err(fail)?.replace('\0', " ");
    let mut reader = LogReader::new();
    let mut seen = vec![Reason::new("process", format!("{pid}: {}", masked_text(words.trim())))];
    seen.extend(status.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        STATUS.contains(&key).then(|| Reason::new("status", format!("{key} {}", value.trim())))
    }));
    seen.extend(read(pid, "limits").ok().and_then(|limits| locked_limit(limits.as_bytes(), "it")));
    seen.extend(chosen_cards(pid));
    seen.extend(holders(&plimsoll_cards::look(), plimsoll_cards::read(), Some(pid), &mut reader));
    // stderr first: llama.cpp, vLLM and PyTorch all log there. Both are often the same file.
    for descriptor in [2, 1] {
        if let Some(log) = log_end(pid, descriptor) {
            feed(&mut reader, LineSource::Log, log).map_err(fail)?;
            break;
        }
    }
    // The command line comes after the log, as `--context` does, and never counts as a log line.
    reader.feed(LineSource::Context, words.as_bytes());
    reader.feed(LineSource::Context, b"\n");
    Ok(Findings { reader, seen, cards: Vec::new(), status: None })
}

fn read(pid: u32, name: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/{name}"))?.take(MOST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The cards chosen in its environment. CUDA reads the variable once, so the value at the start is in force.
fn chosen_cards(pid: u32) -> Option<Reason> {
    let environment = read(pid, "environ").ok()?;
    let chosen = environment.split('\0').find(|word| word.starts_with("CUDA_VISIBLE_DEVICES="))?;
    Some(Reason::new("visible_devices", format!("the process was started with {chosen} set")))
}

/// The end of the file that a descriptor writes to; `None` if it is no regular file.
fn log_end(pid: u32, descriptor: u32) -> Option<File> {
    let path: PathBuf = format!("/proc/{pid}/fd/{descriptor}").into();
    // Reading a pipe or a terminal would take its data away from the real reader.
    let mut file = plimsoll_file::open(&path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_END))).ok()?;
    Some(file)
}
