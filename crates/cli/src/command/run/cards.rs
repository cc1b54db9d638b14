//! Finds the cards that `plimsoll run --card` names by number (in PCI bus order), UUID or name.
//!
//! The beginning of a UUID or a part of a name is enough.

use std::str::FromStr;

use plimsoll_base::{Bytes, Card, CardMaker, ParseBytesError};
use plimsoll_wire::options::Uuid;

/// A requested card: `CARD` or `CARD=SIZE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestedCard {
    card: String,
    budget: Option<Bytes>,
}

impl FromStr for RequestedCard {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, ParseBytesError> {
        let (card, budget) = match text.split_once('=') {
            Some((card, size)) => (card, Some(size.parse()?)),
            None => (text, None),
        };
        Ok(Self { card: card.trim().to_owned(), budget })
    }
}

/// A selected card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) uuid: String,
    pub(super) budget: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CardError {
    #[error("there is no card `{card}`; the cards are {present}")]
    Find { card: String, present: String },
    #[error("`{card}` matches more than one card, {several}; name one by its number or its UUID")]
    Ambiguous { card: String, several: String },
    #[error("`{card}` and `{other}` are the same card; name it once")]
    Twice { card: String, other: String },
    #[error("there is no card `{card}`: no NVIDIA card is visible; `plimsoll doctor` shows why")]
    NoCards { card: String },
}

/// The identity that guard knows a card by: NVIDIA's UUID as its library writes it, the place of others.
pub(super) fn identity(card: &Card) -> Option<String> {
    match card.maker {
        CardMaker::Nvidia => card.uuid.clone(),
        CardMaker::Amd | CardMaker::Intel | CardMaker::Apple => {
            card.identity().map(|identity| identity.to_string())
        }
    }
}

/// Finds a card by the identity that guard knows it by, with its number.
pub(super) fn named<'a>(cards: &'a [Card], uuid: &str) -> Option<(usize, &'a Card)> {
    let mut numbered = cards.iter().enumerate();
    numbered.find(|(_, card)| identity(card).is_some_and(|other| other.eq_ignore_ascii_case(uuid)))
}

/// Finds each requested card. Where the machine shows no card, a complete UUID is accepted.
pub(super) fn choose(wanted: &[RequestedCard], present: &[Card]) -> Result<Vec<Chosen>, CardError> {
    let mut chosen: Vec<Chosen> = Vec::with_capacity(wanted.len());
    for (index, one) in wanted.iter().enumerate() {
        let uuid = find(&one.card, present)?;
        // Two budgets for one card would contradict each other, and CUDA rejects a repeated UUID.
        if let Some(before) = chosen.iter().position(|other| other.uuid == uuid) {
            return Err(CardError::Twice {
                card: wanted[index].card.clone(),
                other: wanted[before].card.clone(),
            });
        }
        chosen.push(Chosen { uuid, budget: one.budget });
    }
    Ok(chosen)
}

/// The cards that the program will see, with free memory limited to the budget.
pub(super) fn seen(chosen: &[Chosen], machine: &[Card], usual: Option<Bytes>) -> Vec<Card> {
    let within = |card: &Card, budget: Option<Bytes>| Card {
        free: budget.or(usual).map_or(card.free, |budget| budget.min(card.free)),
        ..card.clone()
    };
    if chosen.is_empty() {
        return machine.iter().map(|card| within(card, None)).collect();
    }
    let found = chosen.iter().filter_map(|chosen| {
        let mut cards = machine.iter();
        let card = cards.find(|card| identity(card).as_deref() == Some(&chosen.uuid))?;
        Some(within(card, chosen.budget))
    });
    found.collect()
}

/// The UUID of the card with this number, UUID or name.
pub(in crate::command) fn find(name: &str, present: &[Card]) -> Result<String, CardError> {
    // By its place on the PCI bus guard knows a card of AMD's or Intel's, also where no survey lists it.
    if let Some(place) = Uuid::of_address(name) {
        return Ok(place.to_string());
    }
    // In a sandbox without NVML the program may still reach the card through CUDA.
    if present.is_empty() {
        let whole = Uuid::read(name).map(|_| name.to_owned());
        return whole.ok_or_else(|| CardError::NoCards { card: name.to_owned() });
    }
    let uuids = |cards: Vec<&Card>| {
        let uuids = cards.into_iter().filter_map(identity);
        uuids.collect::<Vec<_>>()
    };
    let by = |fits: &dyn Fn(&Card) -> bool| uuids(present.iter().filter(|card| fits(card)).collect());
    let number = name.parse::<usize>().ok();
    let numbered = number.and_then(|number| present.get(number));
    let found = match number {
        // A number is never part of a name: `4090` must not select the card by its name on one machine and by
        // its number on another.
        Some(_) => uuids(numbered.into_iter().collect()),
        None if name.starts_with("GPU-") => {
            by(&|card| card.uuid.as_deref().is_some_and(|uuid| uuid.starts_with(name)))
        }
        None => {
            let exact = by(&|card| card.name.eq_ignore_ascii_case(name));
            let lower = name.to_ascii_lowercase();
            let part = || by(&|card| !lower.is_empty() && card.name.to_ascii_lowercase().contains(&lower));
            // An exact name wins, because `NVIDIA H100` is also a part of `NVIDIA H100 NVL`.
            if exact.is_empty() { part() } else { exact }
        }
    };
    match found.as_slice() {
        [uuid] => Ok(uuid.clone()),
        [] => Err(CardError::Find { card: name.to_owned(), present: listed(present.iter().enumerate()) }),
        several => Err(CardError::Ambiguous {
            card: name.to_owned(),
            several: listed(
                present
                    .iter()
                    .enumerate()
                    .filter(|(_, card)| identity(card).is_some_and(|uuid| several.contains(&uuid))),
            ),
        }),
    }
}

fn listed<'a>(cards: impl Iterator<Item = (usize, &'a Card)>) -> String {
    let each = cards.map(|(number, card)| {
        let uuid = card.uuid.as_deref().unwrap_or("no UUID");
        format!("{number} {} ({uuid})", card.name)
    });
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use plimsoll_base::{CardId, CardKind, Counting};

    use super::*;

    fn card(uuid: &str, name: &str) -> Card {
        Card {
            id: CardId::new(uuid),
            kind: CardKind::Cuda,
            name: name.to_owned(),
            uuid: Some(uuid.to_owned()),
            total: Bytes::gib(1),
            free: Bytes::gib(1),
            compute_capability: None,
            legacy_pool: false,
            shares_host: false,
            counting: Counting::Driver,
            maker: plimsoll_base::CardMaker::Nvidia,
            address: None,
        }
    }

    fn chosen(names: &[&str]) -> Result<Vec<String>, CardError> {
        let present =
            [card("GPU-aa01", "NVIDIA H200"), card("GPU-aa02", "NVIDIA H200"), card("GPU-bb03", "NVIDIA L4")];
        let wanted: Vec<RequestedCard> = names.iter().map(|name| name.parse().unwrap()).collect();
        let chosen = choose(&wanted, &present)?;
        Ok(chosen.into_iter().map(|card| card.uuid).collect())
    }

    #[test]
    fn a_card_is_named_by_number_uuid_or_name_in_the_order_of_the_line() {
        for (names, uuids) in [
            (&["2", "0"][..], &["GPU-bb03", "GPU-aa01"][..]),
            (&["GPU-aa02"], &["GPU-aa02"]),
            (&["GPU-b"], &["GPU-bb03"]),
            (&["nvidia l4"], &["GPU-bb03"]),
            (&["L4"], &["GPU-bb03"]),
            (&["0000:03:00.0"], &["GPU-00000000-0300-0000-0000-000000000000"]),
        ] {
            assert_eq!(chosen(names).unwrap(), uuids, "{names:?}");
        }
    }

    #[test]
    fn a_card_that_is_not_there_or_not_one_is_named_with_those_that_are() {
        let stated = |names: &[&str]| chosen(names).unwrap_err().to_string();
        assert!(stated(&["7"]).contains("the cards are 0 NVIDIA H200 (GPU-aa01), 1 NVIDIA H200"));
        assert!(stated(&["H200"]).contains("one card, 0 NVIDIA H200 (GPU-aa01), 1 NVIDIA H200 (GPU-aa02);"));
        assert!(stated(&["0", "GPU-aa01"]).contains("are the same card"));
        assert!(stated(&[""]).contains("no card ``"));
    }

    #[test]
    fn a_budget_stands_behind_the_card_and_a_whole_uuid_needs_no_driver() {
        let uuid = "GPU-00112233-4455-6677-8899-aabbccddeeff";
        let wanted: RequestedCard = format!("{uuid}=20GiB").parse().unwrap();
        let chosen = choose(&[wanted], &[]).unwrap();
        assert_eq!(chosen[0].uuid, uuid);
        assert_eq!(chosen[0].budget, Some(Bytes::gib(20)));
        assert!("0=much".parse::<RequestedCard>().is_err());
        let error = choose(&["0".parse().unwrap()], &[]).unwrap_err();
        assert!(error.to_string().contains("no NVIDIA card is visible"));
    }
}
