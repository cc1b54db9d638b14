//! Last log lines of a process that has ended and was not started by Plimsoll.
//!
//! The process's log file is opened while the process runs. Output to a pipe or a terminal is not read.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};

use plimsoll_doctor::{Diagnosis, LineSource, LogReader, diagnose};
use plimsoll_probe::process::MeasuredProcess;

/// Bytes read from the end of the log.
const MOST: u64 = 1 << 20;

// An ended process has no descriptors to look up.
/// Log of a process from a given moment on.
#[derive(Debug)]
pub(super) struct LastWords {
    log: File,
    from: u64,
}

impl LastWords {
    /// The log from now on; `None` if the process writes to no readable file.
    pub(super) fn of(process: MeasuredProcess) -> Option<Self> {
        // stderr first: llama.cpp logs there. stdout serves where a wrapper redirected only that.
        let logs = [2, 1].map(|descriptor| format!("/proc/{}/fd/{descriptor}", process.pid));
        let path = logs.iter().find(|path| fs::metadata(path).is_ok_and(|about| about.is_file()))?;
        let log = File::open(path).ok()?;
        let from = log.metadata().ok()?.len();
        Some(Self { log, from })
    }

    /// The diagnosis of everything logged since.
    pub(super) fn judged(mut self) -> Option<Diagnosis> {
        let length = self.log.metadata().ok()?.len();
        // The cause stands at the end; a log of a long test may be larger than memory.
        let from = self.from.max(length.saturating_sub(MOST));
        self.log.seek(SeekFrom::Start(from)).ok()?;
        let mut text = Vec::new();
        self.log.take(MOST).read_to_end(&mut text).ok()?;
        Some(judged(&text))
    }
}

/// The diagnosis of a log alone.
pub(super) fn judged(log: &[u8]) -> Diagnosis {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log);
    diagnose(&reader.finish())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use plimsoll_doctor::Cause;

    use super::*;

    #[test]
    fn only_what_was_said_since_is_judged() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        log.write_all(b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n").unwrap();
        let words =
            LastWords { log: File::open(log.path()).unwrap(), from: log.path().metadata().unwrap().len() };
        log.write_all(b"all is well\n").unwrap();
        let verdict = words.judged().unwrap();
        assert_eq!((verdict.cause, verdict.evidence.len()), (Cause::Other, 0));
    }
}
