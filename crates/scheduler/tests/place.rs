//! Tests of the ledger, which records the memory granted to each engine, and of the choice between cards.
mod demands;

use std::sync::Arc;

use plimsoll_base::{
    Bytes, Card, CardId, CardKind, CardMaker, Counting, DeclaredSize, DividedSize, MemoryModel, NamedDemand,
    Placement, Reason, RunId, Share, UnknownSize,
};
use plimsoll_scheduler::CardLimit;
use plimsoll_scheduler::place::{
    AuditError, CardSet, CardStanding, CardTenant, ClaimError, LearnedNeed, Ledger, NeedAnswer, NeedAnswers,
    PlacementQuery, PlacementVerdict, Reservations, place,
};
use proptest::prelude::*;

fn id(name: &str) -> CardId {
    CardId::new(name)
}

fn limit(name: &str, gib: u64) -> CardLimit {
    let card = Card {
        id: id(name),
        kind: CardKind::Cuda,
        name: name.to_owned(),
        uuid: None,
        total: Bytes::gib(gib),
        free: Bytes::gib(gib),
        compute_capability: None,
        legacy_pool: false,
        shares_host: false,
        counting: Counting::Driver,
        maker: CardMaker::Nvidia,
        address: None,
    };
    CardLimit { card, budget: None, reserve: Bytes::ZERO }
}

fn ledger(cards: &[(&str, u64)]) -> Ledger {
    Ledger::new(cards.iter().map(|(name, gib)| limit(name, *gib)).collect())
}

fn on(card: &str, gib: u64) -> Placement {
    Placement { shares: vec![Share::new(id(card), Bytes::gib(gib))], alone: false }
}

fn whole(card: &str, gib: u64) -> Placement {
    Placement { alone: true, ..on(card, gib) }
}

fn holder() -> Arc<str> {
    "m".into()
}

fn read(ledger: &mut Ledger, card: &str, free: u64) {
    ledger.read(&[(id(card), Bytes::gib(free))]);
}

fn measure(ledger: &mut Ledger, run: u64, card: &str, gib: u64) {
    ledger.measure(RunId(run), &holder(), &[(id(card), Bytes::gib(gib))]);
}

fn free(ledger: &Ledger, card: &str) -> Bytes {
    ledger.account(&id(card)).unwrap().free()
}

fn foreign(ledger: &Ledger, card: &str) -> Bytes {
    ledger.account(&id(card)).unwrap().foreign()
}

#[test]
fn a_claim_that_does_not_fit_changes_nothing_on_any_card() {
    let mut ledger = ledger(&[("a", 10), ("b", 4)]);
    let mut both = on("a", 6);
    both.shares.extend(on("b", 6).shares);
    let refused = ledger.claim(RunId(1), &holder(), &both).unwrap_err();
    let (requested, free_there) = (Bytes::gib(6), Bytes::gib(4));
    assert_eq!(refused, ClaimError::OverCommit { card: id("b"), requested, free: free_there });
    assert_eq!(free(&ledger, "a"), Bytes::gib(10));
    assert_eq!(ledger.claim(RunId(1), &holder(), &on("c", 1)), Err(ClaimError::NoSuchCard { card: id("c") }));
}

#[test]
fn budget_reserve_and_strangers_limit_what_may_be_claimed() {
    let with = |budget: Option<u64>, reserve: u64, driver_free: u64| {
        let mut limit = limit("a", 24);
        limit.budget = budget.map(Bytes::gib);
        limit.reserve = Bytes::gib(reserve);
        limit.card.free = Bytes::gib(driver_free);
        free(&Ledger::new(vec![limit]), "a")
    };
    assert_eq!(with(None, 0, 24), Bytes::gib(24));
    assert_eq!(with(None, 2, 20), Bytes::gib(18));
    assert_eq!(with(Some(10), 2, 20), Bytes::gib(10));
    assert_eq!(with(Some(10), 2, 5), Bytes::gib(3));
    assert_eq!(with(None, 4, 2), Bytes::ZERO);
}

#[test]
fn memory_of_a_loading_run_is_not_foreign() {
    let mut ledger = ledger(&[("a", 24)]);
    ledger.claim(RunId(1), &holder(), &on("a", 10)).unwrap();
    read(&mut ledger, "a", 20);
    assert_eq!(foreign(&ledger, "a"), Bytes::ZERO);
    read(&mut ledger, "a", 12);
    assert_eq!(foreign(&ledger, "a"), Bytes::gib(2));
    assert_eq!(free(&ledger, "a"), Bytes::gib(12));
}

#[test]
fn a_stranger_that_was_known_is_still_there_while_a_run_loads_beside_it() {
    let mut ledger = ledger(&[("a", 24)]);
    read(&mut ledger, "a", 16);
    ledger.claim(RunId(1), &holder(), &on("a", 10)).unwrap();
    read(&mut ledger, "a", 14);
    assert_eq!(foreign(&ledger, "a"), Bytes::gib(8));
    assert_eq!(free(&ledger, "a"), Bytes::gib(6));
}

#[test]
fn measured_runs_make_the_stranger_exact() {
    let mut ledger = ledger(&[("a", 24)]);
    read(&mut ledger, "a", 16);
    ledger.claim(RunId(1), &holder(), &on("a", 10)).unwrap();
    measure(&mut ledger, 1, "a", 9);
    read(&mut ledger, "a", 14);
    assert_eq!(foreign(&ledger, "a"), Bytes::gib(1));
    assert_eq!(free(&ledger, "a"), Bytes::gib(13));
}

#[test]
fn a_run_on_its_way_out_is_not_mistaken_for_a_stranger() {
    let mut ledger = ledger(&[("a", 24)]);
    ledger.claim(RunId(1), &holder(), &on("a", 10)).unwrap();
    measure(&mut ledger, 1, "a", 9);
    ledger.leave(RunId(1));
    read(&mut ledger, "a", 15);
    assert_eq!(foreign(&ledger, "a"), Bytes::ZERO);
    assert_eq!(free(&ledger, "a"), Bytes::gib(14));
    ledger.release(RunId(1));
    assert_eq!(free(&ledger, "a"), Bytes::gib(24));
}

#[test]
fn a_run_that_takes_more_than_its_claim_claims_more_and_never_less() {
    let mut ledger = ledger(&[("a", 24)]);
    ledger.claim(RunId(1), &holder(), &on("a", 10)).unwrap();
    measure(&mut ledger, 1, "a", 12);
    assert_eq!(free(&ledger, "a"), Bytes::gib(12));
    measure(&mut ledger, 1, "a", 5);
    assert_eq!(free(&ledger, "a"), Bytes::gib(12));
}

// llama.cpp #14719: 2 GB on another card in spite of `-sm none -mg 1`.
#[test]
fn memory_on_a_card_that_a_run_was_not_given_counts_all_the_same() {
    let mut ledger = ledger(&[("a", 24), ("b", 24)]);
    ledger.claim(RunId(1), &holder(), &on("a", 10)).unwrap();
    measure(&mut ledger, 1, "b", 2);
    assert_eq!(free(&ledger, "b"), Bytes::gib(22));
    ledger.release(RunId(1));
    assert_eq!(free(&ledger, "b"), Bytes::gib(24));
}

#[test]
fn a_whole_card_stays_whole_when_strangers_leave_it_and_shrinks_when_measured() {
    let mut ledger = ledger(&[("a", 24)]);
    read(&mut ledger, "a", 20);
    ledger.claim(RunId(1), &holder(), &whole("a", 20)).unwrap();
    measure(&mut ledger, 1, "a", 4);
    read(&mut ledger, "a", 20);
    assert_eq!((foreign(&ledger, "a"), free(&ledger, "a")), (Bytes::ZERO, Bytes::ZERO));
    ledger.settle(RunId(1));
    let claimed = ledger.account(&id("a")).unwrap().claimed();
    assert!(claimed > Bytes::gib(4) && claimed < Bytes::gib(5), "{claimed}");
    ledger.audit().unwrap();
}

#[test]
fn a_measurement_of_nothing_measures_nothing() {
    let mut ledger = ledger(&[("a", 24)]);
    ledger.claim(RunId(1), &holder(), &whole("a", 24)).unwrap();
    measure(&mut ledger, 1, "a", 0);
    ledger.settle(RunId(1));
    assert_eq!(free(&ledger, "a"), Bytes::ZERO);
}

fn placed(
    ledger: &Ledger,
    demand: &dyn MemoryModel,
    allowed: &[CardId],
    tenants: &[CardTenant],
) -> PlacementVerdict {
    let (need, mut answers) = (demand.need(), NeedAnswers::default());
    loop {
        let query = PlacementQuery {
            name: "m",
            need: &need,
            answers: &answers,
            learned: LearnedNeed::default(),
            allowed,
            port: None,
            apart: 0,
        };
        match place(&query, ledger, &Reservations::default(), tenants) {
            PlacementVerdict::Unplanned(sets) => answers.extend(answered(demand, &sets)),
            verdict => return verdict,
        }
    }
}

fn answered(demand: &dyn MemoryModel, sets: &[CardSet]) -> Vec<NeedAnswer> {
    let answer = |set: &CardSet| NeedAnswer {
        cards: set.iter().map(|card| (card.id.clone(), card.free)).collect(),
        ignores_free: false,
        shares: demand.on(set),
    };
    sets.iter().map(answer).collect()
}

fn tenant(run: u64, standing: CardStanding, last_used: u64) -> CardTenant {
    CardTenant {
        run: RunId(run),
        standing,
        last_used,
        cost: 1,
        wait: if standing > CardStanding::Idle { 1000 } else { 0 },
        is_pinned_by_file: false,
        port: None,
        apart: false,
    }
}

fn declared(gib: u64) -> DeclaredSize {
    DeclaredSize(Bytes::gib(gib))
}

#[test]
fn the_tightest_card_that_fits_is_taken() {
    let ledger = ledger(&[("a", 24), ("b", 10), ("c", 16)]);
    assert_eq!(placed(&ledger, &declared(9), &[], &[]), PlacementVerdict::Fits(on("b", 9)));
    assert_eq!(placed(&ledger, &declared(11), &[], &[]), PlacementVerdict::Fits(on("c", 11)));
    assert_eq!(placed(&ledger, &declared(9), &[id("a")], &[]), PlacementVerdict::Fits(on("a", 9)));
}

/// 9 GiB, divided as [`DividedSize`] does it, on the cards that its flags name.
#[derive(Debug)]
struct OnNamed(NamedDemand);

impl MemoryModel for OnNamed {
    fn on(&self, cards: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason> {
        DividedSize(Bytes::gib(9)).on(cards)
    }

    fn named(&self) -> &NamedDemand {
        &self.0
    }
}

fn on_named(cards: &[&str], only: bool) -> OnNamed {
    let cards = cards.iter().map(|card| id(card)).collect();
    OnNamed(NamedDemand { cards, only, excluded: Vec::new() })
}

fn cards_of(verdict: &PlacementVerdict) -> Vec<&str> {
    let PlacementVerdict::Fits(placement) = verdict else {
        panic!("{verdict:?}");
    };
    placement.cards().map(CardId::as_str).collect()
}

#[test]
fn cards_that_the_flags_name_are_the_only_ones_asked_about() {
    let mut ledger = ledger(&[("a", 24), ("b", 24), ("c", 24), ("d", 10)]);
    read(&mut ledger, "a", 0);
    for named in [&["b"][..], &["b", "d"], &["d"]] {
        let verdict = placed(&ledger, &on_named(named, true), &[], &[]);
        assert_eq!(cards_of(&verdict), named);
    }
    let PlacementVerdict::Never(never) = placed(&ledger, &on_named(&["a"], true), &[], &[]) else {
        panic!("it goes where its flags do not send it");
    };
    assert!(never.crowded_out, "{never:?}");
    assert_eq!(never.reason.because.len(), 1, "{never:?}");
}

#[test]
fn cards_that_must_be_there_may_be_joined_by_others() {
    let ledger = ledger(&[("a", 8), ("b", 8), ("c", 24), ("d", 10)]);
    assert_eq!(cards_of(&placed(&ledger, &on_named(&["c"], false), &[], &[])), ["c"]);
    let joined = placed(&ledger, &on_named(&["b"], false), &[], &[]);
    assert_eq!(cards_of(&joined), ["a", "b"]);
}

#[test]
fn a_named_card_that_may_not_be_used_leaves_no_set() {
    let ledger = ledger(&[("a", 24), ("b", 24)]);
    let PlacementVerdict::Never(never) = placed(&ledger, &on_named(&["b"], true), &[id("a")], &[]) else {
        panic!("it goes where it may not");
    };
    assert!(never.reason.text.contains("that its flags name"), "{never:?}");
}

#[test]
fn cards_of_two_makers_serve_together_for_no_model_and_excluded_cards_never() {
    let mut limits = [("n", 24), ("m", 24), ("r", 40)].map(|(name, gib)| limit(name, gib));
    limits[2].card.maker = CardMaker::Amd;
    let ledger = Ledger::new(limits.to_vec());
    assert_eq!(placed(&ledger, &declared(30), &[], &[]), PlacementVerdict::Fits(on("r", 30)));
    assert_eq!(cards_of(&placed(&ledger, &declared(45), &[], &[])), ["n", "m"]);
    assert!(matches!(placed(&ledger, &declared(60), &[], &[]), PlacementVerdict::Never(_)));
    let without = |excluded: &[&str]| {
        let excluded = excluded.iter().map(|card| id(card)).collect();
        placed(&ledger, &OnNamed(NamedDemand { excluded, ..NamedDemand::default() }), &[], &[])
    };
    assert_eq!(cards_of(&without(&["n"])), ["m"]);
    assert_eq!(cards_of(&without(&["n", "m"])), ["r"]);
    assert!(matches!(without(&["n", "m", "r"]), PlacementVerdict::Never(_)));
}

#[test]
fn fewest_cards_come_first_and_more_cards_before_an_eviction() {
    let mut ledger = ledger(&[("a", 10), ("b", 10)]);
    assert_eq!(placed(&ledger, &declared(10), &[], &[]), PlacementVerdict::Fits(on("a", 10)));
    ledger.claim(RunId(1), &holder(), &on("a", 4)).unwrap();
    let PlacementVerdict::Fits(spread) =
        placed(&ledger, &declared(12), &[], &[tenant(1, CardStanding::Idle, 1)])
    else {
        panic!("an idle model is evicted although two cards would do");
    };
    assert_eq!((spread.shares.len(), spread.total()), (2, Bytes::gib(12)));
}

#[test]
fn the_least_recently_used_goes_whichever_card_it_is_on() {
    let mut ledger = ledger(&[("a", 10), ("b", 10)]);
    ledger.claim(RunId(1), &holder(), &on("a", 8)).unwrap();
    ledger.claim(RunId(2), &holder(), &on("b", 8)).unwrap();
    let tenants =
        |first, second| [tenant(1, CardStanding::Idle, first), tenant(2, CardStanding::Idle, second)];
    let evicted = |tenants: &[CardTenant]| match placed(&ledger, &declared(8), &[], tenants) {
        PlacementVerdict::FitsAfter { stop, .. } => stop,
        other => panic!("{other:?}"),
    };
    assert_eq!(evicted(&tenants(1, 2)), [RunId(1)]);
    assert_eq!(evicted(&tenants(2, 1)), [RunId(2)]);
}

#[test]
fn runs_that_leave_are_waited_for_before_others_are_stopped() {
    let mut ledger = ledger(&[("a", 20)]);
    ledger.claim(RunId(1), &holder(), &on("a", 8)).unwrap();
    ledger.claim(RunId(2), &holder(), &on("a", 8)).unwrap();
    let tenants = [tenant(1, CardStanding::Idle, 1), tenant(2, CardStanding::Leaving, 2)];
    let PlacementVerdict::FitsAfter { stop, waits: false, .. } = placed(&ledger, &declared(8), &[], &tenants)
    else {
        panic!("it fits once the second has left");
    };
    assert_eq!(stop, [RunId(2)]);
}

#[test]
fn busy_and_new_runs_are_waited_for_and_pinned_ones_are_not() {
    let mut ledger = ledger(&[("a", 10)]);
    ledger.claim(RunId(1), &holder(), &on("a", 8)).unwrap();
    for standing in [CardStanding::Busy, CardStanding::Protected] {
        let verdict = placed(&ledger, &declared(8), &[], &[tenant(1, standing, 1)]);
        assert_eq!(
            verdict,
            PlacementVerdict::FitsAfter { placement: on("a", 8), stop: vec![RunId(1)], waits: true }
        );
    }
    assert_eq!(
        placed(&ledger, &declared(8), &[], &[tenant(1, CardStanding::Promised, 1)]),
        PlacementVerdict::Later
    );
    let PlacementVerdict::Never(never) =
        placed(&ledger, &declared(8), &[], &[tenant(1, CardStanding::Stays, 1)])
    else {
        panic!("a pinned model is counted on to go");
    };
    assert!(never.crowded_out);
    let hints: Vec<String> = never.hints.iter().map(ToString::to_string).collect();
    assert_eq!(hints, [format!("unpin {}, which holds {} on a", holder(), Bytes::gib(8))]);
    // No other program holds anything, whatever the card lacks for the model.
    assert!(!hints.iter().any(|hint| hint.contains("other processes")), "{hints:?}");
}

#[test]
fn a_limit_of_runs_is_kept_whatever_memory_is_free() {
    let limited = |most| ledger(&[("a", 24)]).with_most_runs(std::num::NonZeroUsize::new(most));
    let verdict = |ledger: &Ledger, tenants: &[CardTenant]| placed(ledger, &declared(1), &[], tenants);
    let idle = |run, last_used| tenant(run, CardStanding::Idle, last_used);
    let mut two = limited(2);
    assert_eq!(verdict(&two, &[idle(1, 1)]), PlacementVerdict::Fits(on("a", 1)));
    for run in [1, 2] {
        two.claim(RunId(run), &holder(), &on("a", 1)).unwrap();
    }
    two.audit().unwrap();
    assert_eq!(
        verdict(&two, &[idle(1, 2), idle(2, 1)]),
        PlacementVerdict::FitsAfter { placement: on("a", 1), stop: vec![RunId(2)], waits: false }
    );
    let busy = [tenant(1, CardStanding::Stays, 1), tenant(2, CardStanding::Busy, 2)];
    assert_eq!(
        verdict(&two, &busy),
        PlacementVerdict::FitsAfter { placement: on("a", 1), stop: vec![RunId(2)], waits: true }
    );
    let pinned = [1, 2].map(|run| tenant(run, CardStanding::Stays, run));
    let PlacementVerdict::Never(never) = verdict(&two, &pinned) else {
        panic!("a pinned model is counted on to go");
    };
    assert!(never.crowded_out);
    let stated = never.reason.to_string();
    assert!(stated.contains("at most 2 models are loaded at a time (`models-max`)"), "{stated}");
    let hints: Vec<String> = never.hints.iter().map(ToString::to_string).collect();
    assert_eq!(hints, [format!("unpin {}", holder())]);
    // No order takes a pin of the configuration back.
    let by_file = pinned.map(|tenant| CardTenant { is_pinned_by_file: true, ..tenant });
    let PlacementVerdict::Never(never) = verdict(&two, &by_file) else { panic!("a pinned model leaves") };
    let hints: Vec<String> = never.hints.iter().map(ToString::to_string).collect();
    assert_eq!(
        hints,
        [format!("remove `pin` of {} from the configuration and run `plimsoll reload`", holder())]
    );
    // What is too large for the empty cards is so after an unpin too, and no pinned model is counted in its
    // arithmetic.
    let PlacementVerdict::Never(never) = placed(&two, &declared(25), &[], &pinned) else {
        panic!("25 GiB fit on 24");
    };
    assert!(!never.crowded_out && never.reason.code == "never_fits", "{}", never.reason);
    assert!(!never.reason.to_string().contains("pinned"), "{}", never.reason);
    assert_eq!(verdict(&limited(0), &[idle(1, 1), idle(2, 2)]), PlacementVerdict::Fits(on("a", 1)));
    two.claim(RunId(3), &holder(), &on("a", 1)).unwrap();
    assert_eq!(two.audit(), Err(AuditError::TooManyRuns { runs: 3, most: 2 }));
    // A model that takes no memory of a card counts as well.
    let none = placed(&limited(1), &declared(0), &[id("none")], &[idle(1, 1)]);
    assert!(matches!(none, PlacementVerdict::FitsAfter { stop, waits: false, .. } if stop == [RunId(1)]));
}

#[test]
fn reserved_memory_is_not_free_beyond_what_its_victims_free() {
    let mut ledger = ledger(&[("a", 20)]);
    ledger.claim(RunId(1), &holder(), &on("a", 12)).unwrap();
    let mut holds = Reservations::default();
    holds.reserve(&on("a", 16), &[RunId(1)], &ledger);
    let (tenants, need) = ([tenant(1, CardStanding::Promised, 1)], declared(4).need());
    let ask = PlacementQuery {
        name: "m",
        need: &need,
        answers: &NeedAnswers::default(),
        learned: LearnedNeed::default(),
        allowed: &[],
        port: None,
        apart: 0,
    };
    assert_eq!(place(&ask, &ledger, &holds, &tenants), PlacementVerdict::Fits(on("a", 4)));
    let larger = PlacementQuery { learned: LearnedNeed { measured: Bytes::mib(1), ..ask.learned }, ..ask };
    assert_eq!(place(&larger, &ledger, &holds, &tenants), PlacementVerdict::Later);
}

proptest! {
    #[test]
    fn a_verdict_can_be_claimed_once_its_victims_are_gone(
        cards in prop::collection::vec(4_u64..32, 1..8),
        claims in prop::collection::vec((0_usize..8, 1_u64..12, 0_u8..4), 0..12),
        need in 1_u64..80,
    ) {
        let names: Vec<String> = (0..cards.len()).map(|i| format!("c{i}")).collect();
        let sized: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(cards.iter().copied()).collect();
        let mut ledger = ledger(&sized);
        let mut tenants = Vec::new();
        for (run, (card, gib, standing)) in (1..).zip(claims) {
            let standing = [CardStanding::Leaving, CardStanding::Idle, CardStanding::Busy, CardStanding::Stays][usize::from(standing)];
            if ledger.claim(RunId(run), &holder(), &on(&names[card % names.len()], gib)).is_ok() {
                tenants.push(tenant(run, standing, run));
            }
        }
        let (verdict, new) = (placed(&ledger, &declared(need), &[], &tenants), RunId(100));
        match verdict {
            PlacementVerdict::Fits(placement) => prop_assert_eq!(ledger.claim(new, &holder(), &placement), Ok(())),
            PlacementVerdict::FitsAfter { placement, stop: evict, .. } => {
                prop_assert!(ledger.claim(new, &holder(), &placement).is_err());
                for run in &evict {
                    let stays = tenants.iter().any(|t| t.run == *run && t.standing == CardStanding::Stays);
                    prop_assert!(!stays);
                    ledger.release(*run);
                }
                prop_assert_eq!(ledger.claim(new, &holder(), &placement), Ok(()));
            }
            PlacementVerdict::Later => prop_assert!(false, "nobody is promised to anybody"),
            PlacementVerdict::Unplanned(_) => prop_assert!(false, "the size is declared"),
            PlacementVerdict::Never(never) => prop_assert!(!never.reason.because.is_empty()),
        }
        prop_assert_eq!(ledger.audit(), Ok(()));
    }
}
