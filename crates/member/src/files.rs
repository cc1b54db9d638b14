//! Copies model files between hosts: offers this host's files, knows which it lacks, and runs one copy at a
//! time.
//!
//! A host requests the list of files by the model's name and the digest of its offer. It requests bytes by
//! the SHA-256 of their file. No path goes over the network: each side takes its own paths from its
//! configuration.

mod ask;
mod give;
mod order;
mod place;
mod stamp;
mod take;
mod write;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_config::{ConfiguredModel, ServeSettings};
use plimsoll_fleet::{FleetEvent, HostCopies, RunningCopy};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use self::place::FilePlace;
use self::stamp::FileStamp;
use super::pace::Pace;
use super::{FleetError, FleetMember};

/// Bytes of files a second, each way, if the configuration says nothing: a tenth of a fast network.
const BANDWIDTH: Bytes = Bytes::mib(100);
/// Less would be no copy.
const LEAST_BANDWIDTH: Bytes = Bytes::kib(64);
/// Longest part of a file that one request asks for.
const MOST_PART: u64 = 1 << 20;
/// Parts in memory at a time, for all hosts that ask.
const MOST_GIVEN: usize = 16;
/// Time after which a copy that failed at every host is tried again, at first; it doubles up to an hour.
const AGAIN: Duration = Duration::from_secs(30);
const MOST_DOUBLINGS: u32 = 7;

/// The files of a model, as a host reports its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct FileList {
    schema: u32,
    files: Vec<ListedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ListedFile {
    #[serde(flatten)]
    place: FilePlace,
    size: u64,
    sha256: String,
}

/// Files that this host shares with others of the fleet.
#[derive(Debug)]
pub(super) struct SharedFiles {
    bandwidth: Bytes,
    giving: Pace,
    taking: Pace,
    /// Parts that are being given.
    parts: Arc<Semaphore>,
    /// Digests of this host's files, each of the file as it was then.
    digests: RefCell<HashMap<PathBuf, (FileStamp, String)>>,
    /// A thread reads files for their digests.
    is_reading: Cell<bool>,
    /// Models whose files this host lacks.
    lacking: RefCell<BTreeMap<String, Lack>>,
    copying: RefCell<Option<RunningCopy>>,
    /// Bytes that other hosts got, and that came from them.
    given: Cell<u64>,
    copied: Cell<u64>,
}

/// Files that are not here: the time from which a copy is tried, and attempts that failed.
#[derive(Clone, Copy, Debug)]
struct Lack {
    from: Instant,
    failures: u32,
}

impl SharedFiles {
    /// Shared files by the settings; `None` for nothing.
    pub(super) fn of(serve: &ServeSettings) -> Result<Option<Self>, FleetError> {
        if !serve.fleet_share_files {
            return Ok(None);
        }
        let bandwidth = serve.fleet_share_bandwidth.unwrap_or(BANDWIDTH);
        if bandwidth < LEAST_BANDWIDTH {
            return Err(FleetError::Bandwidth { given: bandwidth, least: LEAST_BANDWIDTH });
        }
        Ok(Some(Self {
            bandwidth,
            giving: Pace::new(bandwidth),
            taking: Pace::new(bandwidth),
            parts: Arc::new(Semaphore::new(MOST_GIVEN)),
            digests: RefCell::default(),
            is_reading: Cell::default(),
            lacking: RefCell::default(),
            copying: RefCell::default(),
            given: Cell::default(),
            copied: Cell::default(),
        }))
    }

    /// Length of the parts that this host asks for: a quarter of a second of its bandwidth at most.
    fn part(&self) -> u64 {
        (self.bandwidth.get() / 4).clamp(1, MOST_PART)
    }

    /// Notes whether this host lacks files of a model that it cannot serve.
    pub(super) fn note(&self, entry: &ConfiguredModel, is_offered: bool) {
        let mut lacking = self.lacking.borrow_mut();
        if !is_offered && place::lacks(entry) {
            lacking.entry(entry.name.clone()).or_insert_with(|| Lack { from: Instant::now(), failures: 0 });
        } else {
            lacking.remove(&entry.name);
        }
    }

    /// True if a copy of the model's files may begin now.
    fn may_copy(&self, model: &str) -> bool {
        self.lacking.borrow().get(model).is_some_and(|lack| lack.from <= Instant::now())
    }

    fn postpone(&self, model: &str) {
        if let Some(lack) = self.lacking.borrow_mut().get_mut(model) {
            lack.from = Instant::now() + AGAIN * (1 << lack.failures.min(MOST_DOUBLINGS));
            lack.failures = lack.failures.saturating_add(1);
        }
    }

    /// Bytes that other hosts got, and that came from them.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.given.get(), self.copied.get())
    }

    fn forget_digest(&self, path: &Path) {
        self.digests.borrow_mut().remove(path);
    }

    fn record(&self) -> HostCopies {
        let now = Instant::now();
        let lacking = self.lacking.borrow();
        let lacks = lacking.iter().filter(|(_, lack)| lack.from <= now).map(|(model, _)| model.clone());
        HostCopies { lacks: lacks.collect(), running: self.copying.borrow().clone() }
    }
}

impl FleetMember {
    /// Reports what this host lacks and copies, if that has changed; models that the configuration leaves out
    /// are forgotten.
    pub(super) fn notify_copies(&self, is_present: impl Fn(&str) -> bool) {
        let Some(files) = &self.files else { return };
        files.lacking.borrow_mut().retain(|model, _| is_present(model));
        self.notify_copy(files);
    }

    fn notify_copy(&self, files: &SharedFiles) {
        let record = files.record();
        if *self.copies_reported.borrow() != record {
            self.copies_reported.replace(record.clone());
            self.submit(FleetEvent::Copies(record));
        }
    }
}
