//! Selects the cards that `serve` places models on.
//!
//! They come from the user's `--card` descriptions, from the GPUs found in the machine, or, without a GPU,
//! from the host's memory.

use plimsoll_base::{Bytes, Card, CardId, CardKind};
use plimsoll_cards::Machine;
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
    let alongside = alongside(described, &machine).map(|host| whole(host, reserve));
    let present = if are_host_only(described) { Vec::new() } else { present(machine) };
    if described.is_empty() {
        return present.into_iter().map(|card| whole(card, reserve)).chain(alongside).collect();
    }
    let mut limits: Vec<CardLimit> = Vec::with_capacity(described.len() + 1);
    for wanted in described {
        let limit = limit(wanted, &present, &limits);
        limits.push(CardLimit { reserve: reserve.unwrap_or_default(), ..limit });
    }
    limits.into_iter().chain(alongside).collect()
}

/// A described card beside those that were described before it: of equal cards each description means another
/// one.
///
/// DECISION: of a card that is not here nothing more will be known than its description, so its free memory
/// is all that it will ever have, as in a plan.
fn limit(wanted: &Card, present: &[Card], before: &[CardLimit]) -> CardLimit {
    let is_taken = |id: &CardId| before.iter().any(|limit| limit.card.id == *id);
    let same = |card: &&Card| card.id == wanted.id || (card.name == wanted.name && card.kind == wanted.kind);
    let here = present.iter().filter(same).find(|card| !is_taken(&card.id));
    let budget = match here {
        None if wanted.kind == CardKind::Cuda => wanted.total.min(wanted.free),
        _ => wanted.total,
    };
    let mut card = here.unwrap_or(wanted).clone();
    for number in 2.. {
        if !is_taken(&card.id) {
            break;
        }
        card.id = CardId::new(&format!("{}#{number}", wanted.id));
    }
    // No driver says that an engine is built, or set, to do without virtual memory: that is the user's
    // to know.
    card.legacy_pool |= wanted.legacy_pool;
    CardLimit { budget: Some(budget), reserve: Bytes::ZERO, card }
}

/// Warns of described cards that the machine does not have. Only a check may plan for another machine.
pub(super) fn warn_of_absent(described: &[Card], machine: &Machine) {
    for wanted in absent(described, machine) {
        tracing::warn!("{}", unmatched(wanted, &machine.cards));
    }
}

/// Names the described cards that a check takes as those of another machine.
pub(super) fn notify_of_absent(described: &[Card], machine: &Machine) {
    for wanted in absent(described, machine) {
        let name = &wanted.name;
        tracing::info!(
            "{name} is planned as a CUDA card of another machine; kind=host describes host memory"
        );
    }
}

fn absent<'a>(described: &'a [Card], machine: &'a Machine) -> impl Iterator<Item = &'a Card> {
    let is_there =
        |wanted: &Card| machine.cards.iter().any(|card| card.id == wanted.id || card.name == wanted.name);
    let cuda = described.iter().filter(|card| card.kind == CardKind::Cuda);
    cuda.filter(move |card| !is_there(card))
}

/// Warning about a described card that the machine does not have: engines will not find it.
fn unmatched(wanted: &Card, present: &[Card]) -> String {
    let named: Vec<&str> =
        present.iter().filter(|card| card.kind == CardKind::Cuda).map(|card| card.name.as_str()).collect();
    let (there, hint) = match named.as_slice() {
        [] => (
            "it has none".to_owned(),
            "leave it out to serve from host memory, or add kind=host to use a part of host memory",
        ),
        named => (
            format!("it has {}", named.join(", ")),
            "to set a budget on one of those cards, use its name or UUID",
        ),
    };
    format!(
        "the card {} is not a card of this machine ({there}), so engines will not find it; {hint}",
        wanted.name
    )
}

fn whole(card: Card, reserve: Option<Bytes>) -> CardLimit {
    let usual =
        if card.kind == CardKind::Host { HOST_RESERVE.min(card.total.scaled(1, 10)) } else { CARD_RESERVE };
    CardLimit { budget: None, reserve: reserve.unwrap_or(usual), card }
}

/// True if all descriptions are of host memory, so that no driver has to be called.
pub(super) fn are_host_only(described: &[Card]) -> bool {
    !described.is_empty() && described.iter().all(|card| card.kind == CardKind::Host)
}

/// The host's memory beside cards of its own machine: models take of both.
///
/// DECISION: none where the cards share it, and none beside described cards that are not here, of which only
/// the memory that is described exists.
fn alongside(described: &[Card], machine: &Machine) -> Option<Card> {
    let is_here =
        |wanted: &Card| machine.cards.iter().any(|card| card.id == wanted.id || card.name == wanted.name);
    let served = described.is_empty() || described.iter().all(is_here);
    machine.host.clone().filter(|_| served && !machine.unified && !machine.cards.is_empty())
}

/// The cards of this machine, or the host if it has no card.
fn present(machine: Machine) -> Vec<Card> {
    for note in machine.notes {
        tracing::info!("{note}");
    }
    for card in machine.kernel_cards {
        tracing::info!("{} is shown, and no model is placed on it", card.name);
    }
    if machine.cards.is_empty() { machine.host.into_iter().collect() } else { machine.cards }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_is_not_there_is_told_with_those_that_are() {
        let wanted: Card = "name=RTX3090,total=24GiB,cc=8.6".parse().unwrap();
        let host: Card = "name=host,total=24GiB,kind=host".parse().unwrap();
        let reported = unmatched(&wanted, std::slice::from_ref(&host));
        assert!(reported.contains("(it has none)") && reported.contains("kind=host"), "{reported}");
        let there: Card = "name=H200,total=141GiB,uuid=GPU-1".parse().unwrap();
        assert!(unmatched(&wanted, &[there, host]).contains("(it has H200)"));
    }

    #[test]
    fn a_budget_on_a_card_that_is_there_may_say_that_its_engines_take_the_legacy_pool() {
        let there: Card = "name=H200,total=141GiB,uuid=GPU-1".parse().unwrap();
        let machine = || Machine {
            cards: vec![there.clone()],
            kernel_cards: Vec::new(),
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
        assert_eq!((limit.card.id.as_str(), limit.budget), ("GPU-1", Some(Bytes::gib(20))));
        assert!(limit.card.legacy_pool && !chosen("name=H200,total=20GiB").card.legacy_pool);
    }

    #[test]
    fn equal_cards_are_told_apart_and_one_that_is_not_here_has_what_its_description_leaves_free() {
        let there = |uuid: &str| format!("name=H200,total=141GiB,uuid={uuid}").parse::<Card>().unwrap();
        let cards = vec![there("GPU-1"), there("GPU-2")];
        let machine = Machine {
            cards,
            kernel_cards: Vec::new(),
            host: None,
            unified: false,
            driver: None,
            notes: Vec::new(),
        };
        let wanted: Card = "name=H200,total=20GiB,free=18GiB".parse().unwrap();
        let limits = choose(&[wanted.clone(), wanted.clone(), wanted], None, machine);
        let chosen: Vec<_> = limits.iter().map(|limit| (limit.card.id.as_str(), limit.budget)).collect();
        let (here, absent) = (Some(Bytes::gib(20)), Some(Bytes::gib(18)));
        assert_eq!(chosen[..2], [("GPU-1", here), ("GPU-2", here)]);
        assert_eq!(chosen[2].1, absent);
        assert!(!["GPU-1", "GPU-2"].contains(&chosen[2].0));
    }
}
