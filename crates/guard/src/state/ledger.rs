//! The budget, which is the tree's: this process's slot in the ledger that it shares with all that the same command started.
//!
//! The ledger lies beside the pages, so it is found the way they are; a process takes a slot when guard arms itself, and none
//! before. One that gets no slot says so, and like one without a folder counts in a ledger of its own and keeps to its budget
//! alone. Nothing is tidied up at the end, because ends are sudden: who is gone is found out by those who remain, always when a
//! claim fails, and, but not within ten milliseconds again, when somebody asks how much is left or a sum is to become the peak.

use alloc::boxed::Box;
use core::fmt::Write;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64};

use plimsoll_wire::env;
use plimsoll_wire::options::Options;
use plimsoll_wire::page::{CARDS, UNLIMITED};
use plimsoll_wire::tree::{Claim, FILE, Owner, SLOTS, Tree, key};

use super::file::{self, errno};
use super::{CardIndex, card, living, uuid};
use crate::arm;
use crate::clock;
use crate::say::say;
use crate::text::Text;

/// Between two looks for the dead where nothing has failed, in nanoseconds: a look is some microseconds a neighbour.
const LOOKS: u64 = 10_000_000;
/// Tries of a claim that others' claims cross: each is over in well under a microsecond.
const TRIES: u32 = 64;

/// Our part of a ledger.
#[derive(Debug)]
struct Seat {
    tree: &'static Tree,
    me: Owner,
    space: u64,
    slot: usize,
    /// Where the ledger has each card of ours.
    places: [usize; CARDS],
}

static SEAT: AtomicPtr<Seat> = AtomicPtr::new(null_mut());

/// Takes a slot; false, and said, if there is no memory for any ledger. The page has its cards.
pub(super) fn join(options: &Options) -> bool {
    let folder = arm::variable(env::GUARD_PAGES).and_then(|folder| folder.to_str().ok());
    let seat = folder.and_then(shared).or_else(alone);
    let Some(seat) = seat else {
        say!("no memory for a ledger; this process runs unguarded");
        return false;
    };
    for index in CardIndex::all() {
        if let Some(budget) = options.budget_of(&uuid(card(index))) {
            seat.tree.say_budget(seat.place(index), budget);
        }
    }
    SEAT.store(Box::into_raw(Box::new(seat)), Release);
    true
}

/// A slot in the ledger of this folder; why there is none is said.
fn shared(folder: &str) -> Option<Seat> {
    let mut path = Text::new();
    // What is too long is cut, and cannot be opened.
    let _ = write!(path, "{folder}/{FILE}");
    let Some(tree) = path.as_c().and_then(file::ledger) else {
        say!(
            "cannot share a ledger in {folder} (error {}); this process keeps to its budget alone",
            errno()
        );
        return None;
    };
    let seat = Seat::take(tree);
    if seat.is_none() {
        say!(
            "this run has {SLOTS} processes or {CARDS} other cards in its ledger already; this process keeps to its budget alone"
        );
    }
    seat
}

/// A slot in a ledger of our own.
fn alone() -> Option<Seat> {
    Seat::take(file::private()?)
}

impl Seat {
    fn take(tree: &'static Tree) -> Option<Self> {
        let mut places = [0; CARDS];
        for (place, index) in places.iter_mut().zip(CardIndex::all()) {
            *place = tree.place(key(uuid(card(index)), index.number()))?;
        }
        let (me, space) = (living::me(), living::space());
        let slot = tree.enter(me, space, |other, theirs| {
            theirs == space && living::is_gone(other)
        })?;
        Some(Self {
            tree,
            me,
            space,
            slot,
            places,
        })
    }

    fn place(&self, index: CardIndex) -> usize {
        self.places[usize::from(index.number()) % CARDS]
    }

    /// Empties the slots of the dead; whether there were any.
    fn sweep(&self) -> bool {
        // Numbers of another name space are not ours to judge.
        let is_gone = |other, space| space == self.space && living::is_gone(other);
        self.tree.is_shared(self.me) && self.tree.sweep(self.me, is_gone)
    }

    fn claim(&self, place: usize, size: u64) -> bool {
        for tries in 0..TRIES {
            match self.tree.claim(self.slot, place, size) {
                Claim::Granted => return true,
                Claim::Full if self.sweep() => {}
                Claim::Full => return false,
                Claim::Crossed => pause(tries),
            }
        }
        false
    }

    /// Empties the slots of the dead, but not again at once.
    fn sweep_at_times(&self) {
        static LOOKED: AtomicU64 = AtomicU64::new(0);
        if self.tree.is_shared(self.me) {
            let now = clock::now();
            if now.saturating_sub(LOOKED.load(Relaxed)) > LOOKS {
                LOOKED.store(now, Relaxed);
                self.sweep();
            }
        }
    }

    fn raise_peak(&self, place: usize) {
        self.tree.raise_peak(place, || self.sweep_at_times());
    }
}

/// Lets those pass whose claims crossed ours. The clock's last digits see to it that no two wait equally long for ever.
#[cold]
fn pause(tries: u32) {
    const LONGEST: u32 = 10;
    for _ in 0..clock::now() % (16 << tries.min(LONGEST)) {
        core::hint::spin_loop();
    }
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::sched_yield() };
}

/// None until guard arms itself, which is before anything is counted.
fn seat() -> Option<&'static Seat> {
    // SAFETY: null, or a seat that was leaked.
    unsafe { SEAT.load(Acquire).as_ref() }
}

/// Takes `size` bytes of the budget; false, and nothing taken, if they would pass it. Once the driver has given them [`confirm`]
/// counts them as held; else [`take_back`] gives them back. Never lets two pass the budget together.
pub(crate) fn take(index: CardIndex, size: u64) -> bool {
    seat().is_none_or(|seat| seat.claim(seat.place(index), size))
}

pub(crate) fn take_back(index: CardIndex, size: u64) {
    if let Some(seat) = seat() {
        seat.tree.take_back(seat.slot, seat.place(index), size);
    }
}

pub(crate) fn confirm(index: CardIndex, size: u64) {
    hold(index, size, Tree::confirm);
}

/// Takes `size` bytes whether the budget has them or not: they are a fact already, as a context is.
pub(crate) fn charge(index: CardIndex, size: u64) {
    hold(index, size, Tree::charge);
}

/// Counts `size` bytes more on the page, and in the ledger as `count` does.
fn hold(index: CardIndex, size: u64, count: impl FnOnce(&Tree, usize, usize, u64)) {
    card(index).add(size);
    if let Some(seat) = seat() {
        let place = seat.place(index);
        count(seat.tree, seat.slot, place, size);
        seat.raise_peak(place);
    }
}

/// Gives back `size` bytes of what is held, never below none.
pub(crate) fn give(index: CardIndex, size: u64) {
    card(index).remove(size);
    if let Some(seat) = seat() {
        seat.tree.give(seat.slot, seat.place(index), size);
    }
}

/// What the tree may take of a card; [`UNLIMITED`] for no limit. The daemon may change it at any time.
pub(crate) fn budget(index: CardIndex) -> u64 {
    seat().map_or(UNLIMITED, |seat| seat.tree.budget(seat.place(index)))
}

/// What the budget still has; [`UNLIMITED`] without one.
pub(crate) fn headroom(index: CardIndex) -> u64 {
    seat().map_or(UNLIMITED, |seat| {
        let place = seat.place(index);
        if seat.tree.budget(place) != UNLIMITED {
            seat.sweep_at_times();
        }
        seat.tree.headroom(place)
    })
}

/// What the tree holds of a card.
pub(crate) fn held(index: CardIndex) -> u64 {
    seat().map_or(0, |seat| seat.tree.held(seat.place(index)))
}

/// What each other process of the tree holds of a card, with its number.
pub(crate) fn others(index: CardIndex) -> impl Iterator<Item = (u32, u64)> {
    seat().into_iter().flat_map(move |seat| {
        seat.sweep();
        let others = seat.tree.holders(seat.place(index));
        others
            .filter(|(owner, _)| *owner != seat.me)
            .map(|(owner, held)| (owner.process(), held))
    })
}
