//! Reads machine-wide memory figures: `/proc/meminfo`, free blocks by size, and the kernel's counters of
//! memory pressure.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use plimsoll_host::BuddyInfo;

use crate::record::{Figure, Group, Look, Pace, Unit};

/// Size limit of a `/proc` file.
const MOST: usize = 256 << 10;
/// Buffer size for a file of one line.
const LINE: usize = 256;

/// Keys of `/proc/meminfo`. The first two decide whether a driver allocation succeeds on an integrated GPU.
const MEMINFO: &[(&str, Pace)] = &[
    ("MemFree", Pace::Fast),
    ("MemAvailable", Pace::Fast),
    ("Buffers", Pace::Slow),
    ("Cached", Pace::Slow),
    ("SwapFree", Pace::Slow),
    ("Dirty", Pace::Slow),
    ("AnonPages", Pace::Slow),
    ("Mapped", Pace::Slow),
    ("Shmem", Pace::Slow),
    ("SReclaimable", Pace::Slow),
    ("SUnreclaim", Pace::Slow),
    ("Mlocked", Pace::Slow),
    ("CmaFree", Pace::Slow),
    ("NvMapMemUsed", Pace::Slow),
    ("HugePages_Free", Pace::Slow),
];

/// Keys of `/proc/vmstat` that count reclaim stalls, compaction and out-of-memory kills.
const VMSTAT: &[&str] =
    &["pgmajfault", "allocstall_normal", "compact_stall", "compact_fail", "oom_kill", "pswpout"];

/// `/proc` files that are read again in each sample.
#[derive(Debug)]
pub(super) struct WatchedMachine {
    meminfo: RereadFile,
    buddyinfo: RereadFile,
    vmstat: RereadFile,
}

/// A file that stays open between reads.
#[derive(Debug)]
pub(super) struct RereadFile {
    file: Option<File>,
    bytes: Vec<u8>,
}

impl WatchedMachine {
    pub(super) fn open() -> Self {
        Self {
            meminfo: RereadFile::open("/proc/meminfo"),
            buddyinfo: RereadFile::open("/proc/buddyinfo"),
            vmstat: RereadFile::open("/proc/vmstat"),
        }
    }

    pub(super) fn look(&mut self, look: &mut Look) {
        for line in self.meminfo.read().lines() {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let Some((key, pace)) = MEMINFO.iter().find(|(known, _)| *known == key) else {
                continue;
            };
            let mut words = value.split_ascii_whitespace();
            if let Some(number) = words.next().and_then(|number| number.parse().ok()) {
                // Only sizes carry a unit; HugePages_Free is a plain count.
                let unit = if words.next().is_some() { Unit::Kib } else { Unit::Count };
                look.push(Figure::new(Group::Machine, unit, "", *key), *pace, number);
            }
        }
        for zone in BuddyInfo::read(self.buddyinfo.read()).zones {
            let subject = format!("{} {}", zone.node, zone.zone);
            for (order, count) in zone.counts.into_iter().enumerate() {
                let figure =
                    Figure::new(Group::Blocks, Unit::Count, subject.clone(), format!("order {order}"));
                look.push(figure, Pace::Slow, count);
            }
        }
        for line in self.vmstat.read().lines() {
            if let Some((key, value)) = line.split_once(' ')
                && let (Some(key), Ok(count)) = (VMSTAT.iter().find(|known| **known == key), value.parse())
            {
                look.push(Figure::new(Group::Machine, Unit::Count, "", *key), Pace::Slow, count);
            }
        }
    }
}

impl RereadFile {
    pub(super) fn open(path: &str) -> Self {
        Self { file: File::open(path).ok(), bytes: Vec::new() }
    }

    /// The current content; empty if the file cannot be read.
    pub(super) fn read(&mut self) -> &str {
        let filled = self.fill().unwrap_or(0);
        str::from_utf8(&self.bytes[..filled]).unwrap_or_default()
    }

    /// The current content of a file of one short line, by a single read.
    pub(super) fn line(&mut self) -> &str {
        if self.bytes.is_empty() {
            self.bytes.resize(LINE, 0);
        }
        let read = self.file.as_ref().and_then(|file| file.read_at(&mut self.bytes, 0).ok());
        str::from_utf8(&self.bytes[..read.unwrap_or(0)]).unwrap_or_default()
    }

    fn fill(&mut self) -> io::Result<usize> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        if self.bytes.is_empty() {
            self.bytes.resize(16 << 10, 0);
        }
        let mut filled = 0;
        // procfs generates the text at offset 0 and may return less than was asked for, so reads repeat until
        // 0.
        loop {
            let at = u64::try_from(filled).unwrap_or(u64::MAX);
            // `read_at` rereads from the start without a seek; procfs renders the file anew at offset 0.
            match file.read_at(&mut self.bytes[filled..], at)? {
                0 => return Ok(filled),
                count => filled += count,
            }
            // Doubled only when full: after the first sample the buffer fits, and no read allocates.
            if filled == self.bytes.len() {
                if filled >= MOST {
                    return Ok(filled);
                }
                self.bytes.resize(2 * filled, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::record::{Encoder, summarise};

    use super::*;

    #[test]
    fn this_machine_has_memory_and_free_blocks() {
        let mut machine = WatchedMachine::open();
        let (mut look, mut bytes) = (Look::default(), Vec::new());
        machine.look(&mut look);
        let mut encoder = Encoder::begin(&Default::default(), &mut bytes);
        encoder.sample(0, &look, &mut bytes);
        let figures = summarise(&bytes).unwrap().figures;
        let has = |what: &str| figures.iter().any(|reported| reported.figure.what == what);
        assert!(has("MemFree") && has("MemAvailable") && has("order 3"), "{figures:?}");
    }
}
