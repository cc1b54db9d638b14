//! Log file of the engines, written by a separate thread.
//!
//! The runtime hands lines to the thread and drops them if the disk is too slow. A failed write (disk full)
//! is reported once and tried again with the next line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::log_ring::LogLine;

/// Lines that may wait for the disk.
const WAITING: usize = 1024;

/// File to which lines are appended; clones share it, and the last one closes it.
#[derive(Clone, Debug)]
pub struct LogFile {
    lines: SyncSender<Arc<LogLine>>,
}

impl LogFile {
    pub fn open(path: &Path) -> io::Result<Self> {
        // Engines log prompts, so a new file is readable by this user only.
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        Self::to(file, path.to_owned())
    }

    fn to(file: File, path: PathBuf) -> io::Result<Self> {
        let (lines, inbox) = sync_channel(WAITING);
        std::thread::Builder::new()
            .name("log-file".to_owned())
            .spawn(move || write_all(file, &path, &inbox))?;
        Ok(Self { lines })
    }

    pub(super) fn write(&self, line: Arc<LogLine>) {
        // A full queue is a disk that cannot keep up; the ring still has the line.
        let _ = self.lines.try_send(line);
    }
}

fn write_all(mut file: File, path: &Path, inbox: &Receiver<Arc<LogLine>>) {
    let mut failing = false;
    while let Ok(line) = inbox.recv() {
        let written = file.write_all(format!("[{}] {}\n", line.model, line.text).as_bytes());
        match written {
            Ok(()) => failing = false,
            Err(cause) if !failing => {
                failing = true;
                tracing::warn!("cannot write the log {}: {cause}; lines are lost", path.display());
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, Instant};

    use plimsoll_base::Bytes;

    use super::*;
    use crate::{Log, LogSource};

    #[test]
    fn a_full_disk_costs_lines_and_nothing_else() {
        let file = LogFile::open(Path::new("/dev/full")).unwrap();
        let all = Log::new("plimsoll", Bytes::mib(1));
        let log = Log::feeding("alpha", Bytes::mib(1), &all, Some(file));
        let start = Instant::now();
        for n in 0..5_000 {
            log.push(LogSource::Stdout, n.to_string());
        }
        assert!(start.elapsed() < Duration::from_secs(30));
        assert_eq!(log.tail(1)[0].text, "4999");
    }

    #[test]
    fn lines_arrive_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.log");
        let all = Log::new("plimsoll", Bytes::mib(1));
        let log = Log::feeding("alpha", Bytes::mib(1), &all, Some(LogFile::open(&path).unwrap()));
        log.push(LogSource::Stdout, "hello".to_owned());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "prompts are for this user's eyes");
        let limit = Instant::now() + Duration::from_secs(30);
        while std::fs::read_to_string(&path).unwrap() != "[alpha] hello\n" {
            assert!(Instant::now() < limit);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
