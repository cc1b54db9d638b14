//! Records the memory that this process holds or has claimed in the ledger, a file through which all
//! processes of one command share a budget.
//!
//! Each process has a slot in the ledger. A process that gets no slot reports that and keeps a ledger of its
//! own.

use alloc::boxed::Box;
use core::fmt::Write;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

use plimsoll_wire::env;
use plimsoll_wire::options::GuardOptions;
use plimsoll_wire::page::{CARDS, UNLIMITED};
use plimsoll_wire::tree::{ClaimResult, FILE, SLOTS, SlotOwner, TreeLedger, key};

use super::shared_file::{self, errno};
use super::{CardIndex, card, liveness, uuid};
use crate::say::say;
use crate::text::Text;
use crate::{clock, process};

/// Nanoseconds between two sweeps where no claim has failed: a sweep costs some microseconds for each
/// process.
const SWEEPS: u64 = 10_000_000;
/// Attempts of a claim that collides with others: each is over in well under a microsecond.
const TRIES: u32 = 64;

// DECISION: a process cleans up nothing when it ends, because it may be killed at any moment. Other processes
// look for ended ones whenever a claim fails.
/// This process's slot in a ledger.
#[derive(Debug)]
struct LedgerSeat {
    tree: &'static TreeLedger,
    me: SlotOwner,
    space: u64,
    slot: usize,
    /// The ledger's place of each of our cards: processes may number cards differently.
    places: [AtomicUsize; CARDS],
}

static SEAT: AtomicPtr<LedgerSeat> = AtomicPtr::new(null_mut());

/// Takes a slot; false, after a line on stderr, if there is no memory for a ledger. The page must have its
/// cards.
pub(crate) fn join(options: &GuardOptions) -> bool {
    let folder = process::variable(env::GUARD_PAGES).and_then(|folder| folder.to_str().ok());
    let seat = folder.and_then(shared).or_else(alone);
    let Some(seat) = seat else {
        say!("cannot allocate memory for the ledger of allocations; this process runs unguarded");
        return false;
    };
    for index in CardIndex::all() {
        seat.say_budget(index, options);
    }
    SEAT.store(Box::into_raw(Box::new(seat)), Release);
    true
}

/// Gives one more card its place, before anything is counted on it; false if the ledger has none left.
pub(crate) fn admit(index: CardIndex, options: &GuardOptions) -> bool {
    let Some(seat) = seat() else { return false };
    let Some(place) = seat.tree.place(key(uuid(card(index)), index.number())) else {
        return false;
    };
    seat.places[index.place()].store(place, Relaxed);
    seat.say_budget(index, options);
    true
}

/// Takes a slot in the ledger of this folder, or reports why it cannot.
fn shared(folder: &str) -> Option<LedgerSeat> {
    let mut path = Text::new();
    // A path that is too long is cut, and cannot be opened.
    let _ = write!(path, "{folder}/{FILE}");
    let Some(tree) = path.as_c().and_then(shared_file::ledger) else {
        say!(
            "cannot share the ledger of allocations in {folder} (error {}); the budget applies to this \
            process alone",
            errno()
        );
        return None;
    };
    let seat = LedgerSeat::take(tree);
    if seat.is_none() {
        say!(
            "the shared ledger of allocations is full ({SLOTS} processes or {CARDS} other cards); the \
            budget applies to this process alone"
        );
    }
    seat
}

/// Takes a slot in a private ledger.
fn alone() -> Option<LedgerSeat> {
    LedgerSeat::take(shared_file::private()?)
}

impl LedgerSeat {
    fn take(tree: &'static TreeLedger) -> Option<Self> {
        let places = [const { AtomicUsize::new(0) }; CARDS];
        for (place, index) in places.iter().zip(CardIndex::all()) {
            place.store(tree.place(key(uuid(card(index)), index.number()))?, Relaxed);
        }
        let (me, space) = (liveness::me(), liveness::space());
        let slot = tree.enter(me, space, |other, theirs| theirs == space && liveness::is_gone(other))?;
        Some(Self { tree, me, space, slot, places })
    }

    fn place(&self, index: CardIndex) -> usize {
        self.places[index.place()].load(Relaxed)
    }

    fn say_budget(&self, index: CardIndex, options: &GuardOptions) {
        if let Some(budget) = options.budget_of(&uuid(card(index))) {
            self.tree.say_budget(self.place(index), budget);
        }
    }

    /// Empties the slots of processes that have ended; true if there were any.
    fn sweep(&self) -> bool {
        // Process numbers of another namespace mean nothing here, so its processes are never declared dead.
        let is_gone = |other, space| space == self.space && liveness::is_gone(other);
        self.tree.is_shared(self.me) && self.tree.sweep(self.me, is_gone)
    }

    fn claim(&self, place: usize, size: u64) -> bool {
        for tries in 0..TRIES {
            match self.tree.claim(self.slot, place, size) {
                ClaimResult::Granted => return true,
                ClaimResult::Full if self.sweep() => {}
                ClaimResult::Full => return false,
                ClaimResult::Crossed => pause(tries),
            }
        }
        false
    }

    /// Empties the slots of processes that have ended, but not again within [`SWEEPS`].
    fn sweep_at_times(&self) {
        static SWEPT: AtomicU64 = AtomicU64::new(0);
        if self.tree.is_shared(self.me) {
            let now = clock::now();
            if now.saturating_sub(SWEPT.load(Relaxed)) > SWEEPS {
                SWEPT.store(now, Relaxed);
                self.sweep();
            }
        }
    }

    fn raise_peak(&self, place: usize) {
        self.tree.raise_peak(place, || self.sweep_at_times());
    }
}

/// Waits briefly after a collision. The clock's last digits are the jitter: two processes must not collide in
/// step for ever.
#[cold]
fn pause(tries: u32) {
    // The range of the jitter doubles with every attempt, up to 16 << 10 spins.
    const LONGEST: u32 = 10;
    for _ in 0..clock::now() % (16 << tries.min(LONGEST)) {
        core::hint::spin_loop();
    }
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::sched_yield() };
}

/// None until guard arms itself, which is before anything is counted.
fn seat() -> Option<&'static LedgerSeat> {
    // SAFETY: null, or a seat that was leaked.
    unsafe { SEAT.load(Acquire).as_ref() }
}

/// Claims `size` bytes of the budget; false, and nothing claimed, if they would pass it. [`confirm`] then
/// counts them as held, or [`take_back`] returns them if the driver refuses. No two claims pass the budget
/// together.
pub(crate) fn take(index: CardIndex, size: u64) -> bool {
    seat().is_none_or(|seat| seat.claim(seat.place(index), size))
}

/// Returns a claim that the driver did not grant.
pub(crate) fn take_back(index: CardIndex, size: u64) {
    if let Some(seat) = seat() {
        seat.tree.take_back(seat.slot, seat.place(index), size);
    }
}

/// Counts a claim as held.
pub(crate) fn confirm(index: CardIndex, size: u64) {
    hold(index, size, TreeLedger::confirm);
}

/// Counts `size` bytes as held whether the budget has them or not: they exist already, as a context does.
pub(crate) fn charge(index: CardIndex, size: u64) {
    hold(index, size, TreeLedger::charge);
}

/// Adds `size` bytes to the page, and to the ledger by `count`.
fn hold(index: CardIndex, size: u64, count: impl FnOnce(&TreeLedger, usize, usize, u64)) {
    card(index).add(size);
    if let Some(seat) = seat() {
        let place = seat.place(index);
        count(seat.tree, seat.slot, place, size);
        seat.raise_peak(place);
    }
}

/// Gives back `size` held bytes; saturates at zero.
pub(crate) fn give(index: CardIndex, size: u64) {
    card(index).remove(size);
    if let Some(seat) = seat() {
        seat.tree.give(seat.slot, seat.place(index), size);
    }
}

/// The tree's budget on a card; [`UNLIMITED`] without one. The daemon may change it at any time.
pub(crate) fn budget(index: CardIndex) -> u64 {
    seat().map_or(UNLIMITED, |seat| seat.tree.budget(seat.place(index)))
}

/// Unclaimed bytes of the budget; [`UNLIMITED`] without one.
pub(crate) fn headroom(index: CardIndex) -> u64 {
    seat().map_or(UNLIMITED, |seat| {
        let place = seat.place(index);
        if seat.tree.budget(place) != UNLIMITED {
            seat.sweep_at_times();
        }
        seat.tree.headroom(place)
    })
}

/// Bytes of a card that the tree holds.
pub(crate) fn occupied(index: CardIndex) -> u64 {
    seat().map_or(0, |seat| seat.tree.occupied(seat.place(index)))
}

/// Process number and held bytes of each other process of the tree.
pub(crate) fn others(index: CardIndex) -> impl Iterator<Item = (u32, u64)> {
    seat().into_iter().flat_map(move |seat| {
        seat.sweep();
        let others = seat.tree.holders(seat.place(index));
        others.filter(|(owner, _)| *owner != seat.me).map(|(owner, occupied)| (owner.process(), occupied))
    })
}
