//! The tree's ledger: one small shared file for a program and all that it starts, by which their claims together keep to a budget.
//!
//! DECISION: a page is one process's report and stays as its last words; what the living hold together is counted here, in one slot
//! a process, because a sum that many processes add to cannot be put right after one of them was killed half-way through an
//! addition, and a slot can: it belongs to one process, and whoever finds that process gone empties it. A claim first looks whether
//! it would fit, then adds to its own slot, then sums again; if others claimed meanwhile and the sum is too large, it takes its
//! bytes back and may try again. So no order of events passes the budget, what fits together is granted together, and of claims that
//! do not, somebody is granted before anybody is told that the tree is full. Nobody waits on a lock of another process.
//!
//! What that rests on is a fence between the addition and the sum: of two claims, one at least sees the other. A file of zeroes is an
//! empty ledger, so whoever comes first makes it by giving a new file its length.

use core::array;
use core::mem::size_of;

use crate::page::{CARDS, UNLIMITED};
use crate::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sync::{AtomicU64, fence};

mod owner;
mod slots;
mod snapshot;

pub use owner::Owner;
pub use snapshot::{TreeCardSnapshot, TreeSnapshot};

/// The ledger's name in the folder of the pages; it changes with the layout.
pub const FILE: &str = "tree.1";
/// Processes of one tree that can be on cards at a time; few under loom and miri, which are slow and look for something else.
pub const SLOTS: usize = match (cfg!(loom), cfg!(miri)) {
    (true, _) => 2,
    (_, true) => 8,
    _ => 256,
};
/// Cards of a slot; loom counts atomics.
const PLACES: usize = if cfg!(loom) { 1 } else { CARDS };

/// The whole ledger.
#[repr(C)]
#[derive(Debug)]
pub struct Tree {
    cards: [TreeCard; PLACES],
    /// Slots that were ever taken: no other needs to be looked at.
    used: AtomicU64,
    slots: [Slot; SLOTS],
}

/// A card, by whatever number each process knows it.
#[repr(C)]
#[derive(Debug, Default)]
struct TreeCard {
    /// [`key`] of the card; 0 for a place that is free.
    key: AtomicU64,
    /// What the tree may take of it, plus one; 0 if nobody has said.
    budget: AtomicU64,
    /// The most that its living processes held of it at a time.
    peak: AtomicU64,
}

/// One process.
#[repr(C, align(64))]
#[derive(Debug)]
struct Slot {
    /// An [`Owner`], or 0.
    owner: AtomicU64,
    /// The name space that the owner's number is of; 0 until it has said so.
    space: AtomicU64,
    shares: [Share; PLACES],
}

/// What one process has of one card, in bytes.
#[repr(C)]
#[derive(Debug, Default)]
struct Share {
    /// With what the driver has been asked for and not yet given.
    claimed: AtomicU64,
    held: AtomicU64,
}

/// The most bytes that one claim counts for: more than any card has, and so little that the sum of all claims of a process cannot
/// overflow. A program may ask for any number of bytes, and without a budget the driver is the first to refuse.
const MOST: u64 = 1 << 48;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Granted,
    /// The budget does not have it.
    Full,
    /// It would have fitted, but for another claim that may yet be taken back: worth another try.
    Crossed,
}

/// What names a card to every process of a tree: its UUID, or where the driver tells none the number that it has there.
pub fn key(uuid: [u8; 16], number: u8) -> u64 {
    let (halves, _) = uuid.as_chunks::<8>();
    let folded = halves.iter().fold(0, |key, half| key ^ u64::from_le_bytes(*half));
    if folded == 0 {
        u64::from(number) + 1
    } else {
        folded
    }
}

/// The number that stands for a budget in the ledger.
pub const fn budget_word(budget: u64) -> u64 {
    budget.saturating_add(1)
}

/// The budget that a number in the ledger stands for.
const fn read_budget(word: u64) -> u64 {
    match word {
        0 | u64::MAX => UNLIMITED,
        word => word - 1,
    }
}

impl Tree {
    pub const SIZE: usize = size_of::<Self>();

    /// The place of the card with this key, which is taken if it has none yet; `None` if there is no room for one more.
    pub fn place(&self, key: u64) -> Option<usize> {
        self.cards.iter().position(|card| {
            let before = card.key.compare_exchange(0, key, Relaxed, Relaxed);
            before.is_ok() || before == Err(key)
        })
    }

    /// Sets the budget of a card that nobody has set yet.
    pub fn say_budget(&self, place: usize, budget: u64) {
        let word = &self.card(place).budget;
        let _ = word.compare_exchange(0, budget_word(budget), Relaxed, Relaxed);
    }

    /// What the tree may take of a card; [`UNLIMITED`] for no limit.
    pub fn budget(&self, place: usize) -> u64 {
        read_budget(self.card(place).budget.load(Relaxed))
    }

    /// Claims `size` bytes of a card for the owner of a slot, once. What is granted is either confirmed or taken back.
    pub fn claim(&self, slot: usize, place: usize, size: u64) -> Claim {
        let counted = size.min(MOST);
        let claimed = &self.share(slot, place).claimed;
        let budget = self.budget(place);
        if budget == UNLIMITED {
            claimed.fetch_add(counted, Relaxed);
            return Claim::Granted;
        }
        // A claim that cannot be granted must not stand in the way of one that can.
        let sum = self.claimed(place).checked_add(size);
        if sum.is_none_or(|sum| sum > budget) {
            return Claim::Full;
        }
        claimed.fetch_add(counted, Relaxed);
        fence(SeqCst);
        if self.claimed(place) <= budget {
            return Claim::Granted;
        }
        lower(claimed, counted);
        Claim::Crossed
    }

    /// The driver did not give what was claimed.
    pub fn take_back(&self, slot: usize, place: usize, size: u64) {
        lower(&self.share(slot, place).claimed, size.min(MOST));
    }

    /// The driver gave what was claimed.
    pub fn confirm(&self, slot: usize, place: usize, size: u64) {
        self.share(slot, place).held.fetch_add(size.min(MOST), Relaxed);
    }

    /// Counts `size` bytes whether the budget has them or not: they are a fact already, as a context is.
    pub fn charge(&self, slot: usize, place: usize, size: u64) {
        self.share(slot, place).claimed.fetch_add(size.min(MOST), Relaxed);
        self.confirm(slot, place, size);
    }

    /// Gives back `size` bytes of what is held, never below none.
    pub fn give(&self, slot: usize, place: usize, size: u64) {
        let share = self.share(slot, place);
        let given = lower(&share.held, size.min(MOST));
        lower(&share.claimed, given);
    }

    /// What all processes have claimed of a card.
    pub fn claimed(&self, place: usize) -> u64 {
        self.sum(place, |share| &share.claimed)
    }

    /// What all processes hold of a card.
    pub fn held(&self, place: usize) -> u64 {
        self.sum(place, |share| &share.held)
    }

    /// What the budget of a card still has; [`UNLIMITED`] without one.
    pub fn headroom(&self, place: usize) -> u64 {
        match self.budget(place) {
            UNLIMITED => UNLIMITED,
            budget => budget.saturating_sub(self.claimed(place)),
        }
    }

    pub fn peak(&self, place: usize) -> u64 {
        self.card(place).peak.load(Relaxed)
    }

    /// The peak is at least what is held now; before that makes it larger, `sweep` may empty the slots of the dead.
    ///
    /// A sum taken while others give and take may count the same bytes with both, so one that comes out twice is believed, or the least
    /// of a few.
    pub fn raise_peak(&self, place: usize, sweep: impl FnOnce()) {
        const SUMS: usize = 4;
        fence(SeqCst);
        if self.held(place) <= self.peak(place) {
            return;
        }
        sweep();
        let mut least = self.held(place);
        for _ in 0..SUMS {
            let again = self.held(place);
            if again == least {
                break;
            }
            least = least.min(again);
        }
        self.card(place).peak.fetch_max(least, Relaxed);
    }

    fn sum(&self, place: usize, of: impl Fn(&Share) -> &AtomicU64) -> u64 {
        let shares = self.slots().iter().map(|slot| slot.share(place));
        shares.fold(0, |sum, share| sum.saturating_add(of(share).load(Acquire)))
    }

    fn card(&self, place: usize) -> &TreeCard {
        &self.cards[place % PLACES]
    }

    fn share(&self, slot: usize, place: usize) -> &Share {
        self.slots[slot % SLOTS].share(place)
    }
}

/// Takes off as much as there is, and says how much that was: a slot may have been emptied by somebody who took us for dead. Who
/// sees what this leaves sees all that was done before, so that room is never found before less is held.
fn lower(counter: &AtomicU64, size: u64) -> u64 {
    let less = |bytes: u64| Some(bytes.saturating_sub(size));
    let (Ok(before) | Err(before)) = counter.fetch_update(Release, Relaxed, less);
    before.min(size)
}

/// An empty one, without limits.
impl Default for Tree {
    fn default() -> Self {
        Self {
            cards: array::from_fn(|_| TreeCard::default()),
            used: AtomicU64::default(),
            slots: array::from_fn(|_| Slot {
                owner: AtomicU64::default(),
                space: AtomicU64::default(),
                shares: array::from_fn(|_| Share::default()),
            }),
        }
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<TreeCard>() == 24 && size_of::<Share>() == 16);
    assert!(core::mem::offset_of!(Tree, used) == 24 * CARDS);
    assert!(size_of::<Slot>() == 320 && core::mem::offset_of!(Tree, slots) == 448);
    assert!(size_of::<Tree>() == 448 + 320 * SLOTS);
};
