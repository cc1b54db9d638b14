//! Tests of models that fit on no set of cards, whose memory need is unknown, or that need no card.

use super::*;

#[test]
fn a_demand_that_no_set_of_cards_meets_says_why_for_each() {
    let ledger = ledger(&[("a", 10), ("b", 10)]);
    let PlacementVerdict::Never(never) = placed(&ledger, &declared(30), &[], &[]) else {
        panic!("30 GiB on 20");
    };
    assert!(!never.crowded_out);
    assert_eq!(
        never.reason.to_string(),
        "m would not fit on the cards that it may use even if those cards were empty\n  \
         on 2 cards together the model takes 30720 MiB: 15360 MiB of the 10240 MiB available on a, 15360 MiB of the 10240 MiB available on b\n    \
         a has 10240 MiB available, but the model needs 15360 MiB\n    \
         b has 10240 MiB available, but the model needs 15360 MiB\n  \
         a has 10240 MiB available, but the model needs 30720 MiB\n  \
         b has 10240 MiB available, but the model needs 30720 MiB"
    );
}

/// A line has room for the first cause alone.
#[test]
fn the_largest_cause_comes_first_and_empty_cards_hold_no_other_processes() {
    let stated = |need: u64, reserve: u64| {
        let mut limit = limit("a", 24);
        limit.reserve = Bytes::gib(reserve);
        limit.card.free = Bytes::gib(20);
        let need = DeclaredSize(Bytes::gib(need));
        let PlacementVerdict::Never(never) = placed(&Ledger::new(vec![limit]), &need, &[], &[]) else {
            panic!("{need:?} on 20 GiB less {reserve}");
        };
        never.reason.to_string()
    };
    assert_eq!(
        stated(18, 5),
        "m does not fit beside the memory that other models and processes hold\n  \
         a has 15360 MiB available, but the model needs 18432 MiB\n    \
         the `reserve` setting keeps free 5120 MiB\n    \
         the system and other processes hold 4096 MiB"
    );
    assert_eq!(
        stated(2, 23),
        "m would not fit on the cards that it may use even if those cards were empty\n  \
         a has 1024 MiB available, but the model needs 2048 MiB\n    \
         the `reserve` setting keeps free 23552 MiB"
    );
    assert_eq!(
        stated(30, 0),
        "m would not fit on the cards that it may use even if those cards were empty\n  \
         a has 24576 MiB available, but the model needs 30720 MiB"
    );
}

/// Sizes are rounded for people, and two that read the same differ.
#[test]
fn a_little_too_much_is_reported_as_a_difference() {
    let need = DeclaredSize(Bytes::gib(10) + Bytes::kib(300));
    let PlacementVerdict::Never(never) = placed(&ledger(&[("a", 10)]), &need, &[], &[]) else {
        panic!("10.3 GiB on 10");
    };
    let stated = never.reason.to_string();
    assert!(
        stated.contains("a has 10240 MiB available, but the model needs 10240 MiB, 300 KiB more"),
        "{stated}"
    );
}

#[test]
fn an_unknown_need_takes_an_empty_card_and_asks_to_be_declared() {
    let mut ledger = ledger(&[("a", 10), ("b", 12)]);
    ledger.claim(RunId(1), &holder(), &on("a", 1)).unwrap();
    assert_eq!(placed(&ledger, &UnknownSize, &[], &[]), PlacementVerdict::Fits(whole("b", 12)));
    ledger.claim(RunId(2), &holder(), &on("b", 1)).unwrap();
    let pinned = [tenant(1, CardStanding::Stays, 1), tenant(2, CardStanding::Stays, 2)];
    let PlacementVerdict::Never(never) = placed(&ledger, &UnknownSize, &[], &pinned) else {
        panic!("no card is empty");
    };
    assert!(never.hints.iter().any(|hint| hint.to_string().contains("memory = ")));
}

#[derive(Debug)]
struct NeedsNoCard;

impl MemoryModel for NeedsNoCard {
    fn on(&self, _: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason> {
        Ok(Vec::new())
    }
}

#[test]
fn an_engine_that_needs_no_card_starts_anywhere() {
    let nowhere = PlacementVerdict::Fits(Placement::default());
    assert_eq!(placed(&ledger(&[]), &NeedsNoCard, &[], &[]), nowhere);
    assert_eq!(placed(&ledger(&[("a", 1)]), &NeedsNoCard, &[], &[]), nowhere);
}
