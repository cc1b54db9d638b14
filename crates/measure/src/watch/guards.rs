//! Reads the memory of processes under guard (the preloaded library), and their newly refused allocations.
//!
//! They are read from guard pages: shared-memory files in which guard, the preloaded library, records a
//! process's GPU allocations.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_probe::guard::{page_folders, read_pages};
use plimsoll_process::reading::name;
use plimsoll_wire::page::{OomSnapshot, PageSnapshot, Refusal};

use crate::record::{Figure, Group, Look, Pace, Unit};

/// Interval between searches for folders of guard pages.
const SEARCH_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Guards {
    /// The folder of one program, or all folders found.
    folders: Vec<PathBuf>,
    is_given: bool,
    searched: Option<Instant>,
    /// Name of each process, and the sequence number of the last refusal reported.
    seen: BTreeMap<u32, (String, u64)>,
}

impl Guards {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            is_given: folder.is_some(),
            folders: folder.into_iter().collect(),
            searched: None,
            seen: BTreeMap::new(),
        }
    }

    /// Adds memory figures to the sample, and returns new refusals as text.
    pub(super) fn look(&mut self, look: &mut Look) -> Vec<String> {
        let is_due = self.searched.is_none_or(|when| when.elapsed() >= SEARCH_EVERY);
        if is_due && !self.is_given {
            self.folders = page_folders();
            self.searched = Some(Instant::now());
        }
        let pages: Vec<PageSnapshot> = self.folders.iter().flat_map(|folder| read_pages(folder)).collect();
        pages.iter().flat_map(|page| self.look_at(page, look)).collect()
    }

    fn look_at(&mut self, page: &PageSnapshot, look: &mut Look) -> Vec<String> {
        // The name is kept: a refusal is often the last act of a process that is gone at the next look.
        let (name, reported) =
            self.seen.entry(page.pid).or_insert_with(|| (name(page.pid).unwrap_or_default(), 0));
        let subject = format!("{} {name}", page.pid);
        for (card, number) in page.cards().iter().zip(0_u32..) {
            // A page also lists cards that the process never allocated on; they would fill the record with
            // zeros.
            if card.peak == 0 && card.ooms == 0 {
                continue;
            }
            let values = [
                ("allocated", card.allocated, Pace::Fast),
                ("idle in pools", card.idle, Pace::Slow),
                ("spilled", card.spilled, Pace::Slow),
            ];
            for (what, bytes, pace) in values {
                let figure =
                    Figure::new(Group::Guard, Unit::Kib, subject.clone(), format!("{what} on card {number}"));
                look.push(figure, pace, bytes >> 10);
            }
        }
        // The page keeps its last refusals, so each look sees older ones again.
        let news = page.ooms().filter(|oom| oom.sequence > *reported).collect::<Vec<_>>();
        *reported = news.iter().map(|oom| oom.sequence).max().unwrap_or(*reported);
        news.into_iter().map(|oom| format!("{subject}: {}", refusal(oom))).collect()
    }
}

fn refusal(oom: &OomSnapshot) -> String {
    let [requested, allocated, free] = [oom.requested, oom.allocated, oom.free].map(Bytes::new);
    let by = match oom.refusal {
        Refusal::Budget => "its budget",
        _ => "the driver",
    };
    let of = oom.budget.map_or_else(String::new, |budget| format!(" of a budget of {}", Bytes::new(budget)));
    format!(
        "card {}: {by} refused a request for {requested} more; the program held {allocated}{of}, and {free} were \
            free",
        oom.card
    )
}
