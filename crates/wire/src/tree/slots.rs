//! Assigns the entries of the shared budget ledger to the processes of one command.
//!
//! Each process owns one slot. A slot whose owner has ended is emptied by another process.

use super::{CardShare, PLACES, ProcessSlot, SLOTS, SlotOwner, TreeLedger};
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

const FREE: u64 = 0;
// Meanwhile the slot has the identity of the emptying process, so it is not lost if that process is killed.
/// The owner empties the slot and is not in it.
const EMPTYING: u64 = 1 << 63;

impl TreeLedger {
    /// Takes a slot for this process: the one that it had before `exec`, or a new one. `None` if living
    /// processes have all.
    pub fn enter(
        &self,
        me: SlotOwner,
        space: u64,
        is_gone: impl Fn(SlotOwner, u64) -> bool,
    ) -> Option<usize> {
        let mut mine = None;
        for (index, slot) in self.slots().iter().enumerate() {
            let word = slot.owner.load(Acquire);
            // The memory of the earlier program went with it, and a slot that it was emptying has no owner.
            // The same number and start time: this process before `exec`, or a slot that it was emptying.
            if owner(word) == Some(me) {
                // Emptied before it is free: a process that takes it starts from zero.
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

    fn takes(&self, me: SlotOwner, (slot, number): (&ProcessSlot, u64)) -> bool {
        if slot.owner.load(Acquire) != FREE {
            return false;
        }
        // Before the slot is taken: a sum must cover it from its first byte on.
        self.used.fetch_max(number, Relaxed);
        // Acquire: the zeroes of the process that emptied the slot are visible before our first claim.
        let taken = slot.owner.compare_exchange(FREE, me.word(), AcqRel, Relaxed);
        taken.is_ok()
    }

    /// Empties the slots of processes that have ended by `is_gone`, which gets the namespace of their
    /// numbers; true if there were any.
    pub fn sweep(&self, me: SlotOwner, is_gone: impl Fn(SlotOwner, u64) -> bool) -> bool {
        let mut swept = false;
        for slot in self.slots() {
            let word = slot.owner.load(Acquire);
            let other = owner(word).filter(|owner| *owner != me);
            if other.is_some_and(|other| is_gone(other, slot.space.load(Relaxed))) {
                // By compare-and-swap: of several processes that find the owner gone, one empties the slot.
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

    /// True if another process has a slot.
    pub fn is_shared(&self, me: SlotOwner) -> bool {
        let mut words = self.slots().iter().map(|slot| slot.owner.load(Acquire));
        words.any(|word| owner(word).is_some_and(|owner| owner != me))
    }

    /// Each process with the bytes of a card that it holds.
    pub fn holders(&self, place: usize) -> impl Iterator<Item = (SlotOwner, u64)> {
        let slots = self.slots().iter();
        slots.filter_map(move |slot| {
            let owner = owner(slot.owner.load(Acquire))?;
            Some((owner, slot.share(place).occupied.load(Relaxed)))
        })
    }

    /// The slots that were ever taken; the others need not be examined.
    pub(super) fn slots(&self) -> &[ProcessSlot] {
        // The file may be damaged or hostile: the bound is checked, not trusted.
        let used = usize::try_from(self.used.load(Relaxed)).unwrap_or(SLOTS);
        &self.slots[..used.min(SLOTS)]
    }
}

impl ProcessSlot {
    pub(super) fn share(&self, place: usize) -> &CardShare {
        &self.shares[place % PLACES]
    }

    fn empty(&self) {
        self.space.store(0, Relaxed);
        for share in &self.shares {
            share.occupied.store(0, Relaxed);
            share.claimed.store(0, Relaxed);
        }
    }
}

/// The process in a word of a slot; `None` for a free slot.
fn owner(word: u64) -> Option<SlotOwner> {
    (word != FREE).then(|| SlotOwner::of(word & !EMPTYING))
}
