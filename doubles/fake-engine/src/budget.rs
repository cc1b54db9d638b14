//! Simulates a card that several fake engines share: a file in which each engine records its memory under a
//! lock.
//!
//! There is one line for each process: `PID BYTES RETURN_MS SEEN_MS`. A line counts while its process lives,
//! and for `RETURN_MS` after that. A real driver also frees memory some time after the process has ended, and
//! a router must wait for it. A heartbeat updates `SEEN_MS` (last seen alive), so this also works after a
//! SIGKILL.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::card::{Card, CardError};

const HEARTBEAT: Duration = Duration::from_millis(10);

/// What the script says of the card and of our share in it. Without a file there is no budget.
#[derive(Debug, Clone, Default)]
pub(crate) struct Budget {
    pub(crate) file: Option<PathBuf>,
    pub(crate) total_bytes: u64,
    pub(crate) base_bytes: u64,
    /// Growth with the deepest request so far, as of ggml's run-time pool.
    pub(crate) bytes_per_token: u64,
    /// The pool grows with the depth of all requests together, as with one cache for all slots; else with the
    /// deepest.
    pub(crate) shared: bool,
    pub(crate) comes_back: Duration,
    /// Take the bytes from a CUDA card instead of a file.
    pub(crate) cuda: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BookingError {
    #[error("{wanted_bytes} bytes wanted, {free_bytes} of the card are free")]
    Full { wanted_bytes: u64, free_bytes: u64 },
    #[error(transparent)]
    Card(#[from] CardError),
    #[error("cannot keep the budget in {path}: {source}")]
    Keep { path: PathBuf, source: io::Error },
}

/// Our line in the file.
#[derive(Debug)]
pub(crate) struct Booking {
    budget: Budget,
    occupied_bytes: Cell<u64>,
    card: Option<Card>,
}

impl Booking {
    pub(crate) fn open(budget: &Budget) -> Result<Self, BookingError> {
        let booking = Self {
            budget: budget.clone(),
            occupied_bytes: Cell::new(0),
            card: budget.cuda.then(Card::open).transpose()?,
        };
        booking.hold(budget.base_bytes)?;
        if let Some(file) = budget.file.clone().filter(|_| !budget.comes_back.is_zero()) {
            thread::spawn(move || {
                while stamp(&file).is_ok() {
                    thread::sleep(HEARTBEAT);
                }
            });
        }
        Ok(booking)
    }

    /// Makes room for a request of this depth; what was once taken is kept.
    pub(crate) fn grow(&self, depth_tokens: u64) -> Result<(), BookingError> {
        let growth = self.budget.bytes_per_token.saturating_mul(depth_tokens);
        let wanted = self.budget.base_bytes.saturating_add(growth);
        if wanted <= self.occupied_bytes.get() { Ok(()) } else { self.hold(wanted) }
    }

    pub(crate) fn leave(&self) {
        if let Some(file) = &self.budget.file {
            stamp(file).ok();
        }
    }

    fn hold(&self, bytes: u64) -> Result<(), BookingError> {
        if let Some(card) = &self.card {
            let wanted_bytes = bytes.saturating_sub(self.occupied_bytes.get());
            let full = |_| BookingError::Full { wanted_bytes, free_bytes: 0 };
            card.take(wanted_bytes).map_err(full)?;
            self.occupied_bytes.set(bytes);
            return Ok(());
        }
        let Some(path) = &self.budget.file else {
            return Ok(());
        };
        let keep = |source| BookingError::Keep { path: path.clone(), source };
        let mut ledger = Ledger::open(path).map_err(keep)?;
        let me = std::process::id();
        ledger.lines.retain(|line| line.pid != me);
        let taken: u64 = ledger.lines.iter().map(|line| line.bytes).sum();
        let free_bytes = self.budget.total_bytes.saturating_sub(taken);
        if bytes > free_bytes {
            return Err(BookingError::Full { wanted_bytes: bytes, free_bytes });
        }
        let comes_back_ms = milliseconds(self.budget.comes_back);
        ledger.lines.push(Line { pid: me, bytes, comes_back_ms, seen_ms: now_ms() });
        ledger.write().map_err(keep)?;
        self.occupied_bytes.set(bytes);
        Ok(())
    }
}

fn stamp(path: &Path) -> io::Result<()> {
    let mut ledger = Ledger::open(path)?;
    let me = std::process::id();
    ledger.lines.iter_mut().filter(|line| line.pid == me).for_each(|line| line.seen_ms = now_ms());
    ledger.write()
}

/// The file, locked as long as this value lives.
struct Ledger {
    file: File,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    pid: u32,
    bytes: u64,
    comes_back_ms: u64,
    seen_ms: u64,
}

impl Ledger {
    fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.lock()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let lines = text.lines().filter_map(Line::read).filter(Line::counts).collect();
        Ok(Self { file, lines })
    }

    fn write(&mut self) -> io::Result<()> {
        let text: String = self.lines.iter().map(Line::text).collect();
        self.file.rewind()?;
        self.file.set_len(0)?;
        self.file.write_all(text.as_bytes())
    }
}

impl Line {
    fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        let pid = next()?.try_into().ok()?;
        Some(Self { pid, bytes: next()?, comes_back_ms: next()?, seen_ms: next()? })
    }

    fn text(&self) -> String {
        format!("{} {} {} {}\n", self.pid, self.bytes, self.comes_back_ms, self.seen_ms)
    }

    fn counts(&self) -> bool {
        lives(self.pid) || now_ms() < self.seen_ms.saturating_add(self.comes_back_ms)
    }
}

/// A zombie lives no more: its memory is already gone.
fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn now_ms() -> u64 {
    milliseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Larger than any pid that Linux gives out.
    const NOBODY: u32 = 1 << 30;

    fn budget(file: &Path) -> Budget {
        Budget { file: Some(file.to_owned()), total_bytes: 100, base_bytes: 60, ..Budget::default() }
    }

    fn ledger_with(line: Line) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), line.text()).unwrap();
        file
    }

    #[test]
    fn bytes_of_a_dead_process_count_until_they_come_back() {
        let dead = Line { pid: NOBODY, bytes: 50, comes_back_ms: 60_000, seen_ms: now_ms() };
        let file = ledger_with(dead);
        let refused = Booking::open(&budget(file.path())).unwrap_err();
        assert!(matches!(refused, BookingError::Full { wanted_bytes: 60, free_bytes: 50 }));

        let file = ledger_with(Line { seen_ms: now_ms() - 60_001, ..dead });
        assert!(Booking::open(&budget(file.path())).is_ok());
    }

    #[test]
    fn growth_is_kept_and_is_refused_beyond_the_card() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let booking = Booking::open(&Budget { bytes_per_token: 2, ..budget(file.path()) }).unwrap();
        booking.grow(15).unwrap();
        booking.grow(3).unwrap();
        assert_eq!(booking.occupied_bytes.get(), 90);
        assert!(matches!(booking.grow(21), Err(BookingError::Full { wanted_bytes: 102, free_bytes: 100 })));
    }

    #[test]
    fn a_torn_line_is_skipped() {
        assert_eq!(Line::read("12 x 3"), None);
        let line = Line { pid: 1, bytes: 2, comes_back_ms: 3, seen_ms: 4 };
        assert_eq!(Line::read(line.text().trim_end()), Some(line));
    }
}
