//! Divides a card's used memory among its holders, so that the parts add up to the driver's figure.

use plimsoll_base::Bytes;
use serde::Serialize;

/// Planned terms of a run on one card, in the order in which a loading engine takes them.
pub(super) type Terms = [(&'static str, Bytes)];

/// A holder of memory on the card, as measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct HolderReading<'a> {
    pub(super) kind: HolderKind,
    pub(super) name: &'a str,
    pub(super) process: Option<u32>,
    pub(super) bytes: Bytes,
    pub(super) terms: &'a Terms,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HolderKind {
    Model,
    /// A process that is no engine of ours.
    Foreign,
    /// In use according to the driver, and held by no process that it lists.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct CardPart {
    kind: HolderKind,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<u32>,
    bytes: Bytes,
    /// The division of `bytes` by the plan; `growth` is what goes beyond it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    terms: Vec<(&'static str, Bytes)>,
}

// DECISION: the driver's figure for the whole card stands. Where the holders' figures exceed it (they were
// read a moment before, and shared memory counts twice), the last ones are cut; what they leave is `unknown`.
/// The parts of `used`, whose sum it is.
pub(super) fn parts<'a>(used: Bytes, holders: impl IntoIterator<Item = HolderReading<'a>>) -> Vec<CardPart> {
    let mut rest = used;
    let mut take = |holder: HolderReading<'_>| {
        let bytes = holder.bytes.min(rest);
        rest = rest.saturating_sub(bytes);
        let HolderReading { kind, name, process, terms, .. } = holder;
        CardPart { kind, name: name.to_owned(), process, bytes, terms: fitted(bytes, terms) }
    };
    let mut parts: Vec<CardPart> = holders.into_iter().map(&mut take).collect();
    let unknown =
        HolderReading { kind: HolderKind::Unknown, name: "", process: None, bytes: Bytes::MAX, terms: &[] };
    parts.push(take(unknown));
    parts.retain(|part| !part.bytes.is_zero());
    parts
}

/// The planned terms cut to `bytes`, or with the growth beyond the plan; empty without a plan.
fn fitted(bytes: Bytes, terms: &Terms) -> Vec<(&'static str, Bytes)> {
    if terms.is_empty() {
        return Vec::new();
    }
    let mut rest = bytes;
    let all = terms.iter().copied().chain([("growth", Bytes::MAX)]);
    let cut = all.map(|(term, planned)| {
        let taken = planned.min(rest);
        rest = rest.saturating_sub(taken);
        (term, taken)
    });
    cut.filter(|(_, taken)| !taken.is_zero()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn holder(bytes: u64, terms: &Terms) -> HolderReading<'_> {
        HolderReading { kind: HolderKind::Model, name: "a", process: None, bytes: Bytes::new(bytes), terms }
    }

    #[test]
    fn terms_follow_the_plan_and_growth_goes_beyond_it() {
        let terms = [("weights", Bytes::new(6)), ("kv", Bytes::new(3))];
        assert_eq!(fitted(Bytes::new(7), &terms), [("weights", Bytes::new(6)), ("kv", Bytes::new(1))]);
        assert_eq!(fitted(Bytes::new(11), &terms)[2], ("growth", Bytes::new(2)));
        assert!(fitted(Bytes::new(11), &[]).is_empty(), "without a plan nothing is made up");
    }

    proptest! {
        #[test]
        fn parts_and_their_terms_add_up(
            used in 0_u64..1 << 40,
            occupied in proptest::collection::vec((0_u64..1 << 40, proptest::collection::vec(0_u64..1 << 38, 0..4)), 0..6),
        ) {
            let planned: Vec<Vec<_>> =
                occupied.iter().map(|(_, terms)| terms.iter().map(|term| ("kv", Bytes::new(*term))).collect()).collect();
            let holders = occupied.iter().zip(&planned).map(|((bytes, _), terms)| holder(*bytes, terms));
            let parts = parts(Bytes::new(used), holders);
            prop_assert_eq!(parts.iter().map(|part| part.bytes).sum::<Bytes>(), Bytes::new(used));
            for part in parts.iter().filter(|part| !part.terms.is_empty()) {
                prop_assert_eq!(part.terms.iter().map(|(_, bytes)| *bytes).sum::<Bytes>(), part.bytes);
            }
        }
    }
}
