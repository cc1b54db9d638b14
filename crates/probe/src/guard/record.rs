//! Sums up the memory that guard counted for a program and its descendants, over their whole life.
//!
//! The peak of all together comes from the ledger, a file that the processes share. Without a ledger, the sum
//! of each process's peak is an upper bound.

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use plimsoll_wire::options::Uuid;
use plimsoll_wire::page::{CardSnapshot, OomSnapshot, PageSnapshot, PageState, Refusal};
use plimsoll_wire::tree::{TreeCardSnapshot, TreeSnapshot, key};

/// Refusals that are kept of one process.
const MOST_REFUSALS: usize = 4096;

/// Memory figures of one process.
#[derive(Clone, Debug)]
struct GuardedProcess {
    state: PageState,
    pools: u32,
    pinned: u64,
    cards: Vec<CardSnapshot>,
    refusals: BTreeMap<u64, OomSnapshot>,
}

/// Memory figures of all processes that had a page.
#[derive(Clone, Debug, Default)]
pub struct Record {
    processes: BTreeMap<u32, GuardedProcess>,
    tree: Option<TreeSnapshot>,
}

/// Memory figures of one card, over all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardRecord {
    pub uuid: Uuid,
    pub total: Bytes,
    /// `None` without a limit.
    pub budget: Option<Bytes>,
    /// The most that was held at a time.
    pub peak: Bytes,
    /// The most that guard's pools held, and the most that was spilled.
    pub reserved: Bytes,
    pub spilled: Bytes,
    /// Largest total of requests, on the card and in host memory, without contexts.
    pub requested: Bytes,
    pub allocations: u64,
    /// Processes that took something of it.
    pub processes: usize,
    /// Number of all refusals; `refused` may list fewer.
    pub refusals: u64,
    pub refused: Vec<GuardRefusal>,
    tree: Option<TreeCardSnapshot>,
}

/// A refused allocation on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardRefusal {
    pub pid: u32,
    pub why: Refusal,
    pub requested: Bytes,
    pub allocated: Bytes,
    pub budget: Option<Bytes>,
    pub free: Bytes,
}

impl Record {
    /// Adds the present figures of the pages and of the ledger.
    pub fn see(&mut self, pages: &[PageSnapshot], tree: Option<TreeSnapshot>) {
        // The last ledger stays: its file goes with the last process.
        self.tree = tree.or(self.tree.take());
        for page in pages {
            let process = self.processes.entry(page.pid).or_insert_with(|| GuardedProcess {
                state: page.state,
                pools: 0,
                pinned: 0,
                cards: Vec::new(),
                refusals: BTreeMap::new(),
            });
            process.see(page);
        }
    }

    /// Processes that have begun to use a card.
    pub fn armed(&self) -> usize {
        self.count(PageState::Armed)
    }

    /// Processes in which guard gave up.
    pub fn disarmed(&self) -> usize {
        self.count(PageState::Disarmed)
    }

    /// Number of the program's pools that guard served instead of it.
    pub fn pools(&self) -> u32 {
        self.processes.values().map(|process| process.pools).sum()
    }

    /// The most host memory that was pinned.
    pub fn pinned(&self) -> Bytes {
        let pinned = self.processes.values().map(|process| process.pinned);
        pinned.map(Bytes::new).sum()
    }

    fn count(&self, state: PageState) -> usize {
        let in_state = self.processes.values().filter(|process| process.state == state);
        in_state.count()
    }

    /// Each card that something was taken of, or refused on.
    pub fn cards(&self) -> Vec<CardRecord> {
        // By UUID: `CUDA_VISIBLE_DEVICES` gives each process its own numbers.
        let mut cards: BTreeMap<[u8; 16], CardRecord> = BTreeMap::new();
        for (pid, process) in &self.processes {
            for (index, card) in process.cards.iter().enumerate() {
                // Seen by the program, but nothing was ever taken of it.
                if card.peak == 0 && card.ooms == 0 {
                    continue;
                }
                let record = cards.entry(card.uuid).or_insert_with(|| CardRecord::new(card));
                record.add(card);
                let tree = self.tree.as_ref().zip(u8::try_from(index).ok());
                let tree = tree.and_then(|(tree, number)| tree.card(key(card.uuid, number)));
                record.tree = record.tree.or(tree);
                // A refusal names its card by the index in the page of its own process.
                let here = |oom: &&OomSnapshot| usize::try_from(oom.card).is_ok_and(|at| at == index);
                let refused = process.refusals.values().filter(here);
                record.refused.extend(refused.map(|oom| GuardRefusal::new(*pid, oom)));
            }
        }
        cards.into_values().map(CardRecord::together).collect()
    }
}

impl GuardedProcess {
    fn see(&mut self, page: &PageSnapshot) {
        self.state = page.state;
        // Maxima, because a page is written while it is read.
        self.pools = self.pools.max(page.pools);
        self.pinned = self.pinned.max(page.pinned_peak);
        for (index, now) in page.cards().iter().enumerate() {
            match self.cards.get_mut(index) {
                Some(before) => *before = most(before, now),
                None => self.cards.push(*now),
            }
        }
        for oom in page.ooms() {
            // Pages are input: a program could report refusals without end.
            if self.refusals.len() < MOST_REFUSALS {
                self.refusals.insert(oom.sequence, *oom);
            }
        }
    }
}

/// The later one, with the peaks of both: a program that becomes another one by exec begins a new page.
fn most(before: &CardSnapshot, now: &CardSnapshot) -> CardSnapshot {
    CardSnapshot {
        peak: before.peak.max(now.peak),
        reserved_peak: before.reserved_peak.max(now.reserved_peak),
        spilled_peak: before.spilled_peak.max(now.spilled_peak),
        context: before.context.max(now.context),
        allocations: before.allocations.max(now.allocations),
        ooms: before.ooms.max(now.ooms),
        // Present values are the later page's; only peaks and counters span both.
        ..*now
    }
}

impl CardRecord {
    fn new(card: &CardSnapshot) -> Self {
        Self {
            uuid: Uuid(card.uuid),
            total: Bytes::new(card.total),
            budget: None,
            peak: Bytes::ZERO,
            reserved: Bytes::ZERO,
            spilled: Bytes::ZERO,
            requested: Bytes::ZERO,
            allocations: 0,
            processes: 0,
            refusals: 0,
            refused: Vec::new(),
            tree: None,
        }
    }

    /// Replaces summed figures by those of the shared ledger, where it has them.
    fn together(mut self) -> Self {
        if let Some(tree) = self.tree {
            // The ledger adds all processes up at each moment; the sum of their peaks would be too much.
            self.budget = tree.budget.map(Bytes::new);
            self.peak = Bytes::new(tree.peak);
        }
        self
    }

    fn add(&mut self, card: &CardSnapshot) {
        self.peak += Bytes::new(card.peak);
        self.reserved += Bytes::new(card.reserved_peak);
        self.spilled += Bytes::new(card.spilled_peak);
        // The driver makes the context by itself, so the program did not request it.
        self.requested +=
            Bytes::new(card.peak.saturating_add(card.spilled_peak).saturating_sub(card.context));
        self.allocations += card.allocations;
        self.processes += 1;
        self.refusals += card.ooms;
    }

    /// The number of known refusals for this reason.
    pub fn refused_for(&self, why: Refusal) -> usize {
        self.refused.iter().filter(|refused| refused.why == why).count()
    }
}

impl GuardRefusal {
    pub fn new(pid: u32, oom: &OomSnapshot) -> Self {
        Self {
            pid,
            why: oom.refusal,
            requested: Bytes::new(oom.requested),
            allocated: Bytes::new(oom.allocated),
            budget: oom.budget.map(Bytes::new),
            free: Bytes::new(oom.free),
        }
    }
}
