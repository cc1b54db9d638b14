//! Writes the log of the server and its engines to a file, which can be rotated.
//!
//! Lines are dropped if the disk is too slow. A failed write is reported once.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use plimsoll_config::LogFormat;
use tracing::Level;

#[cfg(unix)]
mod linux;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(super) use self::linux::of_stderr;
#[cfg(unix)]
use self::linux::open;
#[cfg(windows)]
pub(super) use self::windows::of_stderr;
#[cfg(windows)]
use self::windows::open;
use super::line::{LineStyle, LineText, dropped};
use super::queue::LineQueue;
use super::ring::LogLine;

/// File to which lines are appended; clones share it.
#[derive(Clone, Debug)]
pub struct LogFile {
    lines: LineQueue,
    style: LineStyle,
    is_rotated: Arc<AtomicBool>,
}

impl LogFile {
    pub fn open(path: &Path, format: LogFormat) -> io::Result<Self> {
        let (style, is_rotated) = (LineStyle::from(format), Arc::<AtomicBool>::default());
        let rotating = RotatedFile {
            file: open(path)?,
            path: path.to_owned(),
            is_rotated: Arc::clone(&is_rotated),
            style,
            lost: 0,
            is_torn: false,
        };
        let slow = move |count| dropped(style, count, "the disk was too slow");
        let lines = LineQueue::start("log-file", rotating, slow)?;
        Ok(Self { lines, style, is_rotated })
    }

    /// Opens the file again before the next line, because it may have been moved away.
    pub fn reopen(&self) {
        self.is_rotated.store(true, Ordering::Release);
        // Without a line, the moved file would stay open for as long as nothing happens.
        let text = LineText::message("the log file was opened again");
        self.push(|style| text.in_style(style, Timestamp::now(), Some(Level::INFO)));
    }

    pub(super) fn push_engine_line(&self, line: &LogLine) {
        let text = LineText::of_engine(self.style, &line.model, &line.text);
        self.push(|style| text.in_style(style, Timestamp::now(), None));
    }

    /// Writes the last lines.
    pub(super) fn finish(&self) {
        self.lines.finish();
    }

    pub(super) fn push(&self, line: impl FnOnce(LineStyle) -> Vec<u8>) {
        self.lines.push(&line(self.style));
    }
}

/// The open file, which may be told that its name now belongs to another one.
#[derive(Debug)]
struct RotatedFile {
    file: File,
    path: PathBuf,
    is_rotated: Arc<AtomicBool>,
    style: LineStyle,
    /// Lines that could not be written since the last one that was.
    lost: u64,
    /// The file ends within a line.
    is_torn: bool,
}

impl RotatedFile {
    fn reopen(&mut self) {
        match open(&self.path) {
            Ok(file) => (self.file, self.is_torn) = (file, false),
            Err(cause) => tracing::warn!(
                "cannot open the log file {} again: {cause}; lines go to the file that was open",
                self.path.display()
            ),
        }
    }

    /// Reports lines that were lost, once lines can be written again.
    fn notify_lost(&mut self) -> io::Result<()> {
        if self.lost > 0 {
            let mut note = if self.is_torn { vec![b'\n'] } else { Vec::new() };
            note.append(&mut dropped(self.style, self.lost, "the file could not be written"));
            self.file.write_all(&note)?;
            self.lost = 0;
        }
        Ok(())
    }
}

impl Write for RotatedFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        if self.is_rotated.swap(false, Ordering::AcqRel) {
            self.reopen();
        }
        let written = self.notify_lost().and_then(|()| self.file.write(lines));
        match &written {
            Ok(count) => self.is_torn = lines.get(..*count).and_then(<[u8]>::last) != Some(&b'\n'),
            Err(cause) => {
                if self.lost == 0 {
                    tracing::warn!("cannot write the log {}: {cause}; lines are lost", self.path.display());
                }
                let count = memchr::memchr_iter(b'\n', lines).count();
                self.lost += u64::try_from(count).unwrap_or(u64::MAX);
            }
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, Instant};

    use plimsoll_base::Bytes;
    use rustix::process::geteuid;

    use super::*;
    use crate::{Log, LogSource};

    fn open_text(path: &Path) -> io::Result<LogFile> {
        LogFile::open(path, LogFormat::Text)
    }

    fn wait_for(path: &Path, words: &str) -> String {
        let limit = Instant::now() + Duration::from_secs(30);
        loop {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if text.contains(words) {
                return text;
            }
            assert!(Instant::now() < limit, "{words:?} in {text:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_full_disk_costs_lines_and_nothing_else() {
        let file = open_text(Path::new("/dev/full")).unwrap();
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
    fn links_and_fifos_in_a_shared_folder_are_refused_as_log_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        let place = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink(place("elsewhere"), place("link")).unwrap();
        let created = std::process::Command::new("mkfifo").arg(place("fifo")).status().unwrap();
        assert!(created.success());
        for name in ["link", "fifo"] {
            let error = open_text(&place(name)).unwrap_err();
            assert!(error.to_string().contains("another user"), "{name}: {error}");
        }
        assert!(!place("elsewhere").exists(), "nothing was made through the link");
        assert!(open_text(&place("own")).is_ok() && open_text(&place("own")).is_ok());
        if geteuid().is_root() {
            std::os::unix::fs::chown(place("own"), Some(65534), None).unwrap();
            assert!(open_text(&place("own")).is_err());
        }
        // In a folder of the user's own, a link is the user's as well.
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        assert!(open_text(&place("link")).is_ok());
    }

    #[test]
    fn lines_arrive_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.log");
        let all = Log::new("plimsoll", Bytes::mib(1));
        let log = Log::feeding("alpha", Bytes::mib(1), &all, Some(open_text(&path).unwrap()));
        log.push(LogSource::Stdout, "hello".to_owned());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "prompts are for this user's eyes");
        let text = wait_for(&path, "hello\n");
        let (time, line) = text.split_once(' ').unwrap();
        assert!(time.parse::<Timestamp>().is_ok() && line == "[alpha] hello\n", "{text}");
    }

    #[test]
    fn a_rotated_file_is_left_and_a_new_one_begun() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
        let file = LogFile::open(&path, LogFormat::Json).unwrap();
        let say =
            |text: &str| file.push(|style| LineText::message(text).in_style(style, Timestamp::now(), None));
        say("first");
        wait_for(&path, "first");
        std::fs::rename(&path, &old).unwrap();
        say("second");
        wait_for(&old, "second");
        file.reopen();
        say("third");
        wait_for(&path, "third");
        // The folder is gone as well: the open file stays in use.
        std::fs::remove_dir_all(folder.path()).unwrap();
        file.reopen();
        say("fourth");
        file.finish();
    }

    #[test]
    fn lines_that_a_full_disk_lost_are_reported_once_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("/dev/full", place("link")).unwrap();
        let file = open(&place("link")).unwrap();
        let is_rotated = Arc::<AtomicBool>::default();
        let mut rotated = RotatedFile {
            file,
            path: place("link"),
            is_rotated: Arc::clone(&is_rotated),
            style: LineStyle::Bare,
            lost: 0,
            is_torn: true,
        };
        assert!(rotated.write_all(b"a\nb\n").is_err() && rotated.write_all(b"c\n").is_err());
        std::fs::remove_file(place("link")).unwrap();
        is_rotated.store(true, Ordering::Release);
        rotated.write_all(b"d\n").unwrap();
        let reported = " WARN 3 log lines were dropped, because the file could not be written\nd\n";
        assert_eq!(std::fs::read_to_string(place("link")).unwrap(), reported);
    }
}
