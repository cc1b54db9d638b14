//! Records for the fake driver how much memory each process uses on each card, in a file that all processes
//! of a test share.
//!
//! The file is an array of records, one per process, in little-endian u64. A record has the PID, the start
//! time (from `/proc/PID/stat`) and the bytes held on each of eight cards. The file is changed only under a
//! POSIX lock on the whole file. The kernel releases that lock when its owner dies, and does not pass it to a
//! forked child. A record is written by one `pwrite`. So the sums are right after a SIGKILL at any point.
//! Records of dead processes do not count and are reused by new processes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, MemfdFlags, fcntl_lock, memfd_create};

use crate::code::{Code, OUT_OF_MEMORY, UNKNOWN};
use crate::settings::MOST_CARDS;

const WORDS: usize = 2 + MOST_CARDS;
const RECORD: usize = 8 * WORDS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    pid: u64,
    start: u64,
    occupied: [u64; MOST_CARDS],
}

#[derive(Debug)]
pub(crate) struct Usage {
    file: File,
    /// Where our own record is.
    place: u64,
    own: Record,
}

impl Usage {
    /// Opens the file and takes a record in it; without a path the cards are this process's alone.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Code> {
        let file = match path {
            Some(path) => File::options()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .open(path)
                .map_err(|_| UNKNOWN)?,
            None => memfd_create("fake-cuda-usage", MemfdFlags::CLOEXEC).map_err(|_| UNKNOWN)?.into(),
        };
        let own = Record {
            pid: u64::from(std::process::id()),
            start: started(std::process::id().into()).unwrap_or(0),
            occupied: [0; MOST_CARDS],
        };
        let mut usage = Self { file, place: 0, own };
        let _lock = usage.lock()?;
        let records = usage.records();
        let free = records.iter().position(|record| record.pid == 0 || !record.is_alive());
        usage.place = (free.unwrap_or(records.len()) * RECORD) as u64;
        usage.store()?;
        Ok(usage)
    }

    /// Takes `bytes` of a card that has `total`.
    pub(crate) fn charge(&mut self, card: usize, bytes: u64, total: u64) -> Result<(), Code> {
        let _lock = self.lock()?;
        let occupied = self.sum(card);
        if occupied.checked_add(bytes).is_none_or(|sum| sum > total) {
            return Err(OUT_OF_MEMORY);
        }
        self.own.occupied[card] += bytes;
        self.store()
    }

    /// Gives `bytes` back.
    pub(crate) fn discharge(&mut self, card: usize, bytes: u64) {
        if let Ok(_lock) = self.lock() {
            self.own.occupied[card] = self.own.occupied[card].saturating_sub(bytes);
            let _ = self.store();
        }
    }

    /// What all live processes hold of a card.
    pub(crate) fn occupied(&self, card: usize) -> u64 {
        let _lock = self.lock();
        self.sum(card)
    }

    /// For who has the lock: to lock again and let go would let go of both.
    fn sum(&self, card: usize) -> u64 {
        let alive = self.records().into_iter().filter(Record::is_alive);
        alive.map(|record| record.occupied[card]).sum()
    }

    fn records(&self) -> Vec<Record> {
        let length = self.file.metadata().map_or(0, |file| file.len());
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        if self.file.read_exact_at(&mut bytes, 0).is_err() {
            return Vec::new();
        }
        let (records, _torn) = bytes.as_chunks::<RECORD>();
        records.iter().map(Record::from_bytes).collect()
    }

    fn store(&self) -> Result<(), Code> {
        self.file.write_all_at(&self.own.to_bytes(), self.place).map_err(|_| UNKNOWN)
    }

    fn lock(&self) -> Result<Lock, Code> {
        let file = self.file.try_clone().map_err(|_| UNKNOWN)?;
        fcntl_lock(&file, FlockOperation::LockExclusive).map_err(|_| UNKNOWN)?;
        Ok(Lock(file))
    }
}

/// The lock, for as long as it lives: closing any descriptor of a file drops a process's POSIX locks on it.
#[derive(Debug)]
struct Lock(#[expect(dead_code, reason = "held to be closed")] File);

impl Record {
    fn from_bytes(bytes: &[u8; RECORD]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |index: usize| u64::from_le_bytes(words[index]);
        Self { pid: word(0), start: word(1), occupied: std::array::from_fn(|card| word(2 + card)) }
    }

    fn to_bytes(self) -> Vec<u8> {
        let words = [self.pid, self.start].into_iter().chain(self.occupied);
        words.flat_map(u64::to_le_bytes).collect()
    }

    fn is_alive(&self) -> bool {
        self.pid != 0 && started(self.pid) == Some(self.start)
    }
}

/// When a process that runs was started; a zombie holds no memory any more.
fn started(pid: u64) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(start)
}
