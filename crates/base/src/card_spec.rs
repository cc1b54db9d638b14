//! Parser of card descriptions, such as `name=H200,total=143771MiB,free=140000MiB,cc=9.0`.
//!
//! This is the syntax of `--card`, which describes a card that is not in this machine or sets a budget on one
//! that is. Only `name` and `total` are required.

use std::str::FromStr;

use super::card::{Card, CardId, CardKind, Counting};
use crate::{Bytes, ParseBytesError};

/// Error: a card description cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardSpecError {
    #[error(
        "`{word}` in card `{spec}` is not of the form key=value; write for example \
        name=RTX4090,total=24GiB,cc=8.9"
    )]
    SplitPair { spec: String, word: String },
    #[error(
        "card `{spec}` has no key `{key}`; the keys are name, total, free, cc, uuid, kind (cuda or host), pool (vmm or legacy), budget"
    )]
    FindKey { spec: String, key: String },
    #[error("card `{spec}` lacks `{key}`; write for example name=RTX4090,total=24GiB,cc=8.9")]
    Incomplete { spec: String, key: &'static str },
    #[error("`{key}={value}` in card `{spec}` cannot be read; write {expected}")]
    ReadValue {
        spec: String,
        key: String,
        value: String,
        expected: &'static str,
    },
    #[error("`{key}` in card `{spec}`: {error}")]
    ReadSize {
        spec: String,
        key: String,
        error: ParseBytesError,
    },
    #[error("card `{spec}` has {free} free of {total}; free memory cannot exceed total memory")]
    FreeBeyondTotal { spec: String, free: Bytes, total: Bytes },
}

impl FromStr for Card {
    type Err = CardSpecError;

    fn from_str(spec: &str) -> Result<Self, Self::Err> {
        let mut draft = Draft::default();
        for word in spec.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let Some((key, value)) = word.split_once('=') else {
                return Err(CardSpecError::SplitPair {
                    spec: spec.to_owned(),
                    word: word.to_owned(),
                });
            };
            draft.take(spec, key.trim(), value.trim())?;
        }
        draft.finish(spec)
    }
}

#[derive(Default)]
struct Draft<'a> {
    name: Option<&'a str>,
    uuid: Option<&'a str>,
    total: Option<Bytes>,
    free: Option<Bytes>,
    budget: Option<Bytes>,
    compute_capability: Option<(u32, u32)>,
    host: bool,
    legacy_pool: bool,
}

impl<'a> Draft<'a> {
    fn take(&mut self, spec: &str, key: &str, value: &'a str) -> Result<(), CardSpecError> {
        let unreadable = |expected| CardSpecError::ReadValue {
            spec: spec.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        };
        let size = || {
            let error = |error| CardSpecError::ReadSize {
                spec: spec.to_owned(),
                key: key.to_owned(),
                error,
            };
            value.parse().map(Some).map_err(error)
        };
        match (key, value) {
            ("name", _) => self.name = Some(value),
            ("uuid", _) => self.uuid = Some(value),
            ("total", _) => self.total = size()?,
            ("free", _) => self.free = size()?,
            ("budget", _) => self.budget = size()?,
            ("cc", _) => {
                let capability = compute_capability(value).ok_or_else(|| unreadable("e.g. cc=8.9"))?;
                self.compute_capability = Some(capability);
            }
            // Unknown words are errors rather than defaults: a typo in `kind` would plan for the wrong
            // memory.
            ("kind", "cuda" | "host") => self.host = value == "host",
            ("kind", _) => return Err(unreadable("kind=cuda or kind=host")),
            ("pool", "vmm" | "legacy") => self.legacy_pool = value == "legacy",
            ("pool", _) => return Err(unreadable("pool=vmm or pool=legacy")),
            _ => {
                return Err(CardSpecError::FindKey {
                    spec: spec.to_owned(),
                    key: key.to_owned(),
                });
            }
        }
        Ok(())
    }

    fn finish(self, spec: &str) -> Result<Card, CardSpecError> {
        let lacks = |key| CardSpecError::Incomplete {
            spec: spec.to_owned(),
            key,
        };
        let name = self
            .name
            .filter(|name| !name.is_empty())
            .ok_or_else(|| lacks("name"))?;
        let total = self.total.ok_or_else(|| lacks("total"))?;
        // A described card is taken as idle.
        let free = self.free.unwrap_or(total);
        if free > total {
            return Err(CardSpecError::FreeBeyondTotal {
                spec: spec.to_owned(),
                free,
                total,
            });
        }
        let card = Card {
            // The UUID wins, so that a description with one meets the real card of a machine.
            id: CardId::new(self.uuid.unwrap_or(name)),
            kind: if self.host { CardKind::Host } else { CardKind::Cuda },
            name: name.to_owned(),
            uuid: self.uuid.map(str::to_owned),
            total,
            free,
            compute_capability: self.compute_capability,
            legacy_pool: self.legacy_pool,
            counting: Counting::Driver,
        };
        Ok(match self.budget {
            Some(budget) => card.guarded(budget),
            None => card,
        })
    }
}

fn compute_capability(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_all_of_the_card_that_there_is_and_guard_counts_it() {
        let held = |more: &str| {
            let spec = format!("name=H200,total=143771MiB{more},budget=4GiB");
            let card: Card = spec.parse().unwrap();
            (card.total, card.free, card.counting)
        };
        let budget = Bytes::mib(4096);
        assert_eq!(held(""), (budget, budget, Counting::Guard));
        let left = Bytes::mib(2048);
        assert_eq!(held(",free=2GiB"), (left, left, Counting::Guard));
    }

    #[test]
    fn a_card_is_read_from_its_words() {
        let card: Card = "name=H200,total=143771MiB,free=140000MiB,cc=9.0".parse().unwrap();
        assert_eq!((card.id.as_str(), card.kind), ("H200", CardKind::Cuda));
        assert_eq!(
            (card.total, card.free),
            (Bytes::mib(143_771), Bytes::mib(140_000))
        );
        assert_eq!(card.compute_capability, Some((9, 0)));
        let host: Card = "name=ram, kind=host, total=8GiB".parse().unwrap();
        assert_eq!((host.kind, host.free), (CardKind::Host, Bytes::gib(8)));
        let named: Card = "uuid=GPU-1,name=A,total=1GiB,pool=legacy".parse().unwrap();
        assert_eq!((named.id.as_str(), named.legacy_pool), ("GPU-1", true));
    }

    #[test]
    fn what_is_wrong_is_named_with_a_remedy() {
        for (spec, said) in [
            ("H200", "is not of the form key=value"),
            ("name=x", "lacks `total`"),
            ("total=1GiB", "lacks `name`"),
            ("name=x,total=much", "is not a size"),
            (
                "name=x,total=1GiB,free=2GiB",
                "free memory cannot exceed total memory",
            ),
            ("name=x,total=1GiB,cc=nine", "write e.g. cc=8.9"),
            ("name=x,total=1GiB,color=red", "has no key `color`"),
            ("name=x,total=1GiB,kind=rom", "kind=cuda or kind=host"),
        ] {
            let error = spec.parse::<Card>().unwrap_err().to_string();
            assert!(error.contains(said), "{spec}: {error}");
        }
    }
}
