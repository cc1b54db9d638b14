//! Reads `--card` of `plan`, `serve` and `init`: a description of a card, or the number, UUID or PCI address
//! of a card of this machine.

use std::str::FromStr;

use plimsoll_base::{CardSpec, CardSpecError, find_card, is_card_identity};
use plimsoll_cards::Machine;

use crate::report::ErrorReport;

/// One `--card`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CardChoice {
    Described(CardSpec),
    /// The card of this machine with this number, UUID or address.
    Here(String),
}

impl FromStr for CardChoice {
    type Err = CardSpecError;

    fn from_str(text: &str) -> Result<Self, CardSpecError> {
        match text.parse() {
            Ok(spec) => Ok(Self::Described(spec)),
            Err(CardSpecError::Unknown { name, .. }) if name == text.trim() && is_card_identity(&name) => {
                Ok(Self::Here(name))
            }
            Err(error) => Err(error),
        }
    }
}

impl CardChoice {
    pub(super) fn is_here(&self) -> bool {
        matches!(self, Self::Here(_))
    }
}

/// What these choices stand for. `look` is called only if one is a card of this machine.
pub(super) fn described(
    choices: &[CardChoice],
    look: impl FnOnce() -> Result<Machine, ErrorReport>,
) -> Result<Vec<CardSpec>, ErrorReport> {
    let machine = if choices.iter().any(CardChoice::is_here) { Some(look()?) } else { None };
    let spec = |choice: &CardChoice| match choice {
        CardChoice::Described(spec) => Ok(spec.clone()),
        CardChoice::Here(name) => card_here(name, machine.as_ref()),
    };
    choices.iter().map(spec).collect()
}

fn card_here(name: &str, machine: Option<&Machine>) -> Result<CardSpec, ErrorReport> {
    let names = machine.map_or_else(Vec::new, Machine::names);
    let number = find_card(name, &names).map_err(|error| {
        ErrorReport::new(format!(
            "{error}\nhint: give a card of another machine by its product name, as --card \"RX 7900 XTX\""
        ))
    })?;
    let card = machine.and_then(|machine| machine.numbered(number)).ok_or_else(|| {
        let name = &names[number].name;
        ErrorReport::new(format!(
            "the memory of the {name} is unknown; `plimsoll doctor` shows why\nhint: describe it, as \
                --card \"name={name},total=SIZE\""
        ))
    })?;
    Ok(CardSpec { cards: vec![card], doubts: Vec::new() })
}

#[cfg(test)]
mod tests {
    use plimsoll_base::{Bytes, Card};

    use super::*;

    fn machine() -> Machine {
        let h200 = "name=NVIDIA H200,uuid=GPU-1,total=141GiB,free=100GiB,cc=9.0".parse().unwrap();
        Machine {
            cards: vec![h200],
            kernel_cards: Vec::new(),
            host: None,
            unified: false,
            driver: None,
            notes: Vec::new(),
        }
    }

    fn chosen(text: &str) -> Result<Card, String> {
        let choice = text.parse::<CardChoice>().map_err(|error| error.to_string())?;
        let mut specs = described(&[choice], || Ok(machine())).map_err(|report| report.to_string())?;
        Ok(specs.remove(0).cards.remove(0))
    }

    #[test]
    fn an_identity_is_a_card_of_this_machine_and_a_product_is_not() {
        for here in ["0", "GPU-1"] {
            let card = chosen(here).unwrap();
            assert_eq!((card.uuid.as_deref(), card.free), (Some("GPU-1"), Bytes::gib(100)));
        }
        assert_eq!(chosen("H200").unwrap().uuid, None);
    }

    #[test]
    fn an_absent_card_is_an_error_that_names_those_that_are_here() {
        for absent in ["3", "GPU-2", "0000:c1:00.0", "c1:00.0"] {
            let error = chosen(absent).unwrap_err();
            assert!(error.contains("the cards are 0 NVIDIA H200 (GPU-1)"), "{error}");
        }
        for unknown in ["4095", "toaster", "2xGPU-1"] {
            assert!(chosen(unknown).unwrap_err().contains("is not a known card"), "{unknown}");
        }
    }
}
