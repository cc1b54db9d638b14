//! Bounded queue of log lines for stderr or a file, written by a separate thread.
//!
//! The program never waits for the reader or the disk: if the queue is full, lines are dropped and counted.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::Duration;

/// Lines that may wait for their reader.
const WAITING: usize = 4096;
/// Bytes that are written at once.
const BATCH: usize = 64 << 10;
/// Pause after each write. A thread that waits for a line is woken by the line's writer, which takes longer than
/// the rest of a request's log line; now a busy server wakes it 200 times a second at most.
const LINGER: Duration = Duration::from_millis(5);
/// Time that the last lines of a program have; a reader that has stopped must not keep it from ending.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// Queue of whole lines; clones share it.
#[derive(Clone, Debug)]
pub(super) struct LineQueue {
    lines: SyncSender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
    writer: Thread,
    written: Arc<Mutex<Receiver<()>>>,
}

impl LineQueue {
    /// Starts the thread `name`, which writes to `out`; `lost` formats the line that tells of dropped ones.
    pub(super) fn start(
        name: &str,
        out: impl Write + Send + 'static,
        lost: impl Fn(u64) -> Vec<u8> + Send + 'static,
    ) -> io::Result<Self> {
        let (lines, inbox) = sync_channel(WAITING);
        let (all, written) = sync_channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let missing = Arc::clone(&dropped);
        let writer = thread::Builder::new().name(name.to_owned()).spawn(move || {
            write_all(out, &inbox, &missing, lost);
            let _ = all.send(());
        })?;
        let (writer, written) = (writer.thread().clone(), Arc::new(Mutex::new(written)));
        Ok(Self { lines, dropped, writer, written })
    }

    /// Appends a line, which ends with a line break.
    pub(super) fn push(&self, line: Vec<u8>) {
        if !line.is_empty() && self.lines.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the thread, and waits a limited time for the lines before.
    pub(super) fn finish(&self) {
        // An empty line says so. A full queue means that the lines are not read, and waiting would be in vain.
        if self.lines.try_send(Vec::new()).is_ok() {
            self.writer.unpark();
            let _ = self.written.lock().map(|written| written.recv_timeout(FLUSH_WITHIN));
        }
    }
}

fn write_all(
    mut out: impl Write,
    inbox: &Receiver<Vec<u8>>,
    dropped: &AtomicU64,
    lost: impl Fn(u64) -> Vec<u8>,
) {
    let mut batch = Vec::new();
    while let Ok(mut line) = inbox.recv() {
        batch.clear();
        let missing = dropped.swap(0, Ordering::Relaxed);
        if missing > 0 {
            batch.append(&mut lost(missing));
        }
        loop {
            let is_over = line.is_empty();
            batch.append(&mut line);
            match inbox.try_recv() {
                Ok(next) if batch.len() < BATCH && !is_over => line = next,
                next => {
                    // A closed pipe loses the lines and nothing else.
                    let _ = out.write_all(&batch);
                    batch.clear();
                    match next {
                        _ if is_over => return,
                        Ok(next) => line = next,
                        Err(_) => break,
                    }
                }
            }
        }
        thread::park_timeout(LINGER);
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
        let lost = |count| format!("{count} lines were dropped\n").into_bytes();
        let queue = LineQueue::start("stderr", writer, lost).unwrap();
        let began = Instant::now();
        // A pipe holds 64 KiB, and the queue 4096 lines.
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        for _ in 0..9000 {
            queue.push(line.clone());
        }
        assert!(began.elapsed() < Duration::from_secs(5));
        let read = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = reader.read_to_string(&mut text);
            text
        });
        // As `push` does, but for a line that may not be dropped.
        while queue.lines.try_send(b"last\n".to_vec()).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        queue.finish();
        drop(queue);
        let text = read.join().unwrap();
        assert!(text.contains("lines were dropped") && text.ends_with("last\n"), "{}", text.len());
    }
}
