//! Finds the cards that `plimsoll run --card` names, with the budget of each.

use std::str::FromStr;

use plimsoll_base::{Bytes, Card, CardNames, FindCardError, ParseBytesError, find_card};
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
    /// The identity that guard knows it by.
    pub(super) uuid: String,
    pub(super) budget: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CardError {
    #[error(transparent)]
    Find(#[from] FindCardError),
    #[error("`{card}` and `{other}` are the same card; name it once")]
    Twice { card: String, other: String },
    #[error("the card {card} has neither a UUID nor a PCI address, so no program can be limited to it")]
    Unnamed { card: String },
}

/// Finds a card by the identity that guard knows it by, with its number.
pub(super) fn named<'a>(cards: &'a [CardNames], uuid: &str) -> Option<(usize, &'a CardNames)> {
    let mut numbered = cards.iter().enumerate();
    numbered.find(|(_, card)| card.of_guard().is_some_and(|other| other.eq_ignore_ascii_case(uuid)))
}

/// Finds each requested card. Where the machine shows no card, a complete UUID is accepted.
pub(super) fn choose(wanted: &[RequestedCard], present: &[CardNames]) -> Result<Vec<Chosen>, CardError> {
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
        let card = cards.find(|card| card.names().of_guard().as_ref() == Some(&chosen.uuid))?;
        Some(within(card, chosen.budget))
    });
    found.collect()
}

/// The identity to guard of the card with this name.
fn find(name: &str, present: &[CardNames]) -> Result<String, CardError> {
    // In a sandbox without NVML the program may still reach the card through CUDA.
    if present.is_empty() && Uuid::read(name).is_some() {
        return Ok(name.to_owned());
    }
    let card = &present[find_card(name, present)?];
    card.of_guard().ok_or_else(|| CardError::Unnamed { card: card.name.clone() })
}

#[cfg(test)]
mod tests {
    use plimsoll_base::CardMaker;

    use super::*;

    fn card(uuid: Option<&str>, name: &str, address: &str, maker: CardMaker) -> CardNames {
        CardNames {
            id: name.to_owned(),
            name: name.to_owned(),
            uuid: uuid.map(str::to_owned),
            address: Some(address.to_owned()),
            maker,
        }
    }

    fn chosen(names: &[&str]) -> Result<Vec<String>, CardError> {
        let present = [
            card(Some("GPU-aa01"), "NVIDIA H200", "0000:02:00.0", CardMaker::Nvidia),
            card(Some("GPU-aa02"), "NVIDIA H200", "0000:04:00.0", CardMaker::Nvidia),
            card(Some("GPU-946d7e1ef9b172dd"), "AMD Radeon RX 7900 XTX", "0000:03:00.0", CardMaker::Amd),
        ];
        let wanted: Vec<RequestedCard> = names.iter().map(|name| name.parse().unwrap()).collect();
        let chosen = choose(&wanted, &present)?;
        Ok(chosen.into_iter().map(|card| card.uuid).collect())
    }

    #[test]
    fn cards_are_chosen_by_what_guard_calls_them_in_the_order_of_the_line() {
        let amd = "GPU-00000000-0300-0000-0000-000000000000";
        for (names, uuids) in [
            (&["1", "0"][..], &["GPU-aa02", "GPU-aa01"][..]),
            (&["0000:04:00.0"], &["GPU-aa02"]),
            (&["RX 7900 XTX"], &[amd]),
            (&["GPU-946d"], &[amd]),
            (&["0000:03:00.0"], &[amd]),
        ] {
            assert_eq!(chosen(names).unwrap(), uuids, "{names:?}");
        }
    }

    #[test]
    fn a_card_that_is_not_there_or_not_one_is_named_with_those_that_are() {
        let stated = |names: &[&str]| chosen(names).unwrap_err().to_string();
        for absent in ["7", "0000:c1:00.0", "GPU-00000000-c100-0000-0000-000000000000", "B580"] {
            let error = stated(&[absent]);
            assert!(error.contains("the cards are 0 NVIDIA H200 (GPU-aa01), 1 NVIDIA H200"), "{error}");
        }
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
        for absent in ["0", "0000:c1:00.0", "B580"] {
            let error = choose(&[absent.parse().unwrap()], &[]).unwrap_err();
            assert!(error.to_string().contains("no GPU is visible"), "{error}");
        }
    }
}
