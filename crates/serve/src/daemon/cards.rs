//! Selection of the cards that `serve` places models on.
//!
//! The cards come from the user's `--card` descriptions, from the GPUs found in the machine, or, where there
//! is no GPU, from the host's memory. Each card gets a reserve that models may not use.

use plimsoll_base::{Bytes, Card, CardKind};
use plimsoll_probe::Machine;
use plimsoll_scheduler::CardLimit;

/// Reserve on a card of this machine, for memory that a display server or a driver takes between two
/// readings.
const CARD_RESERVE: Bytes = Bytes::mib(256);
/// Left untouched of the host: the machine has to live.
const HOST_RESERVE: Bytes = Bytes::gib(1);

/// Chooses the cards. A description with the name or UUID of a card of this machine is a budget on that card;
/// any other describes a card of the user's own. Without descriptions, all cards are used, or the host's
/// memory if there is no card.
pub(super) fn choose(described: &[Card], reserve: Option<Bytes>, machine: Machine) -> Vec<CardLimit> {
    let present = match are_host_only(described) {
        true => Vec::new(),
        false => present(machine),
    };
    if described.is_empty() {
        return present.into_iter().map(|card| whole(card, reserve)).collect();
    }
    let limit = |wanted: &Card| {
        let same =
            |card: &&Card| card.id == wanted.id || (card.name == wanted.name && card.kind == wanted.kind);
        let mut card = present.iter().find(same).unwrap_or(wanted).clone();
        // No driver says that an engine is built, or told, to do without virtual memory: that is the user's
        // to know.
        card.legacy_pool |= wanted.legacy_pool;
        CardLimit {
            budget: Some(wanted.total),
            reserve: reserve.unwrap_or_default(),
            card,
        }
    };
    described.iter().map(limit).collect()
}

fn whole(card: Card, reserve: Option<Bytes>) -> CardLimit {
    let usual = if card.kind == CardKind::Host {
        HOST_RESERVE.min(card.total.scaled(1, 10))
    } else {
        CARD_RESERVE
    };
    CardLimit {
        budget: None,
        reserve: reserve.unwrap_or(usual),
        card,
    }
}

/// True if all descriptions are of host memory, so that no driver has to be called.
pub(super) fn are_host_only(described: &[Card]) -> bool {
    !described.is_empty() && described.iter().all(|card| card.kind == CardKind::Host)
}

/// The cards of this machine, or the host if it has no card.
fn present(machine: Machine) -> Vec<Card> {
    for note in machine.notes {
        tracing::info!("{note}");
    }
    match machine.cards.is_empty() {
        true => machine.host.into_iter().collect(),
        false => machine.cards,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_on_a_card_that_is_there_may_say_that_its_engines_take_the_legacy_pool() {
        let there: Card = "name=H200,total=141GiB,uuid=GPU-1".parse().unwrap();
        let machine = || Machine {
            cards: vec![there.clone()],
            host: None,
            unified: false,
            driver: None,
            notes: Vec::new(),
        };
        let chosen = |described: &str| {
            let described = [described.parse().unwrap()];
            choose(&described, None, machine()).remove(0)
        };
        let limit = chosen("name=H200,total=20GiB,pool=legacy");
        assert_eq!(
            (limit.card.id.as_str(), limit.budget),
            ("GPU-1", Some(Bytes::gib(20)))
        );
        assert!(limit.card.legacy_pool && !chosen("name=H200,total=20GiB").card.legacy_pool);
    }
}
