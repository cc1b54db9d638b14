//! Slots, and whose they are.
//!
//! A slot is free, a process's, or in the hands of a process that empties it for a dead one: then it bears the name of that process,
//! with a mark, so that nobody takes it before it is empty, and so that it is not lost if that process dies over it.

use super::{Owner, PLACES, SLOTS, Share, Slot, Tree};
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

const FREE: u64 = 0;
/// The owner empties the slot and is not in it.
const EMPTYING: u64 = 1 << 63;

impl Tree {
    /// A slot for this process: the one that it had before it became another program, or a new one. `None` if all are taken by
    /// processes that live.
    pub fn enter(&self, me: Owner, space: u64, is_gone: impl Fn(Owner, u64) -> bool) -> Option<usize> {
        let mut mine = None;
        for (index, slot) in self.slots().iter().enumerate() {
            let word = slot.owner.load(Acquire);
            // What the earlier program held went with it, and what it was emptying is nobody's.
            if owner(word) == Some(me) {
                slot.empty();
                if word == me.word() {
                    mine = Some(index);
                } else {
                    slot.owner.store(FREE, Release);
                }
            }
        }
        self.sweep(me, is_gone);
        let index = mine.or_else(|| self.slots.iter().zip(1..).position(|slot| self.takes(me, slot)))?;
        self.slots[index % SLOTS].space.store(space, Relaxed);
        Some(index)
    }

    fn takes(&self, me: Owner, (slot, number): (&Slot, u64)) -> bool {
        if slot.owner.load(Acquire) != FREE {
            return false;
        }
        // Whoever sums must look at it before there is anything in it.
        self.used.fetch_max(number, Relaxed);
        let taken = slot.owner.compare_exchange(FREE, me.word(), AcqRel, Relaxed);
        taken.is_ok()
    }

    /// Empties the slots of processes that are gone by `is_gone`, which is told the name space of their numbers; whether there
    /// were any.
    pub fn sweep(&self, me: Owner, is_gone: impl Fn(Owner, u64) -> bool) -> bool {
        let mut swept = false;
        for slot in self.slots() {
            let word = slot.owner.load(Acquire);
            let other = owner(word).filter(|owner| *owner != me);
            if other.is_some_and(|other| is_gone(other, slot.space.load(Relaxed))) {
                let mark = me.word() | EMPTYING;
                if slot.owner.compare_exchange(word, mark, AcqRel, Relaxed).is_ok() {
                    slot.empty();
                    slot.owner.store(FREE, Release);
                    swept = true;
                }
            }
        }
        swept
    }

    /// Whether anybody else has a slot.
    pub fn is_shared(&self, me: Owner) -> bool {
        let mut words = self.slots().iter().map(|slot| slot.owner.load(Acquire));
        words.any(|word| owner(word).is_some_and(|owner| owner != me))
    }

    /// What each process holds of a card.
    pub fn holders(&self, place: usize) -> impl Iterator<Item = (Owner, u64)> {
        let slots = self.slots().iter();
        slots.filter_map(move |slot| {
            let owner = owner(slot.owner.load(Acquire))?;
            Some((owner, slot.share(place).held.load(Relaxed)))
        })
    }

    /// Those that were ever taken.
    pub(super) fn slots(&self) -> &[Slot] {
        let used = usize::try_from(self.used.load(Relaxed)).unwrap_or(SLOTS);
        &self.slots[..used.min(SLOTS)]
    }
}

impl Slot {
    pub(super) fn share(&self, place: usize) -> &Share {
        &self.shares[place % PLACES]
    }

    fn empty(&self) {
        self.space.store(0, Relaxed);
        for share in &self.shares {
            share.held.store(0, Relaxed);
            share.claimed.store(0, Relaxed);
        }
    }
}

/// Whose name stands there; `None` for nobody's.
fn owner(word: u64) -> Option<Owner> {
    (word != FREE).then(|| Owner::of(word & !EMPTYING))
}
