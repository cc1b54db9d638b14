//! Reads the memory of other processes under guard (the preloaded library), and asks them to release the idle
//! part.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Order};
use plimsoll_probe::guard::{ask_for_idle, page_folders, read_page, read_pages};
use plimsoll_process::reading::name;
use plimsoll_wire::options::Uuid;
use plimsoll_wire::page::{CardSnapshot, PageSnapshot, PageState};

/// Interval between two reads of the pages.
const NAP: Duration = Duration::from_millis(5);

/// A guarded process that holds memory on the given cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub pid: u32,
    pub name: Option<String>,
    pub occupied: ProcessMemory,
    folder: PathBuf,
}

/// Memory of a process on the given cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    pub allocated: Bytes,
    /// The part of `allocated` in pools that guard serves, in use or idle.
    pub reserved: Bytes,
    /// The idle part of `reserved`. Idle memory in the driver's own pools is not visible from outside.
    pub idle: Bytes,
}

/// Result of a request to one process, with its state before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedNeighbour {
    pub neighbour: Neighbour,
    pub answered: bool,
    pub gave: Bytes,
    pub after: ProcessMemory,
}

/// This user's guarded processes that hold memory on these cards, or on any card if none is named. Processes
/// with the most idle memory come first.
pub fn neighbours(cards: &[Uuid]) -> Vec<Neighbour> {
    let of = |folder: PathBuf| {
        let pages = read_pages(&folder);
        let here = pages.iter().filter_map(|page| Neighbour::of(&folder, page, cards));
        here.collect::<Vec<_>>()
    };
    let mut found: Vec<Neighbour> = page_folders().into_iter().flat_map(of).collect();
    // The pid makes the order of equal processes stable between two calls.
    found.order_by_key(|neighbour| (std::cmp::Reverse(neighbour.occupied.idle), neighbour.pid));
    found
}

/// Asks each neighbour to release idle memory on these cards, or on all, and waits for the answers up to
/// `patience`.
pub fn ask(neighbours: Vec<Neighbour>, cards: &[Uuid], patience: Duration) -> Vec<RequestedNeighbour> {
    // DECISION: a request is written to the process's shared-memory file, and guard acts at the next driver
    // call. No process is stopped and no work is lost. All processes are asked at once and have a limited
    // time to answer.

    // All requests are written before the first wait, so the neighbours work in parallel.
    let put = |neighbour| NeighbourQuestion::put(neighbour, cards);
    let questions: Vec<NeighbourQuestion> = neighbours.into_iter().map(put).collect();
    let requested = Instant::now();
    // Polling is enough: the page has no wake-up, because guard must not block in the neighbour.
    while requested.elapsed() < patience && !questions.iter().all(NeighbourQuestion::is_over) {
        thread::sleep(NAP);
    }
    questions.into_iter().map(|question| question.close(cards)).collect()
}

impl Neighbour {
    fn of(folder: &Path, page: &PageSnapshot, cards: &[Uuid]) -> Option<Self> {
        let occupied = ProcessMemory::on(page, cards);
        let is_one = page.state == PageState::Armed && !occupied.allocated.is_zero();
        Some(Self {
            pid: page.pid,
            // The page of a dead process stays in its folder until it is removed, so the process must exist
            // too.
            name: Some(name(page.pid).filter(|_| is_one)?),
            occupied,
            folder: folder.to_owned(),
        })
    }

    /// True if its guard page lies in this folder.
    pub fn is_in(&self, folder: &Path) -> bool {
        self.folder == folder
    }

    fn page(&self) -> Option<PageSnapshot> {
        read_page(&self.folder, self.pid)
    }
}

impl ProcessMemory {
    fn on(page: &PageSnapshot, cards: &[Uuid]) -> Self {
        let sum =
            |of: fn(&CardSnapshot) -> u64| meant(page, cards).map(|(_, card)| Bytes::new(of(card))).sum();
        Self {
            allocated: sum(|card| card.allocated),
            reserved: sum(|card| card.reserved),
            idle: sum(|card| card.idle),
        }
    }
}

/// The cards of a page that were asked for, with their index in the page.
fn meant<'a>(page: &'a PageSnapshot, cards: &'a [Uuid]) -> impl Iterator<Item = (usize, &'a CardSnapshot)> {
    let there = page.cards().iter().enumerate();
    there.filter(|(_, card)| cards.is_empty() || cards.contains(&Uuid(card.uuid)))
}

struct NeighbourQuestion {
    neighbour: Neighbour,
    /// Index of each card asked, with the number of the request.
    numbers: Vec<(usize, u32)>,
    /// Bytes that the process had released before the request.
    given_back: u64,
}

impl NeighbourQuestion {
    fn put(neighbour: Neighbour, cards: &[Uuid]) -> Self {
        let mut question = Self { neighbour, numbers: Vec::new(), given_back: 0 };
        let Some(page) = question.neighbour.page() else {
            return question;
        };
        question.given_back = page.given_back;
        for (index, there) in meant(&page, cards) {
            // Guard answers a number it has not seen before; wrapping is safe because only equality is
            // compared.
            let number = there.ask.wrapping_add(1);
            // A failed write means that the process has ended, and its memory is free anyway.
            let requested = ask_for_idle(&question.neighbour.folder, page.pid, index, number);
            question.numbers.extend(requested.is_ok().then_some((index, number)));
        }
        question
    }

    fn is_answered(&self, page: &PageSnapshot) -> bool {
        let answered = |(index, number): &(usize, u32)| {
            page.cards().get(*index).is_some_and(|card| card.answered == *number)
        };
        self.numbers.iter().all(answered)
    }

    fn is_over(&self) -> bool {
        // A page without a live process counts as answered: waiting on would only use up the time.
        let page = self.neighbour.page().filter(|page| name(page.pid).is_some());
        page.is_none_or(|page| self.is_answered(&page))
    }

    /// Reads the result. Guard writes the answer after the figures, so a page read after the answer has both.
    fn close(self, cards: &[Uuid]) -> RequestedNeighbour {
        let answered = self.neighbour.page().is_some_and(|page| self.is_answered(&page));
        let page = self.neighbour.page();
        let given_back = page.as_ref().map_or(self.given_back, |page| page.given_back);
        RequestedNeighbour {
            answered,
            gave: Bytes::new(given_back.saturating_sub(self.given_back)),
            after: page.map_or_else(ProcessMemory::default, |page| ProcessMemory::on(&page, cards)),
            neighbour: self.neighbour,
        }
    }
}
