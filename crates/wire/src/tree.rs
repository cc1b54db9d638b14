//! Shares one memory budget among a program and its child processes, through a ledger in a shared file.

use core::array;
use core::mem::size_of;

use crate::page::{CARDS, UNLIMITED};
use crate::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sync::{AtomicU64, fence};

mod owner;
mod slots;
mod snapshot;

pub use owner::SlotOwner;
pub use snapshot::{TreeCardSnapshot, TreeSnapshot};

/// Name of the ledger in the folder of the pages; it changes with the layout.
pub const FILE: &str = "tree.1";
/// Processes of one tree that can use cards at a time; few under loom and miri, which try every order of a
/// few events.
pub const SLOTS: usize = match (cfg!(loom), cfg!(miri)) {
    (true, _) => 2,
    (_, true) => 8,
    _ => 256,
};
/// Cards of a slot; loom counts atomics.
const PLACES: usize = if cfg!(loom) { 1 } else { CARDS };

// A file of zeroes is an empty ledger. `tests/loom.rs` tries all orders of events.
//
// DECISION: the ledger has one slot for each process and no common sum, because a sum cannot be repaired
// after a kill. Any process that finds a slot's owner dead empties the slot.
//
// DECISION: a claim adds its bytes to its own slot, then sums all slots, and subtracts its bytes if the sum
// is too large. A fence between the addition and the sum ensures that the budget is never exceeded, without a
// lock.
/// Layout of the budget ledger.
#[repr(C)]
#[derive(Debug)]
pub struct TreeLedger {
    cards: [TreeCard; PLACES],
    /// Slots that were ever taken: no other needs to be looked at.
    used: AtomicU64,
    slots: [ProcessSlot; SLOTS],
}

/// Budget and peak of one card; processes may number the card differently.
#[repr(C)]
#[derive(Debug, Default)]
struct TreeCard {
    /// [`key`] of the card; 0 for a free place.
    key: AtomicU64,
    /// The tree's budget plus one; 0 before it is set.
    budget: AtomicU64,
    /// The most bytes that living processes held at a time.
    peak: AtomicU64,
}

/// Slot of one process in the ledger.
#[repr(C, align(64))]
#[derive(Debug)]
struct ProcessSlot {
    /// An [`SlotOwner`], or 0.
    owner: AtomicU64,
    /// PID namespace of the owner's number; 0 until it is set.
    space: AtomicU64,
    shares: [CardShare; PLACES],
}

/// Bytes of one process on one card.
#[repr(C)]
#[derive(Debug, Default)]
struct CardShare {
    /// Bytes that are held, and bytes that the driver was called for and has not given yet.
    claimed: AtomicU64,
    occupied: AtomicU64,
}

/// Maximum bytes counted for one claim: more than any card has, and so little that the sum of a process's
/// claims cannot overflow. A program may request any number of bytes, and without a budget only the driver
/// refuses.
const MOST: u64 = 1 << 48;

/// Result of a claim on the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    Granted,
    /// The budget is too small for it.
    Full,
    /// It did not fit together with another claim that may still be withdrawn, so another attempt is
    /// worthwhile.
    Crossed,
}

/// Name of a card that is the same in every process of a tree: its UUID, or its number if the driver has no
/// UUID.
pub fn key(uuid: [u8; 16], number: u8) -> u64 {
    let (halves, _) = uuid.as_chunks::<8>();
    let folded = halves.iter().fold(0, |key, half| key ^ u64::from_le_bytes(*half));
    // A driver without UUIDs reports zeroes; 0 is the mark of a free place and must not become a key.
    if folded == 0 { u64::from(number) + 1 } else { folded }
}

/// Representation of a budget in the ledger.
pub const fn budget_word(budget: u64) -> u64 {
    budget.saturating_add(1)
}

/// The budget that a word of the ledger represents.
const fn read_budget(word: u64) -> u64 {
    match word {
        0 | u64::MAX => UNLIMITED,
        word => word - 1,
    }
}

impl TreeLedger {
    pub const SIZE: usize = size_of::<Self>();

    /// Index of the card with this key, assigned at the first call; `None` if all are used.
    pub fn place(&self, key: u64) -> Option<usize> {
        self.cards.iter().position(|card| {
            let before = card.key.compare_exchange(0, key, Relaxed, Relaxed);
            before.is_ok() || before == Err(key)
        })
    }

    /// Sets the budget of a card, unless it is set already.
    pub fn say_budget(&self, place: usize, budget: u64) {
        // The first process of a tree sets it; all others were started with the same option, or the daemon
        // has changed it since.
        let word = &self.card(place).budget;
        let _ = word.compare_exchange(0, budget_word(budget), Relaxed, Relaxed);
    }

    /// The budget of a card; [`UNLIMITED`] without one.
    pub fn budget(&self, place: usize) -> u64 {
        read_budget(self.card(place).budget.load(Relaxed))
    }

    /// Claims `size` bytes of a card for the owner of a slot. A granted claim must be confirmed or taken
    /// back.
    pub fn claim(&self, slot: usize, place: usize, size: u64) -> ClaimResult {
        let counted = size.min(MOST);
        let claimed = &self.share(slot, place).claimed;
        // Read once: a budget that changes during the claim counts for the next one.
        let budget = self.budget(place);
        if budget == UNLIMITED {
            claimed.fetch_add(counted, Relaxed);
            return ClaimResult::Granted;
        }
        // Before the addition: a claim that cannot be granted must not make others fail that could be.
        let sum = self.claimed(place).checked_add(size);
        if sum.is_none_or(|sum| sum > budget) {
            return ClaimResult::Full;
        }
        claimed.fetch_add(counted, Relaxed);
        // Between the addition and the sum, on both sides: of two claims that cross, at least one sees the
        // other (store buffering).
        fence(SeqCst);
        if self.claimed(place) <= budget {
            return ClaimResult::Granted;
        }
        lower(claimed, counted);
        ClaimResult::Crossed
    }

    /// Takes back a claim that the driver refused.
    pub fn take_back(&self, slot: usize, place: usize, size: u64) {
        lower(&self.share(slot, place).claimed, size.min(MOST));
    }

    /// Counts a claim as held.
    pub fn confirm(&self, slot: usize, place: usize, size: u64) {
        self.share(slot, place).occupied.fetch_add(size.min(MOST), Relaxed);
    }

    /// Counts `size` bytes as held whether the budget has them or not: they exist already, as a context does.
    pub fn charge(&self, slot: usize, place: usize, size: u64) {
        self.share(slot, place).claimed.fetch_add(size.min(MOST), Relaxed);
        self.confirm(slot, place, size);
    }

    /// Gives back `size` held bytes; saturates at zero.
    pub fn give(&self, slot: usize, place: usize, size: u64) {
        let share = self.share(slot, place);
        // Only what was held: a slot that was emptied meanwhile has nothing to return.
        let given = lower(&share.occupied, size.min(MOST));
        lower(&share.claimed, given);
    }

    /// Bytes of a card that all processes have claimed.
    pub fn claimed(&self, place: usize) -> u64 {
        self.sum(place, |share| &share.claimed)
    }

    /// Bytes of a card that all processes hold.
    pub fn occupied(&self, place: usize) -> u64 {
        self.sum(place, |share| &share.occupied)
    }

    /// Unclaimed bytes of a card's budget; [`UNLIMITED`] without one.
    pub fn headroom(&self, place: usize) -> u64 {
        match self.budget(place) {
            UNLIMITED => UNLIMITED,
            budget => budget.saturating_sub(self.claimed(place)),
        }
    }

    /// The most bytes of a card that living processes held at a time.
    pub fn peak(&self, place: usize) -> u64 {
        self.card(place).peak.load(Relaxed)
    }

    /// Raises the peak to the memory held now. Before that, `sweep` may empty the slots of processes that
    /// have ended.
    ///
    /// A sum that is taken while bytes move from one process to another may count them twice. So the sum is
    /// repeated until it is the same twice, or the smallest of a few sums is used.
    pub fn raise_peak(&self, place: usize, sweep: impl FnOnce()) {
        const SUMS: usize = 4;
        // Orders the caller's own addition before the sums.
        fence(SeqCst);
        if self.occupied(place) <= self.peak(place) {
            return;
        }
        sweep();
        let mut least = self.occupied(place);
        for _ in 0..SUMS {
            let again = self.occupied(place);
            if again == least {
                break;
            }
            least = least.min(again);
        }
        // Never lowered: the peak is the figure that remains when all processes have ended.
        self.card(place).peak.fetch_max(least, Relaxed);
    }

    fn sum(&self, place: usize, of: impl Fn(&CardShare) -> &AtomicU64) -> u64 {
        // Acquire pairs with the Release in `lower`: see there.
        let shares = self.slots().iter().map(|slot| slot.share(place));
        shares.fold(0, |sum, share| sum.saturating_add(of(share).load(Acquire)))
    }

    fn card(&self, place: usize) -> &TreeCard {
        // The remainder keeps a wrong number inside of the mapping; the crate may not panic in a foreign
        // process.
        &self.cards[place % PLACES]
    }

    fn share(&self, slot: usize, place: usize) -> &CardShare {
        self.slots[slot % SLOTS].share(place)
    }
}

/// Subtracts as much as there is, and returns how much that was: another process may have taken this one for
/// dead and emptied its slot. Release: a process that sees the smaller claim also sees the smaller held
/// figure, so that room is never found too early.
fn lower(counter: &AtomicU64, size: u64) -> u64 {
    let less = |bytes: u64| Some(bytes.saturating_sub(size));
    let (Ok(before) | Err(before)) = counter.fetch_update(Release, Relaxed, less);
    before.min(size)
}

/// An empty ledger without budgets.
impl Default for TreeLedger {
    fn default() -> Self {
        Self {
            cards: array::from_fn(|_| TreeCard::default()),
            used: AtomicU64::default(),
            slots: array::from_fn(|_| ProcessSlot {
                owner: AtomicU64::default(),
                space: AtomicU64::default(),
                shares: array::from_fn(|_| CardShare::default()),
            }),
        }
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<TreeCard>() == 24 && size_of::<CardShare>() == 16);
    assert!(core::mem::offset_of!(TreeLedger, used) == 24 * CARDS);
    assert!(size_of::<ProcessSlot>() == 320 && core::mem::offset_of!(TreeLedger, slots) == 448);
    assert!(size_of::<TreeLedger>() == 448 + 320 * SLOTS);
};
