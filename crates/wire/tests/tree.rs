//! Tests of the budget ledger that processes of one command share, against a simple model, and with threads
//! in place of processes.
#![cfg(not(loom))]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use plimsoll_wire::page::{CARDS, UNLIMITED};
use plimsoll_wire::tree::{ClaimResult, SLOTS, SlotOwner, TreeLedger, key};
use proptest::collection::vec;
use proptest::prelude::*;

const CARD: usize = 3;

/// All are alive.
fn none(_: SlotOwner, _: u64) -> bool {
    false
}

#[derive(Clone, Debug)]
enum Step {
    ClaimResult(u32, u64),
    /// The driver refuses it.
    Vain(u32, u64),
    Charge(u32, u64),
    Give(u32, u64),
    Die(u32),
    /// It becomes another program.
    Exec(u32),
    /// Somebody who comes later says another budget.
    Say(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (who, size) = (0..6_u32, 0..400_u64);
    prop_oneof![
        4 => (who.clone(), size.clone()).prop_map(|(who, size)| Step::ClaimResult(who, size)),
        1 => (who.clone(), size.clone()).prop_map(|(who, size)| Step::Vain(who, size)),
        1 => (who.clone(), 0..100_u64).prop_map(|(who, size)| Step::Charge(who, size)),
        3 => (who.clone(), size).prop_map(|(who, size)| Step::Give(who, size)),
        1 => who.clone().prop_map(Step::Die),
        1 => who.prop_map(Step::Exec),
        1 => (0..1500_u64).prop_map(Step::Say),
    ]
}

/// Processes that live, by their number; each life has its own start.
#[derive(Default)]
struct Model {
    lives: u64,
    living: BTreeMap<u32, (SlotOwner, usize, u64)>,
    peak: u64,
}

impl Model {
    fn is_gone(&self, owner: SlotOwner) -> bool {
        !self.living.values().any(|(living, _, _)| *living == owner)
    }

    /// The slot of a process, which begins now if there is none.
    fn slot(&mut self, tree: &TreeLedger, number: u32) -> (SlotOwner, usize) {
        if let Some((owner, slot, _)) = self.living.get(&number) {
            return (*owner, *slot);
        }
        self.lives += 1;
        let owner = SlotOwner::new(number, self.lives);
        let slot = tree.enter(owner, 1, |owner, _| self.is_gone(owner)).unwrap();
        self.living.insert(number, (owner, slot, 0));
        (owner, slot)
    }

    fn sum(&self) -> u64 {
        self.living.values().map(|(_, _, occupied)| occupied).sum()
    }
}

proptest! {
    /// Whatever happens: what is granted is what fits beside the living, the dead hold nothing, and the peak
    /// is the largest sum.
    #[test]
    fn the_ledger_is_the_sum_of_the_living(steps in vec(step(), 1..60), budget in 0..1500_u64) {
        let (tree, mut model) = (TreeLedger::default(), Model::default());
        tree.say_budget(CARD, budget);
        for step in steps {
            match step {
                Step::ClaimResult(who, size) | Step::Vain(who, size) => {
                    let (me, slot) = model.slot(&tree, who);
                    let mut claim = tree.claim(slot, CARD, size);
                    if claim == ClaimResult::Full && tree.sweep(me, |owner, _| model.is_gone(owner)) {
                        claim = tree.claim(slot, CARD, size);
                    }
                    let fits = model.sum() + size <= budget;
                    prop_assert_eq!(claim, if fits { ClaimResult::Granted } else { ClaimResult::Full });
                    match step {
                        Step::ClaimResult(..) if fits => {
                            tree.confirm(slot, CARD, size);
                            model.living.get_mut(&who).unwrap().2 += size;
                        }
                        _ if fits => tree.take_back(slot, CARD, size),
                        _ => {}
                    }
                }
                Step::Charge(who, size) => {
                    let (_, slot) = model.slot(&tree, who);
                    tree.charge(slot, CARD, size);
                    model.living.get_mut(&who).unwrap().2 += size;
                }
                Step::Give(who, size) => {
                    let (_, slot) = model.slot(&tree, who);
                    tree.give(slot, CARD, size);
                    let occupied = &mut model.living.get_mut(&who).unwrap().2;
                    *occupied = occupied.saturating_sub(size);
                }
                Step::Die(who) => { model.living.remove(&who); }
                Step::Exec(who) => {
                    let (me, slot) = model.slot(&tree, who);
                    prop_assert_eq!(tree.enter(me, 1, |owner, _| model.is_gone(owner)), Some(slot));
                    model.living.get_mut(&who).unwrap().2 = 0;
                }
                Step::Say(other) => {
                    tree.say_budget(CARD, other);
                    prop_assert_eq!(tree.budget(CARD), budget, "it was said before");
                }
            }
            tree.sweep(SlotOwner::new(99, 1), |owner, _| model.is_gone(owner));
            tree.raise_peak(CARD, || ());
            model.peak = model.peak.max(model.sum());
            prop_assert_eq!((tree.claimed(CARD), tree.occupied(CARD)), (model.sum(), model.sum()));
            prop_assert_eq!(tree.peak(CARD), model.peak);
            prop_assert_eq!(tree.headroom(CARD), budget.saturating_sub(model.sum()));
            prop_assert_eq!(tree.claimed(CARD - 1), 0, "another card has nothing of it");
        }
    }
}

#[test]
fn many_that_claim_at_once_never_pass_the_budget_and_somebody_is_always_served() {
    const BUDGET: u64 = 1000;
    const TIMES: u32 = if cfg!(miri) { 10 } else { 2000 };
    let (tree, granted) = (TreeLedger::default(), AtomicU64::new(0));
    tree.say_budget(CARD, BUDGET);
    std::thread::scope(|scope| {
        for number in 0..4_u32 {
            let (tree, granted) = (&tree, &granted);
            scope.spawn(move || {
                let slot = tree.enter(SlotOwner::new(number + 1, 1), 1, none).unwrap();
                let size = 300 + u64::from(number);
                let mut served = 0;
                while served < TIMES {
                    if tree.claim(slot, CARD, size) == ClaimResult::Granted {
                        assert!(granted.fetch_add(size, SeqCst) + size <= BUDGET);
                        tree.confirm(slot, CARD, size);
                        granted.fetch_sub(size, SeqCst);
                        tree.give(slot, CARD, size);
                        served += 1;
                    } else {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    assert_eq!((tree.claimed(CARD), tree.occupied(CARD)), (0, 0));
}

#[test]
fn a_full_ledger_takes_nobody_in_until_somebody_is_gone() {
    let tree = TreeLedger::default();
    let number = |index: usize| u32::try_from(index + 1).unwrap();
    for index in 0..SLOTS {
        assert_eq!(tree.enter(SlotOwner::new(number(index), 1), 1, none), Some(index));
    }
    let late = SlotOwner::new(4_000_000, 1);
    assert_eq!(tree.enter(late, 1, none), None);
    assert!(tree.is_shared(late));
    let seventh = SlotOwner::new(7, 1);
    assert_eq!(tree.enter(late, 1, |owner, _| owner == seventh), Some(6));
}

#[test]
fn nobody_is_judged_by_a_number_of_another_name_space() {
    let tree = TreeLedger::default();
    let (me, other) = (SlotOwner::new(1, 1), SlotOwner::new(2, 1));
    let slot = tree.enter(other, 88, none).unwrap();
    tree.charge(slot, CARD, 5);
    let is_gone = |_, space| space == 77;
    tree.enter(me, 77, is_gone).unwrap();
    assert!(!tree.sweep(me, is_gone));
    assert_eq!(tree.occupied(CARD), 5);
    let holders: Vec<_> = tree.holders(CARD).collect();
    assert_eq!(holders, [(other, 5), (me, 0)]);
}

#[test]
fn swept_owner_still_alive_releases_at_most_the_current_total() {
    let tree = TreeLedger::default();
    tree.say_budget(CARD, 100);
    let slot = tree.enter(SlotOwner::new(1, 1), 1, none).unwrap();
    assert_eq!(tree.claim(slot, CARD, 60), ClaimResult::Granted);
    tree.charge(slot, CARD, 30);
    assert!(tree.sweep(SlotOwner::new(2, 1), |_, _| true));
    tree.take_back(slot, CARD, 60);
    tree.give(slot, CARD, 30);
    assert_eq!((tree.claimed(CARD), tree.occupied(CARD)), (0, 0));
    assert_eq!(tree.claim(slot, CARD, 100), ClaimResult::Granted);
}

#[test]
fn an_owner_is_its_number_and_its_start() {
    let owner = SlotOwner::new(4_194_303, 12_345_678_901);
    assert_eq!(owner.process(), 4_194_303);
    assert!(owner.can_be(12_345_678_901) && !owner.can_be(12_345_678_902));
    assert!(SlotOwner::new(5, 0).can_be(9), "a start that is not known");
}

#[test]
fn cards_have_places_by_their_keys_and_as_many_as_there_is_room_for() {
    let tree = TreeLedger::default();
    let keys: Vec<u64> = (0..u8::try_from(CARDS).unwrap()).map(|number| key([0; 16], number)).collect();
    let places: Vec<_> = keys.iter().map(|key| tree.place(*key)).collect();
    assert_eq!(places, (0..CARDS).map(Some).collect::<Vec<_>>());
    assert_eq!(tree.place(keys[4]), Some(4));
    assert_eq!(tree.place(key([9; 16], 0)), tree.place(key([8; 16], 0)), "no room");
    let uuid = std::array::from_fn(|index| u8::try_from(index).unwrap());
    assert_eq!(key(uuid, 0), key(uuid, 7), "a UUID is the same in every process");
    assert_eq!(tree.budget(0), UNLIMITED);
}

#[test]
fn an_impossible_claim_takes_nothing_from_the_others() {
    let tree = TreeLedger::default();
    let slot = tree.enter(SlotOwner::new(1, 1), 1, none).unwrap();
    assert_eq!(tree.claim(slot, CARD, 300), ClaimResult::Granted);
    tree.confirm(slot, CARD, 300);
    // Without a budget every claim is granted, and the driver refuses what no card has.
    for _ in 0..2 {
        assert_eq!(tree.claim(slot, CARD, u64::MAX), ClaimResult::Granted);
        assert!(tree.claimed(CARD) > 300);
    }
    tree.take_back(slot, CARD, u64::MAX);
    tree.take_back(slot, CARD, u64::MAX);
    assert_eq!((tree.claimed(CARD), tree.occupied(CARD)), (300, 300));
    tree.say_budget(CARD, 400);
    assert_eq!(tree.claim(slot, CARD, u64::MAX), ClaimResult::Full);
    assert_eq!(tree.claim(slot, CARD, 101), ClaimResult::Full);
    assert_eq!(tree.claim(slot, CARD, 100), ClaimResult::Granted);
}
