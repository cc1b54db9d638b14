//! Model test of the budget ledger with loom: every order in which processes can use it.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test -p plimsoll-wire --test loom`.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use loom::sync::Arc;
use loom::thread;
use plimsoll_wire::tree::{ClaimResult, SlotOwner, TreeLedger};

const CARD: usize = 0;

fn process(number: u32) -> SlotOwner {
    SlotOwner::new(number, 7)
}

/// A ledger of two processes with a budget, and their slots.
fn two(budget: u64) -> (Arc<TreeLedger>, [usize; 2]) {
    let tree = Arc::new(TreeLedger::default());
    tree.say_budget(CARD, budget);
    let slots = [1, 2].map(|number| tree.enter(process(number), 1, |_, _| false).unwrap());
    (tree, slots)
}

/// Both claim at once; what each was told.
fn both(tree: &Arc<TreeLedger>, slots: [usize; 2], sizes: [u64; 2]) -> [ClaimResult; 2] {
    let other = Arc::clone(tree);
    let thread = thread::spawn(move || other.claim(slots[1], CARD, sizes[1]));
    let first = tree.claim(slots[0], CARD, sizes[0]);
    [first, thread.join().unwrap()]
}

#[test]
fn claims_that_fit_together_are_both_granted() {
    loom::model(|| {
        let (tree, slots) = two(6);
        assert_eq!(both(&tree, slots, [3, 3]), [ClaimResult::Granted; 2]);
        assert_eq!((tree.claimed(CARD), tree.headroom(CARD)), (6, 0));
    });
}

#[test]
fn two_never_pass_the_budget_and_nobody_finds_it_full_but_by_somebody_who_was_granted() {
    loom::model(|| {
        let (tree, slots) = two(5);
        let reported = both(&tree, slots, [3, 4]);
        let granted = reported.iter().filter(|claim| **claim == ClaimResult::Granted).count();
        assert!(granted < 2, "{reported:?}");
        assert!(granted == 1 || reported == [ClaimResult::Crossed; 2], "{reported:?}");
        let claimed = tree.claimed(CARD);
        assert!([0, 3, 4].contains(&claimed), "{claimed}");
        // Whoever is alone is served.
        let again = tree.claim(slots[0], CARD, 1);
        assert_eq!(again, ClaimResult::Granted, "{reported:?}");
    });
}

#[test]
fn a_claim_that_can_never_be_granted_stands_in_nobodys_way() {
    loom::model(|| {
        let (tree, slots) = two(5);
        assert_eq!(both(&tree, slots, [6, 5]), [ClaimResult::Full, ClaimResult::Granted]);
    });
}

#[test]
fn released_memory_is_claimable_by_another_slot_and_the_peak_is_concurrent() {
    loom::model(|| {
        let (tree, slots) = two(5);
        tree.charge(slots[0], CARD, 4);
        tree.raise_peak(CARD, || ());
        let other = Arc::clone(&tree);
        let thread = thread::spawn(move || {
            let claim = other.claim(slots[1], CARD, 3);
            if claim == ClaimResult::Granted {
                other.confirm(slots[1], CARD, 3);
                other.raise_peak(CARD, || ());
            }
            claim
        });
        tree.give(slots[0], CARD, 4);
        let granted = thread.join().unwrap() == ClaimResult::Granted;
        assert_eq!(tree.claimed(CARD), if granted { 3 } else { 0 });
        assert_eq!(tree.peak(CARD), 4);
    });
}

#[test]
fn new_owner_of_a_dead_slot_loses_nothing_to_a_concurrent_sweep() {
    loom::model(|| {
        let tree = Arc::new(TreeLedger::default());
        let dead = tree.enter(process(1), 1, |_, _| false).unwrap();
        tree.charge(dead, CARD, 5);
        let is_gone = |owner: SlotOwner, _| owner == process(1);
        let other = Arc::clone(&tree);
        let thread = thread::spawn(move || {
            other.sweep(process(3), is_gone);
        });
        let slot = tree.enter(process(2), 1, is_gone).unwrap();
        tree.charge(slot, CARD, 2);
        thread.join().unwrap();
        tree.sweep(process(2), is_gone);
        assert_eq!((tree.claimed(CARD), tree.occupied(CARD)), (2, 2));
    });
}
