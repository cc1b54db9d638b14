//! Computes the memory of an engine whose flags reserve a share of each card, as vLLM's do.

use plimsoll_base::{Bytes, Card, CardId, MemoryModel, Reason};
use plimsoll_config::CardPart;

/// The part of each card, on as many cards as the engine computes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartOfCards {
    pub(super) part: CardPart,
    /// The need that the configuration declares, where that is less.
    pub(super) declared: Option<Bytes>,
}

impl PartOfCards {
    /// The part of a command that takes more of one of these cards than is declared.
    ///
    /// DECISION: the engine takes its part whatever is declared, so the larger is claimed. A smaller claim
    /// would let a second model in, and one of the two would die.
    pub(super) fn beyond(part: Option<CardPart>, declared: Bytes, cards: &[Card]) -> Option<Self> {
        let each = |part: &CardPart| declared.scaled(1, u64::try_from(part.cards).unwrap_or(u64::MAX));
        let is_more = |part: &CardPart| cards.iter().any(|card| part.of(card.total) > each(part));
        let part = part.filter(is_more)?;
        Some(Self { part, declared: Some(declared) })
    }
}

impl MemoryModel for PartOfCards {
    fn ignores_free(&self, _: &[Card]) -> bool {
        true
    }

    fn on(&self, cards: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason> {
        let wanted = self.part.cards;
        if cards.len() != wanted {
            let text = match wanted {
                1 => "the model's command computes on exactly one card".to_owned(),
                _ => format!("the model's command computes on exactly {wanted} cards together"),
            };
            return Err(Reason::new("other_number_of_cards", text));
        }
        // The engine takes the part of the whole card, whatever budget there is on it.
        Ok(cards.iter().map(|card| (card.id.clone(), self.part.of(card.total))).collect())
    }

    fn doubts(&self, cards: &[Card]) -> Vec<Reason> {
        let Some((declared, card)) = self.declared.zip(cards.first()) else { return Vec::new() };
        let (flag, value) = (self.part.flag, self.part.value());
        let each = declared.scaled(1, u64::try_from(self.part.cards).unwrap_or(u64::MAX));
        let remedy = match self.part.within(each, card.total) {
            Some(within) => format!("`{flag} {within}` takes no more than that"),
            None => format!("no `{flag}` takes as little"),
        };
        let text = format!(
            "`{flag} {value}` takes {} of {}, and `memory` says {declared}: {remedy}",
            self.part.of(card.total),
            card.name,
        );
        vec![Reason::new("memory_below_share", text)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_is_of_the_whole_card_and_of_as_many_as_the_command_says() {
        let cards: Vec<Card> = ["name=a,total=100GiB,cc=9.0", "name=b,total=50GiB,cc=9.0"]
            .map(|text| text.parse().unwrap())
            .into();
        let (flag, beyond) = ("--gpu-memory-utilization", Bytes::ZERO);
        let of = |count| CardPart { millionths: 450_000, flag, cards: count, beyond, alongside: None };
        let part = |count| PartOfCards { part: of(count), declared: None };
        let on = |count, cards: &[Card]| {
            part(count).on(cards).map(|shares| shares.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>())
        };
        assert_eq!(on(1, &cards[..1]), Ok(vec![Bytes::gib(45)]));
        assert_eq!(on(2, &cards), Ok(vec![Bytes::gib(45), Bytes::mib(22 * 1024 + 512)]));
        assert_eq!(on(2, &cards[..1]).unwrap_err().code, "other_number_of_cards");
        assert_eq!(on(1, &[]).unwrap_err().code, "other_number_of_cards");
    }

    #[test]
    fn a_declared_need_below_the_part_is_reported_with_the_share_that_keeps_to_it() {
        let card: Card = "name=a,total=24GiB,cc=8.6".parse().unwrap();
        let (flag, beyond) = ("--gpu-memory-utilization", Bytes::mib(550));
        let part = CardPart { millionths: 900_000, flag, cards: 1, beyond, alongside: None };
        let cards = [card];
        let found = PartOfCards::beyond(Some(part), Bytes::gib(10), &cards).unwrap();
        assert_eq!(found.on(&cards).unwrap()[0].1, part.of(Bytes::gib(24)));
        let doubt = found.doubts(&cards).remove(0);
        assert!(
            doubt.text.ends_with(
                "and `memory` says 10240 MiB: `--gpu-memory-utilization 0.39` takes no more than that"
            ),
            "{}",
            doubt.text
        );
        assert!(PartOfCards::beyond(Some(part), Bytes::gib(23), &cards).is_none());
    }
}
