//! Keeps the last log lines of a child process in a ring buffer, bounded in bytes.
//!
//! A subscriber that is too slow loses lines but never delays the child.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_base::Bytes;
use tokio::sync::broadcast;

use super::file::LogFile;

/// Lines that a slow subscriber may be behind.
const SLACK: usize = 512;
/// Bytes counted for a line in addition to its text.
const OVERHEAD: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSource {
    Stdout,
    Stderr,
    /// A line written by Plimsoll itself.
    Plimsoll,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The model whose engine wrote it.
    pub model: Arc<str>,
    pub source: LogSource,
    pub text: String,
}

/// Ring buffer of log lines; clones share it.
#[derive(Clone, Debug)]
pub struct Log(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    model: Arc<str>,
    ring: RefCell<Ring>,
    subscribers: broadcast::Sender<Arc<LogLine>>,
    feeds: Option<Log>,
    file: Option<LogFile>,
}

#[derive(Debug)]
struct Ring {
    lines: VecDeque<Arc<LogLine>>,
    occupied: usize,
    capacity: usize,
    pushed: u64,
}

impl Log {
    /// A log of `model` that keeps its last `capacity` bytes.
    pub fn new(model: &str, capacity: Bytes) -> Self {
        Self::build(model, capacity, None, None)
    }

    /// Like [`Self::new`], and every line also goes to `feeds` and to `file`.
    pub fn feeding(model: &str, capacity: Bytes, feeds: &Log, file: Option<LogFile>) -> Self {
        Self::build(model, capacity, Some(feeds.clone()), file)
    }

    fn build(model: &str, capacity: Bytes, feeds: Option<Log>, file: Option<LogFile>) -> Self {
        let ring = Ring {
            lines: VecDeque::new(),
            occupied: 0,
            capacity: usize::try_from(capacity.get()).unwrap_or(usize::MAX),
            pushed: 0,
        };
        Self(Rc::new(Inner {
            model: model.into(),
            ring: RefCell::new(ring),
            subscribers: broadcast::Sender::new(SLACK),
            feeds,
            file,
        }))
    }

    pub fn push(&self, source: LogSource, text: String) {
        let line = Arc::new(LogLine { model: self.0.model.clone(), source, text });
        if let Some(file) = &self.0.file {
            file.push_engine_line(&line);
        }
        if let Some(feeds) = &self.0.feeds {
            // `keep` and not `push`: the line keeps the name of its own model.
            feeds.keep(line.clone());
        }
        self.keep(line);
    }

    fn keep(&self, line: Arc<LogLine>) {
        // An error means that there is no subscriber.
        let _ = self.0.subscribers.send(line.clone());
        self.0.ring.borrow_mut().keep(line);
    }

    /// Returns the last `count` lines, the oldest first.
    pub fn tail(&self, count: usize) -> Vec<Arc<LogLine>> {
        let ring = self.0.ring.borrow();
        let skip = ring.lines.len().saturating_sub(count);
        ring.lines.iter().skip(skip).cloned().collect()
    }

    /// Returns how many lines there ever were.
    pub fn pushed(&self) -> u64 {
        self.0.ring.borrow().pushed
    }

    /// Subscribes to every line from now on. A subscriber that is too slow gets the number of lost lines.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<LogLine>> {
        self.0.subscribers.subscribe()
    }
}

impl Ring {
    fn keep(&mut self, line: Arc<LogLine>) {
        self.pushed += 1;
        self.occupied += line.text.len() + OVERHEAD;
        self.lines.push_back(line);
        // The newest line stays, however long it is.
        while self.occupied > self.capacity && self.lines.len() > 1 {
            if let Some(oldest) = self.lines.pop_front() {
                self.occupied -= oldest.text.len() + OVERHEAD;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(log: &Log, count: usize) -> Vec<String> {
        log.tail(count).iter().map(|line| line.text.clone()).collect()
    }

    #[test]
    fn the_oldest_lines_make_room_and_the_newest_stays() {
        let log = Log::new("alpha", Bytes::new(3 * 100));
        for n in 0..10 {
            log.push(LogSource::Stdout, format!("line {n} {}", "x".repeat(29)));
        }
        assert_eq!(log.tail(99).len(), 3);
        assert!(texts(&log, 1)[0].starts_with("line 9"));
        log.push(LogSource::Stderr, "y".repeat(1000));
        assert_eq!(texts(&log, 9), ["y".repeat(1000)]);
    }

    #[tokio::test]
    async fn lines_reach_subscribers_and_the_log_of_all() {
        let all = Log::new("plimsoll", Bytes::kib(1));
        let (one, two) =
            (Log::feeding("one", Bytes::kib(1), &all, None), Log::feeding("two", Bytes::kib(1), &all, None));
        let mut subscriber = all.subscribe();
        one.push(LogSource::Stdout, "a".to_owned());
        two.push(LogSource::Stderr, "b".to_owned());
        assert_eq!(texts(&all, 9), ["a", "b"]);
        assert_eq!(texts(&two, 9), ["b"]);
        assert_eq!(&*subscriber.recv().await.unwrap().model, "one");
        assert_eq!(subscriber.recv().await.unwrap().source, LogSource::Stderr);
    }
}
