//! Queue of the daemon's log lines for stderr, written by a separate thread.
//!
//! If stderr is blocked and the queue is full, lines are dropped and counted.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Lines that may wait for their reader.
const WAITING: usize = 1024;
/// Time that the last lines of a program have; a reader that has stopped must not keep it from ending.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// Writer of whole lines to stderr; clones share the queue.
#[derive(Clone, Debug)]
pub struct StderrQueue {
    lines: SyncSender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

/// Waits for the queued lines, for a limited time, when it is dropped.
#[derive(Debug)]
pub struct FlushStderr(SyncSender<Vec<u8>>, Receiver<()>);

impl StderrQueue {
    /// Starts the thread that writes to `out`. Drop the guard at the end of the program.
    pub fn start(out: impl Write + Send + 'static) -> io::Result<(Self, FlushStderr)> {
        let (lines, inbox) = sync_channel(WAITING);
        let (written, all) = sync_channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let missing = Arc::clone(&dropped);
        std::thread::Builder::new().name("stderr".to_owned()).spawn(move || {
            write_all(out, &inbox, &missing);
            let _ = written.send(());
        })?;
        let flush = FlushStderr(lines.clone(), all);
        Ok((Self { lines, dropped }, flush))
    }
}

/// An empty line ends the thread: clones of the queue live as long as the program.
impl Drop for FlushStderr {
    fn drop(&mut self) {
        // A full queue means that stderr is not read, and waiting would be in vain.
        if self.0.try_send(Vec::new()).is_ok() {
            let _ = self.1.recv_timeout(FLUSH_WITHIN);
        }
    }
}

fn write_all(mut out: impl Write, inbox: &Receiver<Vec<u8>>, dropped: &AtomicU64) {
    while let Ok(line) = inbox.recv() {
        if line.is_empty() {
            return;
        }
        let missing = dropped.swap(0, Ordering::Relaxed);
        // A closed pipe loses the lines and nothing else.
        if missing > 0 {
            let _ = writeln!(out, " WARN {missing} log lines were dropped, because no process read stderr");
        }
        let _ = out.write_all(&line);
    }
}

impl Write for StderrQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !line.is_empty() && self.lines.try_send(line.to_vec()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        // A lost line counts as written: the logger reports a failed write to the same stderr.
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_reader_that_stops_costs_lines_and_no_time() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (mut queue, flush) = StderrQueue::start(writer).unwrap();
        let began = Instant::now();
        // A pipe holds 64 KiB, the queue 1024 lines.
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        for _ in 0..5000 {
            assert_eq!(queue.write(&line).unwrap(), line.len());
        }
        assert!(began.elapsed() < Duration::from_secs(5));
        let read = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = reader.read_to_string(&mut text);
            text
        });
        // As `write` does, but for a line that may not be dropped.
        while queue.lines.try_send(b"last\n".to_vec()).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop((queue, flush));
        let text = read.join().unwrap();
        assert!(text.contains("lines were dropped") && text.ends_with("last\n"), "{}", text.len());
    }
}
