//! What a model asks of a set of cards.
//!
//! A demand is a function, not a number: planned models answer with their plan for exactly these cards,
//! declared ones divide what the user wrote, and a model that nobody knows takes one whole card. A demand says
//! how much it would take; whether that much is there is the ledger's business, so it never refuses for size.

use std::fmt;

use serde::Serialize;

use super::card::{Card, CardId};
use super::curve::Curve;
use crate::Bytes;
use crate::{Hint, Reason};

/// One life of one engine. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RunId(pub u64);

/// Bytes on one card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    pub card: CardId,
    pub bytes: Bytes,
}

impl Share {
    pub fn new(card: CardId, bytes: Bytes) -> Self {
        Self { card, bytes }
    }
}

/// Where a run goes and what it may take there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// In the order of the machine's cards; empty for an engine that needs no card.
    pub shares: Vec<Share>,
    /// The run takes its card whole because nobody knows what it needs.
    pub alone: bool,
}

impl Placement {
    /// Returns what the placement takes on `card`; nothing where it does not go.
    pub fn on(&self, card: &CardId) -> Bytes {
        let on_card = self.shares.iter().filter(|share| share.card == *card);
        on_card.map(|share| share.bytes).sum()
    }

    pub fn cards(&self) -> impl Iterator<Item = &CardId> {
        self.shares.iter().map(|share| &share.card)
    }

    pub fn total(&self) -> Bytes {
        self.shares.iter().map(|share| share.bytes).sum()
    }
}

/// Cards that a model's own flags name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// It must have these.
    pub cards: Vec<CardId>,
    /// And no others.
    pub only: bool,
}

impl Named {
    /// False for a card that the flags rule out.
    pub fn allows(&self, card: &CardId) -> bool {
        !self.only || self.cards.contains(card)
    }
}

static NO_NAMES: Named = Named {
    cards: Vec::new(),
    only: false,
};

/// What a model needs, as a function of the cards it gets.
pub trait Demand: fmt::Debug + Send + Sync {
    /// Returns what the model would take on these cards, each at its peak.
    ///
    /// `free` of each card is what the model could have there at best. The error says why the model cannot run
    /// on this set at all, whatever is free; that it is too small is not such a reason.
    fn on(&self, cards: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason>;

    /// The cards that it names itself; it is asked about no set that does not suit them.
    fn named(&self) -> &Named {
        &NO_NAMES
    }

    /// Nobody knows the need: the model gets one card whole and alone, until it is measured.
    fn alone(&self) -> bool {
        false
    }

    /// What the model takes on these cards at each depth; or, in words, why its depth is not watched.
    fn curve(&self, _cards: &[Card]) -> Result<Curve, String> {
        Err("how its need grows with depth is not known".to_owned())
    }

    /// The context that it gets instead of the one that it asks for, because that is too large for these cards.
    fn lowered_context(&self) -> Option<u64> {
        None
    }

    /// Returns what would make the model smaller, best first.
    fn hints(&self, _cards: &[Card]) -> Vec<Hint> {
        Vec::new()
    }

    /// Returns what the engine itself will ask of each of these cards in all, without the driver's context, where that is known.
    fn asked(&self, _cards: &[Card]) -> Vec<(CardId, Bytes)> {
        Vec::new()
    }
}

/// The user wrote down how much the model takes. On several cards it is divided as their free memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared(pub Bytes);

impl Demand for Declared {
    fn on(&self, cards: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason> {
        let free: Bytes = cards.iter().map(|card| card.free).sum();
        let Some((last, others)) = cards.split_last() else {
            return match self.0.is_zero() {
                true => Ok(Vec::new()),
                false => {
                    Err(Reason::new("no_card", "it needs a card and there is none").fact("need", self.0))
                }
            };
        };
        let mut rest = self.0;
        let mut shares = Vec::with_capacity(cards.len());
        for card in others {
            let share = self.0.scaled(card.free.get(), free.get());
            rest = rest.saturating_sub(share);
            shares.push((card.id.clone(), share));
        }
        shares.push((last.id.clone(), rest));
        Ok(shares)
    }
}

/// Nobody knows how much the model takes: one whole card, alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unknown;

impl Demand for Unknown {
    fn on(&self, cards: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason> {
        match cards {
            [card] => Ok(vec![(card.id.clone(), card.free)]),
            _ => Err(Reason::new(
                "unknown_need",
                "what it takes is not known, so it gets exactly one card to itself",
            )),
        }
    }

    fn alone(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CardKind, Counting};

    fn card(name: &str, free: Bytes) -> Card {
        Card {
            id: CardId::new(name),
            kind: CardKind::Cuda,
            name: name.to_owned(),
            uuid: None,
            total: free,
            free,
            compute_capability: None,
            legacy_pool: false,
            counting: Counting::Driver,
        }
    }

    #[test]
    fn declared_memory_is_divided_as_free_memory_is_and_loses_no_byte() {
        let cards = [card("a", Bytes::new(100)), card("b", Bytes::new(200))];
        let shares = Declared(Bytes::new(100)).on(&cards).unwrap();
        assert_eq!(
            shares,
            [
                (CardId::new("a"), Bytes::new(33)),
                (CardId::new("b"), Bytes::new(67))
            ]
        );
    }

    #[test]
    fn a_need_of_nothing_is_met_without_a_card() {
        assert_eq!(Declared(Bytes::ZERO).on(&[]), Ok(Vec::new()));
        assert_eq!(Declared(Bytes::new(1)).on(&[]).unwrap_err().code, "no_card");
    }

    #[test]
    fn an_unknown_need_takes_one_whole_card_alone() {
        let cards = [card("a", Bytes::mib(9)), card("b", Bytes::mib(9))];
        assert_eq!(
            Unknown.on(&cards[..1]),
            Ok(vec![(CardId::new("a"), Bytes::mib(9))])
        );
        assert_eq!(Unknown.on(&cards).unwrap_err().code, "unknown_need");
        assert!(Unknown.alone());
    }
}
