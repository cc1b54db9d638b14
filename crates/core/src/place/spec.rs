//! Cards as people write them: `name=H200,total=143771MiB,free=140000MiB,cc=9.0`.
//!
//! `total` is required, `free` is `total` unless given. A card is identified by its UUID, else by its name; equal
//! names are numbered, so that two `name=H200` are `H200` and `H200#2`.

use crate::bytes::{Bytes, ParseBytesError};

use super::{Card, CardId, CardKind};

/// Why a card's description cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardSpecError {
    #[error("`{part}` in card `{spec}` is no key=value; known keys are {KEYS}")]
    NoPair { spec: String, part: String },
    #[error("`{key}` in card `{spec}` is no key of a card; known keys are {KEYS}")]
    UnknownKey { spec: String, key: String },
    #[error("`{key}` is given twice in card `{spec}`")]
    Twice { spec: String, key: String },
    #[error("{key} in card `{spec}`: {source}")]
    Size {
        spec: String,
        key: &'static str,
        source: ParseBytesError,
    },
    #[error("`{value}` in card `{spec}` is no {key}; write {example}")]
    Value {
        spec: String,
        key: &'static str,
        value: String,
        example: &'static str,
    },
    #[error("card `{spec}` has no total; add total=24GiB")]
    NoTotal { spec: String },
    #[error("card `{spec}` has more free ({free}) than in all ({total})")]
    FreeBeyondTotal { spec: String, free: Bytes, total: Bytes },
}

const KEYS: &str = "name, total, free, cc, uuid, pool=legacy, kind=host";

/// Reads the cards of a command line, in their order, and tells equal names apart.
pub fn parse_cards<'a>(specs: impl IntoIterator<Item = &'a str>) -> Result<Vec<Card>, CardSpecError> {
    let mut cards: Vec<Card> = Vec::new();
    for spec in specs {
        let mut card = parse(spec, cards.len())?;
        let base = card.id.clone();
        let mut number = 2;
        while cards.iter().any(|other| other.id == card.id) {
            card.id = CardId::new(&format!("{base}#{number}"));
            number += 1;
        }
        cards.push(card);
    }
    Ok(cards)
}

fn parse(spec: &str, index: usize) -> Result<Card, CardSpecError> {
    let pairs = pairs(spec)?;
    let value = |key: &str| pairs.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
    let size = |key: &'static str| {
        let read = |text: &str| {
            text.parse::<Bytes>().map_err(|source| CardSpecError::Size {
                spec: spec.to_owned(),
                key,
                source,
            })
        };
        value(key).map(read).transpose()
    };
    let total = size("total")?.ok_or_else(|| CardSpecError::NoTotal {
        spec: spec.to_owned(),
    })?;
    let free = size("free")?.unwrap_or(total);
    if free > total {
        return Err(CardSpecError::FreeBeyondTotal {
            spec: spec.to_owned(),
            free,
            total,
        });
    }
    let wrong = |key, value: &str, example| CardSpecError::Value {
        spec: spec.to_owned(),
        key,
        value: value.to_owned(),
        example,
    };
    let kind = match value("kind") {
        None | Some("cuda") => CardKind::Cuda,
        Some("host") => CardKind::Host,
        Some(other) => return Err(wrong("kind", other, "kind=cuda or kind=host")),
    };
    let legacy_pool = match value("pool") {
        None | Some("vmm") => false,
        Some("legacy") => true,
        Some(other) => return Err(wrong("pool", other, "pool=vmm or pool=legacy")),
    };
    let capability = |text: &str| capability(text).ok_or_else(|| wrong("compute capability", text, "cc=9.0"));
    let name = value("name").map_or_else(|| format!("card{index}"), str::to_owned);
    Ok(Card {
        id: CardId::new(value("uuid").unwrap_or(&name)),
        kind,
        name,
        uuid: value("uuid").map(str::to_owned),
        total,
        free,
        compute_capability: value("cc").map(capability).transpose()?,
        legacy_pool,
    })
}

/// `key=value` pairs, each key once.
fn pairs(spec: &str) -> Result<Vec<(&str, &str)>, CardSpecError> {
    const KNOWN: [&str; 7] = ["name", "total", "free", "cc", "uuid", "pool", "kind"];
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for part in spec.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| CardSpecError::NoPair {
            spec: spec.to_owned(),
            part: part.to_owned(),
        })?;
        let (key, value) = (key.trim(), value.trim());
        let (spec, named) = (spec.to_owned(), key.to_owned());
        if !KNOWN.contains(&key) {
            return Err(CardSpecError::UnknownKey { spec, key: named });
        }
        if pairs.iter().any(|(own, _)| *own == key) {
            return Err(CardSpecError::Twice { spec, key: named });
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

fn capability(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(spec: &str) -> String {
        parse_cards([spec]).unwrap_err().to_string()
    }

    #[test]
    fn a_card_is_read_with_everything_it_may_have() {
        let spec = "name=H200,total=143771MiB,free=140000MiB,cc=9.0,uuid=GPU-1,pool=legacy";
        let card = parse_cards([spec]).unwrap().remove(0);
        assert_eq!((card.id.as_str(), card.name.as_str()), ("GPU-1", "H200"));
        assert_eq!(
            (card.total, card.free),
            (Bytes::mib(143_771), Bytes::mib(140_000))
        );
        assert_eq!((card.compute_capability, card.legacy_pool), (Some((9, 0)), true));
        assert_eq!(card.kind, CardKind::Cuda);
    }

    #[test]
    fn equal_names_are_told_apart_and_missing_ones_made() {
        let cards = parse_cards(["name=A,total=1GiB", "name=A,total=1GiB", "total=2G,kind=host"]).unwrap();
        let ids: Vec<&str> = cards.iter().map(|card| card.id.as_str()).collect();
        assert_eq!(ids, ["A", "A#2", "card2"]);
        assert_eq!(cards[2].kind, CardKind::Host);
        assert_eq!(cards[2].free, cards[2].total);
    }

    #[test]
    fn a_wrong_card_is_refused_with_the_remedy() {
        assert!(refusal("name=A").ends_with("add total=24GiB"));
        assert!(refusal("24GiB").contains("no key=value"));
        assert!(refusal("total=1G,colour=red").contains("`colour`"));
        assert!(refusal("total=1G,total=2G").contains("twice"));
        assert!(refusal("total=1G,free=2G").contains("more free"));
        assert!(refusal("total=lots").contains("`lots` is not a size"));
        assert!(refusal("total=1G,cc=nine").contains("write cc=9.0"));
        assert!(refusal("total=1G,pool=warm").contains("pool=legacy"));
    }
}
