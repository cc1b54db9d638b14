//! Log file of the engines, written by a separate thread.
//!
//! Lines are dropped if the disk is too slow. A failed write is reported once.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;

use super::log_ring::LogLine;

/// Sticky and writable by all, as /tmp is (inode(7)).
const SHARED: u32 = 0o1002;
/// A link was not followed, and a FIFO has no reader (open(2)).
const LOOP: i32 = Errno::LOOP.raw_os_error();
const NO_READER: i32 = Errno::NXIO.raw_os_error();

/// Lines that may wait for the disk.
const WAITING: usize = 1024;

/// File to which lines are appended; clones share it, and the last one closes it.
#[derive(Clone, Debug)]
pub struct LogFile {
    lines: SyncSender<Arc<LogLine>>,
}

impl LogFile {
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // Engines log prompts, so a new file is readable by this user only.
        options.create(true).append(true).mode(0o600);
        if is_shared(path) {
            // Another user may have made a link or a FIFO here.
            let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
            options.custom_flags(i32::try_from(flags).unwrap_or_default());
        }
        let file = options.open(path).map_err(|error| match error.raw_os_error() {
            Some(LOOP | NO_READER) if is_shared(path) => strangers(),
            _ => error,
        })?;
        let about = file.metadata()?;
        if is_shared(path) && !(about.is_file() && about.uid() == geteuid().as_raw()) {
            return Err(strangers());
        }
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

/// True if the file lies in a folder like /tmp, where every user may make files.
///
/// DECISION: kernels refuse to write to another user's file there (`fs.protected_regular` and
/// `fs.protected_symlinks`, proc_sys_fs(5)), but not all are set so. In other folders a link is the user's own.
fn is_shared(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    folder.metadata().is_ok_and(|about| about.mode() & SHARED == SHARED)
}

fn strangers() -> io::Error {
    io::Error::other(
        "another user may have created this file, because every user can write to its folder; choose another \
            folder",
    )
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
    fn what_another_user_may_have_put_into_a_shared_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        let place = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink(place("elsewhere"), place("link")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(place("fifo")).status().unwrap();
        assert!(made.success());
        for name in ["link", "fifo"] {
            let error = LogFile::open(&place(name)).unwrap_err();
            assert!(error.to_string().contains("another user"), "{name}: {error}");
        }
        assert!(!place("elsewhere").exists(), "nothing was made through the link");
        assert!(LogFile::open(&place("own")).is_ok() && LogFile::open(&place("own")).is_ok());
        if geteuid().is_root() {
            std::os::unix::fs::chown(place("own"), Some(65534), None).unwrap();
            assert!(LogFile::open(&place("own")).is_err());
        }
        // In a folder of the user's own, a link is the user's as well.
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        assert!(LogFile::open(&place("link")).is_ok());
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
