//! Queues log lines for stderr or a file, so that a slow reader cannot stop the program.
//!
//! The program never waits for the reader or the disk: if the queue is full, lines are dropped and counted.

use std::io::{self, Write};
use std::mem;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// Bytes that may wait for their reader.
const WAITING: usize = 1 << 20;
/// The largest buffer that is kept for the next lines.
const KEPT: usize = 64 << 10;
/// Pause after each write. The line's writer wakes a waiting thread, which takes longer than the rest of a
/// request's log line. Thus a busy server wakes it 100 times a second at most.
const LINGER: Duration = Duration::from_millis(10);
/// Time that the last lines of a program have; a reader that has stopped must not keep it from ending.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

// DECISION: one buffer under a lock instead of a channel of lines. A line that another thread frees costs the
// allocator's slow path twice, and a line of a channel its own place and wake-up.
/// Queue of whole lines; clones share it.
#[derive(Clone, Debug)]
pub(super) struct LineQueue {
    waiting: Arc<Mutex<WaitingLines>>,
    writer: Thread,
    written: Arc<Mutex<Receiver<()>>>,
}

#[derive(Debug, Default)]
struct WaitingLines {
    bytes: Vec<u8>,
    /// Lines that came after those in `bytes` and found no room.
    dropped: u64,
    /// The writer sleeps until it is woken.
    is_idle: bool,
    is_over: bool,
}

impl LineQueue {
    /// Starts the thread `name`, which writes to `out`; `lost` formats the line that reports dropped ones.
    pub(super) fn start(
        name: &str,
        out: impl Write + Send + 'static,
        lost: impl Fn(u64) -> Vec<u8> + Send + 'static,
    ) -> io::Result<Self> {
        let waiting = Arc::<Mutex<WaitingLines>>::default();
        let (all, written) = sync_channel(1);
        let lines = Arc::clone(&waiting);
        let writer = thread::Builder::new().name(name.to_owned()).spawn(move || {
            write_all(out, &lines, lost);
            let _ = all.send(());
        })?;
        let (writer, written) = (writer.thread().clone(), Arc::new(Mutex::new(written)));
        Ok(Self { waiting, writer, written })
    }

    /// Appends a line, which ends with a line break. Returns false if it was dropped.
    pub(super) fn push(&self, line: &[u8]) -> bool {
        let mut waiting = lock(&self.waiting);
        // After the first dropped line the rest is dropped too, so that the report of them has its place.
        if waiting.dropped > 0 || waiting.bytes.len() + line.len() > WAITING {
            waiting.dropped += 1;
            return false;
        }
        waiting.bytes.extend_from_slice(line);
        self.wake(waiting);
        true
    }

    /// Ends the thread, and waits a limited time for the lines before.
    pub(super) fn finish(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.is_over = true;
        // A full queue means that the lines are not read, and waiting would be in vain.
        let is_read = waiting.dropped == 0;
        drop(waiting);
        self.writer.unpark();
        if is_read {
            let _ = self.written.lock().map(|written| written.recv_timeout(FLUSH_WITHIN));
        }
    }

    fn wake(&self, mut waiting: MutexGuard<'_, WaitingLines>) {
        let is_idle = mem::take(&mut waiting.is_idle);
        // Released first, or the writer would wake up only to wait for it.
        drop(waiting);
        if is_idle {
            self.writer.unpark();
        }
    }
}

/// The lines; they are whole even if a thread died that held the lock.
fn lock(waiting: &Mutex<WaitingLines>) -> MutexGuard<'_, WaitingLines> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_all(mut out: impl Write, waiting: &Mutex<WaitingLines>, lost: impl Fn(u64) -> Vec<u8>) {
    let mut batch = Vec::new();
    loop {
        let mut lines = lock(waiting);
        if lines.bytes.is_empty() && lines.dropped == 0 && !lines.is_over {
            lines.is_idle = true;
            drop(lines);
            thread::park();
            continue;
        }
        mem::swap(&mut lines.bytes, &mut batch);
        let (dropped, is_over) = (mem::take(&mut lines.dropped), lines.is_over);
        drop(lines);
        if dropped > 0 {
            batch.append(&mut lost(dropped));
        }
        // A closed pipe loses the lines and nothing else.
        let _ = out.write_all(&batch);
        if is_over {
            return;
        }
        batch.clear();
        batch.shrink_to(KEPT);
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
        // A pipe holds 64 KiB, and the queue 1 MiB.
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        for _ in 0..20_000 {
            queue.push(&line);
        }
        assert!(began.elapsed() < Duration::from_secs(5));
        let read = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = reader.read_to_string(&mut text);
            text
        });
        while !queue.push(b"last\n") {
            std::thread::sleep(Duration::from_millis(1));
        }
        queue.finish();
        drop(queue);
        let text = read.join().unwrap();
        assert!(text.contains("lines were dropped") && text.ends_with("last\n"), "{}", text.len());
    }
}
