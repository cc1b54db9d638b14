//! Finds the cards of a machine that a user names by number, UUID, PCI address or product name.
//!
//! DECISION: one rule for all commands, so that a name means the same card to each. Numbers, UUIDs and
//! addresses are identities: one that no card here has is an error, never a part of a name.

use plimsoll_wire::options::Uuid;

use super::card_table::is_same_product;
use crate::{Card, CardMaker};

/// Cards of a machine that are numbered; larger numbers are product names (`4090`).
const MOST_NUMBERS: usize = 256;

/// All that a card may be called by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardNames {
    pub id: String,
    /// The product name.
    pub name: String,
    pub uuid: Option<String>,
    /// Address on the PCI bus, `0000:03:00.0`.
    pub address: Option<String>,
    pub maker: CardMaker,
}

/// Error: a name does not mean one card of this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindCardError {
    #[error("there is no card `{card}`; the cards are {present}")]
    Absent { card: String, present: String },
    #[error("there is no card `{card}`: no GPU is visible; `plimsoll doctor` shows why")]
    NoCards { card: String },
    #[error("`{card}` matches more than one card, {several}; name one by its number, UUID or PCI address")]
    Several { card: String, several: String },
}

impl Card {
    pub fn names(&self) -> CardNames {
        CardNames {
            id: self.id.to_string(),
            name: self.name.clone(),
            uuid: self.uuid.clone(),
            address: self.address.clone(),
            maker: self.maker,
        }
    }
}

impl CardNames {
    /// The identity that guard knows a card by: NVIDIA's UUID as its library writes it, the place of others.
    pub fn of_guard(&self) -> Option<String> {
        match self.maker {
            CardMaker::Nvidia => self.uuid.clone(),
            CardMaker::Amd | CardMaker::Intel | CardMaker::Apple => {
                Uuid::of_address(self.address.as_deref()?).map(|place| place.to_string())
            }
        }
    }
}

/// How a text names a card.
enum Named<'a> {
    Number(usize),
    /// A UUID or its beginning.
    Uuid(&'a str),
    Address([u32; 4]),
    Product(&'a str),
}

impl<'a> Named<'a> {
    fn read(text: &'a str) -> Self {
        // A number is never part of a name: `4090` must not select the card by its name on one machine and by
        // its number on another.
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::Number(text.parse().unwrap_or(usize::MAX));
        }
        if let Some(place) = place(text) {
            return Self::Address(place);
        }
        let is_uuid = text.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("GPU-"));
        if is_uuid { Self::Uuid(text) } else { Self::Product(text) }
    }
}

/// True for a text that can only mean a card of this machine: a number, a UUID or a PCI address.
pub fn is_card_identity(text: &str) -> bool {
    match Named::read(text.trim()) {
        Named::Number(number) => number < MOST_NUMBERS,
        Named::Uuid(_) | Named::Address(_) => true,
        Named::Product(_) => false,
    }
}

/// The places in `present` of the cards that `name` means, at least one.
pub fn find_cards(name: &str, present: &[CardNames]) -> Result<Vec<usize>, FindCardError> {
    let name = name.trim();
    let found = match Named::read(name) {
        _ if name.is_empty() => Vec::new(),
        Named::Number(number) => (number < present.len()).then_some(number).into_iter().collect(),
        Named::Uuid(wanted) => {
            places(present, |card| card.uuid.as_deref().is_some_and(|uuid| begins(uuid, wanted)))
        }
        Named::Address(wanted) => {
            places(present, |card| card.address.as_deref().and_then(place) == Some(wanted))
        }
        Named::Product(wanted) => by_product(wanted, present),
    };
    let card = || name.to_owned();
    match (found.is_empty(), present.is_empty()) {
        (false, _) => Ok(found),
        (true, true) => Err(FindCardError::NoCards { card: card() }),
        (true, false) => {
            Err(FindCardError::Absent { card: card(), present: listed(present.iter().enumerate()) })
        }
    }
}

/// The same for a name that has to mean one card.
pub fn find_card(name: &str, present: &[CardNames]) -> Result<usize, FindCardError> {
    match find_cards(name, present)?.as_slice() {
        [one] => Ok(*one),
        several => Err(FindCardError::Several {
            card: name.trim().to_owned(),
            several: listed(several.iter().filter_map(|&number| Some((number, present.get(number)?)))),
        }),
    }
}

/// By a whole name or id, by another name of the same product, else by a part of a name.
///
/// An exact name wins, because `NVIDIA H100` is also a part of `NVIDIA H100 NVL`.
fn by_product(wanted: &str, present: &[CardNames]) -> Vec<usize> {
    let same = |own: &str| own.eq_ignore_ascii_case(wanted);
    let exact = places(present, |card| same(&card.name) || same(&card.id));
    if !exact.is_empty() {
        return exact;
    }
    let of_product = places(present, |card| is_same_product(&card.name, wanted));
    if !of_product.is_empty() {
        return of_product;
    }
    let lower = wanted.to_ascii_lowercase();
    places(present, |card| card.name.to_ascii_lowercase().contains(&lower))
}

/// The places of the cards for which `fits` is true.
fn places(present: &[CardNames], fits: impl Fn(&CardNames) -> bool) -> Vec<usize> {
    let all = present.iter().enumerate();
    all.filter(|(_, card)| fits(card)).map(|(number, _)| number).collect()
}

fn begins(text: &str, with: &str) -> bool {
    text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with))
}

/// Domain, bus, device and function of a PCI address, whose domain may be left out as `lspci` does.
fn place(text: &str) -> Option<[u32; 4]> {
    let (rest, function) = text.rsplit_once('.')?;
    let parts: Vec<&str> = rest.split(':').collect();
    let hexadecimal = |text: &str, digits: usize| {
        let is_plain = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        u32::from_str_radix(text, 16).ok().filter(|_| is_plain)
    };
    let function = hexadecimal(function, 1).filter(|function| *function < 8)?;
    match parts.as_slice() {
        [bus, device] => Some([0, hexadecimal(bus, 2)?, hexadecimal(device, 2)?, function]),
        [domain, bus, device] => {
            Some([hexadecimal(domain, 4)?, hexadecimal(bus, 2)?, hexadecimal(device, 2)?, function])
        }
        _ => None,
    }
}

fn listed<'a>(cards: impl Iterator<Item = (usize, &'a CardNames)>) -> String {
    let each = cards.map(|(number, card)| {
        let identity = card.uuid.as_deref().or(card.address.as_deref()).unwrap_or(&card.id);
        if identity == card.name {
            format!("{number} {identity}")
        } else {
            format!("{number} {} ({identity})", card.name)
        }
    });
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn card(name: &str, uuid: Option<&str>, address: &str, maker: CardMaker) -> CardNames {
        CardNames {
            id: uuid.unwrap_or(address).to_owned(),
            name: name.to_owned(),
            uuid: uuid.map(str::to_owned),
            address: Some(address.to_owned()),
            maker,
        }
    }

    fn present() -> Vec<CardNames> {
        use CardMaker::{Amd, Intel, Nvidia};
        vec![
            card("NVIDIA H200", Some("GPU-aa01"), "0000:03:00.0", Nvidia),
            card("NVIDIA H200", Some("GPU-aa02"), "0000:04:00.0", Nvidia),
            card("NVIDIA L4", Some("GPU-bb03"), "0000:05:00.0", Nvidia),
            card("AMD Radeon 8060S Graphics", None, "0000:c1:00.0", Amd),
            card("Intel Arc B580", None, "0000:0b:00.0", Intel),
        ]
    }

    #[test]
    fn a_card_is_named_by_number_uuid_address_or_product() {
        for (name, found) in [
            ("2", &[2][..]),
            ("GPU-aa02", &[1]),
            ("gpu-B", &[2]),
            ("nvidia l4", &[2]),
            ("L4", &[2]),
            ("H200", &[0, 1]),
            ("0000:C1:00.0", &[3]),
            ("0b:00.0", &[4]),
            ("Strix Halo", &[3]),
            ("Ryzen AI Max+ 395", &[3]),
            ("Strix Halo 64GB", &[3]),
            ("8060S", &[3]),
            (" B580 ", &[4]),
        ] {
            assert_eq!(find_cards(name, &present()).unwrap(), found, "{name}");
        }
        assert_eq!(find_card("0000:0b:00.0", &present()), Ok(4));
    }

    #[test]
    fn a_card_that_is_not_there_is_an_error_that_names_those_that_are() {
        for absent in ["7", "4090", "GPU-cc", "0000:77:00.0", "77:00.0", "0001:c1:00.0", "RX 7900 XTX", ""] {
            let error = find_card(absent, &present()).unwrap_err().to_string();
            let stated = format!("there is no card `{absent}`; the cards are 0 NVIDIA H200 (GPU-aa01), 1 ");
            assert!(error.starts_with(&stated), "{error}");
            assert!(
                error
                    .ends_with("3 AMD Radeon 8060S Graphics (0000:c1:00.0), 4 Intel Arc B580 (0000:0b:00.0)")
            );
            assert!(find_card(absent, &[]).unwrap_err().to_string().contains("no GPU is visible"));
        }
        let several = find_card("H200", &present()).unwrap_err().to_string();
        assert!(
            several.contains("0 NVIDIA H200 (GPU-aa01), 1 NVIDIA H200 (GPU-aa02); name one"),
            "{several}"
        );
    }

    #[test]
    fn an_identity_is_distinguished_from_a_product() {
        for identity in ["0", "15", "GPU-1", "gpu-946d7e1ef9b172dd", "0000:c1:00.0", "c1:00.0"] {
            assert!(is_card_identity(identity), "{identity}");
        }
        for product in ["3090", "RX 7900 XTX", "", "2x3060", "host", "0000:c1:00.8", "1:00.0"] {
            assert!(!is_card_identity(product), "{product}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_an_identity_never_finds_another_card(name in "[ -~é]{0,24}") {
            if let Ok(found) = find_cards(&name, &present()) {
                prop_assert!(!found.is_empty());
                let is_address = place(name.trim()).is_some();
                let own = |at: &usize| present()[*at].address.as_deref().and_then(place) == place(name.trim());
                prop_assert!(!is_address || found.iter().all(own));
            }
        }
    }
}
