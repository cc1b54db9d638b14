//! Selects the cards that `serve` places models on.
//!
//! They come from the user's `--card` descriptions, from the GPUs found in the machine, or, without a GPU,
//! from the host's memory.

use plimsoll_base::{Backends, Bytes, Card, CardId, CardKind, is_same_product};
use plimsoll_cards::Machine;
use plimsoll_scheduler::CardLimit;

/// Chooses the cards. A description with the name or UUID of a card of this machine is a budget on that card;
/// any other describes a card of the user's own. Without descriptions, all cards are used that models are
/// placed on, or the host's memory if there is none. `engine` has the backends of the usual engine.
pub(super) fn choose(
    described: &[Card],
    reserve: Option<Bytes>,
    machine: Machine,
    engine: &Backends,
) -> Vec<CardLimit> {
    let mut limits: Vec<CardLimit> = Vec::with_capacity(described.len() + 1);
    let gpus = if described.is_empty() { machine.placeable(engine) } else { machine.gpus() };
    let here = if are_host_only(described) { Vec::new() } else { present(&machine, &gpus) };
    for wanted in described {
        let limit = limit(wanted, &here, &limits);
        limits.push(CardLimit { reserve: reserve.unwrap_or_default(), ..limit });
    }
    if described.is_empty() {
        limits.extend(here.into_iter().map(|card| CardLimit::of_machine(card, reserve)));
    }
    report(&machine, &limits, described.is_empty().then_some(engine));
    let alongside = alongside(described, &machine, &limits).map(|host| CardLimit::of_machine(host, reserve));
    limits.into_iter().chain(alongside).collect()
}

/// A described card beside those that were described before it: of equal cards each description means another
/// one.
///
/// DECISION: of a card that is not here nothing more will be known than its description, so its free memory
/// is all that it will ever have, as in a plan.
fn limit(wanted: &Card, present: &[Card], before: &[CardLimit]) -> CardLimit {
    let is_taken = |id: &CardId| before.iter().any(|limit| limit.card.id == *id);
    let same = |card: &&Card| is_same(card, wanted) && card.kind == wanted.kind;
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
        tracing::warn!("{}", unmatched(wanted, &machine.gpus()));
    }
}

/// Names the described cards that a check takes as those of another machine.
pub(super) fn notify_of_absent(described: &[Card], machine: &Machine) {
    for wanted in absent(described, machine) {
        let name = &wanted.name;
        tracing::info!("{name} is planned as a card of another machine; kind=host describes host memory");
    }
}

fn absent<'a>(described: &'a [Card], machine: &Machine) -> impl Iterator<Item = &'a Card> {
    let gpus = machine.gpus();
    let cuda = described.iter().filter(|card| card.kind == CardKind::Cuda);
    cuda.filter(move |wanted| !gpus.iter().any(|card| is_same(card, wanted)))
}

/// True for a card of this machine that a description means. The kernel's name of a card may be another one
/// of the same product: `AMD Radeon RX 7900 XTX` is the `Radeon RX 7900 XTX`.
fn is_same(card: &Card, wanted: &Card) -> bool {
    let is_product = || is_same_product(&card.name, &wanted.name);
    card.answers_to(wanted.id.as_str()) || card.name == wanted.name || !card.maker.is_nvidia() && is_product()
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

/// True if all descriptions are of host memory, so that no driver has to be called.
pub(super) fn are_host_only(described: &[Card]) -> bool {
    !described.is_empty() && described.iter().all(|card| card.kind == CardKind::Host)
}

/// The host's memory beside cards of its own machine: models take of both.
///
/// DECISION: none where the cards share it, and none beside described cards that are not here, of which only
/// the memory that is described exists.
fn alongside(described: &[Card], machine: &Machine, limits: &[CardLimit]) -> Option<Card> {
    let gpus = machine.gpus();
    let is_here = |wanted: &Card| gpus.iter().any(|card| is_same(card, wanted));
    let served = described.is_empty() || described.iter().all(is_here);
    let is_shared = machine.unified || limits.iter().any(|limit| limit.card.shares_host);
    let has_gpu = limits.iter().any(|limit| limit.card.kind == CardKind::Cuda);
    machine.host.clone().filter(|_| served && !is_shared && has_gpu)
}

/// These GPUs, or the host if there is none.
fn present(machine: &Machine, gpus: &[Card]) -> Vec<Card> {
    if gpus.is_empty() { machine.host.iter().cloned().collect() } else { gpus.to_vec() }
}

/// Logs what cannot be read, and the GPUs that are not served from; `engine` where the user named none.
fn report(machine: &Machine, limits: &[CardLimit], engine: Option<&Backends>) {
    for note in &machine.notes {
        tracing::info!("{note}");
    }
    for card in &machine.kernel_cards {
        if !limits.iter().any(|limit| limit.card.id == card.id) {
            let named = || "other cards are described".to_owned();
            let why = engine.map_or_else(named, |engine| machine.obstacle(card, engine));
            tracing::info!("{} is shown, and no model is placed on it: {why}", card.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_is_not_there_is_reported_with_those_that_are() {
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
            choose(&described, None, machine(), &Backends::Unsure).remove(0)
        };
        let limit = chosen("name=H200,total=20GiB,pool=legacy");
        assert_eq!((limit.card.id.as_str(), limit.budget), ("GPU-1", Some(Bytes::gib(20))));
        assert!(limit.card.legacy_pool && !chosen("name=H200,total=20GiB").card.legacy_pool);
    }

    #[test]
    fn equal_cards_are_distinguished_and_one_that_is_not_here_has_what_its_description_leaves_free() {
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
        let limits = choose(&[wanted.clone(), wanted.clone(), wanted], None, machine, &Backends::Unsure);
        let chosen: Vec<_> = limits.iter().map(|limit| (limit.card.id.as_str(), limit.budget)).collect();
        let (here, absent) = (Some(Bytes::gib(20)), Some(Bytes::gib(18)));
        assert_eq!(chosen[..2], [("GPU-1", here), ("GPU-2", here)]);
        assert_eq!(chosen[2].1, absent);
        assert!(!["GPU-1", "GPU-2"].contains(&chosen[2].0));
    }
}
