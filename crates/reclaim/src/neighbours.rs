//! Idle memory of other guarded processes, and requests to release it.
//!
//! DECISION: the request is written on the neighbour's page, and guard answers at its next driver call. No
//! process is stopped or signalled and no work is lost, but a neighbour that makes no driver call does not
//! answer. All are asked at once and waited for a bounded time; the amounts are those of each neighbour's own
//! page before and after.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_probe::guard::{ask_for_idle, page_folders, read_page, read_pages};
use plimsoll_probe::process::name;
use plimsoll_wire::options::Uuid;
use plimsoll_wire::page::{CardSnapshot, PageSnapshot as Snapshot, PageState as State};

/// Default time for neighbours to answer: many evaluations of a busy model.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at the pages.
const NAP: Duration = Duration::from_millis(5);

/// A guarded process that holds something of the cards meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub pid: u32,
    pub name: Option<String>,
    pub held: Held,
    folder: PathBuf,
}

/// Memory of a process on the cards in question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub allocated: Bytes,
    /// The part of it that pools hold which guard serves, in use or idle.
    pub reserved: Bytes,
    /// The part of that which is idle. What the driver's own pools hold idle is not seen from outside.
    pub idle: Bytes,
}

/// A neighbour that was asked, as it was before, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub neighbour: Neighbour,
    pub answered: bool,
    pub gave: Bytes,
    pub after: Held,
}

/// The guarded processes of this user that hold something of these cards, or of any where none is named;
/// those with most idle first.
pub fn neighbours(cards: &[Uuid]) -> Vec<Neighbour> {
    let of = |folder: PathBuf| {
        let pages = read_pages(&folder);
        let here = pages
            .iter()
            .filter_map(|page| Neighbour::of(&folder, page, cards));
        here.collect::<Vec<_>>()
    };
    let mut found: Vec<Neighbour> = page_folders().into_iter().flat_map(of).collect();
    found.sort_by_key(|neighbour| (std::cmp::Reverse(neighbour.held.idle), neighbour.pid));
    found
}

/// Asks each for what it holds idle of these cards, or of all, and waits until all have answered, or no
/// longer than `patience`.
pub fn ask(neighbours: Vec<Neighbour>, cards: &[Uuid], patience: Duration) -> Vec<Asked> {
    let put = |neighbour| Question::put(neighbour, cards);
    let questions: Vec<Question> = neighbours.into_iter().map(put).collect();
    let asked = Instant::now();
    // Polling is enough: the page has no wake-up, because guard must not block in the neighbour.
    while asked.elapsed() < patience && !questions.iter().all(Question::is_over) {
        thread::sleep(NAP);
    }
    questions
        .into_iter()
        .map(|question| question.close(cards))
        .collect()
}

impl Neighbour {
    fn of(folder: &Path, page: &Snapshot, cards: &[Uuid]) -> Option<Self> {
        let held = Held::on(page, cards);
        let is_one = page.state == State::Armed && !held.allocated.is_zero();
        Some(Self {
            pid: page.pid,
            // The page of a process that is gone may still lie there.
            name: Some(name(page.pid).filter(|_| is_one)?),
            held,
            folder: folder.to_owned(),
        })
    }

    /// Returns true if its page lies in this folder.
    pub fn is_in(&self, folder: &Path) -> bool {
        self.folder == folder
    }

    fn page(&self) -> Option<Snapshot> {
        read_page(&self.folder, self.pid)
    }
}

impl Held {
    fn on(page: &Snapshot, cards: &[Uuid]) -> Self {
        let sum =
            |of: fn(&CardSnapshot) -> u64| meant(page, cards).map(|(_, card)| Bytes::new(of(card))).sum();
        Self {
            allocated: sum(|card| card.allocated),
            reserved: sum(|card| card.reserved),
            idle: sum(|card| card.idle),
        }
    }
}

/// The cards of a page that are meant, with their numbers in it.
fn meant<'a>(page: &'a Snapshot, cards: &'a [Uuid]) -> impl Iterator<Item = (usize, &'a CardSnapshot)> {
    let there = page.cards().iter().enumerate();
    there.filter(|(_, card)| cards.is_empty() || cards.contains(&Uuid(card.uuid)))
}

struct Question {
    neighbour: Neighbour,
    /// The cards asked about, and the number of the question.
    numbers: Vec<(usize, u32)>,
    /// Bytes that the process had released before.
    given_back: u64,
}

impl Question {
    fn put(neighbour: Neighbour, cards: &[Uuid]) -> Self {
        let mut question = Self {
            neighbour,
            numbers: Vec::new(),
            given_back: 0,
        };
        let Some(page) = question.neighbour.page() else {
            return question;
        };
        question.given_back = page.given_back;
        for (index, there) in meant(&page, cards) {
            // The number changes with each question, so an old answer is never taken for the new one.
            let number = there.ask.wrapping_add(1);
            // A process that has exited meanwhile has released everything.
            let asked = ask_for_idle(&question.neighbour.folder, page.pid, index, number);
            question.numbers.extend(asked.is_ok().then_some((index, number)));
        }
        question
    }

    fn is_answered(&self, page: &Snapshot) -> bool {
        let answered = |(index, number): &(usize, u32)| {
            page.cards()
                .get(*index)
                .is_some_and(|card| card.answered == *number)
        };
        self.numbers.iter().all(answered)
    }

    fn is_over(&self) -> bool {
        let page = self.neighbour.page().filter(|page| name(page.pid).is_some());
        page.is_none_or(|page| self.is_answered(&page))
    }

    /// The answer was written after what it is about, so that a page read after it tells that.
    fn close(self, cards: &[Uuid]) -> Asked {
        let answered = self.neighbour.page().is_some_and(|page| self.is_answered(&page));
        let page = self.neighbour.page();
        let given_back = page.as_ref().map_or(self.given_back, |page| page.given_back);
        Asked {
            answered,
            gave: Bytes::new(given_back.saturating_sub(self.given_back)),
            after: page.map_or_else(Held::default, |page| Held::on(&page, cards)),
            neighbour: self.neighbour,
        }
    }
}
