//! Computes the memory of an engine whose flags reserve a share of each card, as vLLM's do.

use plimsoll_base::{Bytes, Card, CardId, MemoryModel, Reason};
use plimsoll_config::CardPart;

/// The part of each card, on as many cards as the engine computes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartOfCards(pub(super) CardPart);

impl MemoryModel for PartOfCards {
    fn ignores_free(&self, _: &[Card]) -> bool {
        true
    }

    fn on(&self, cards: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason> {
        let wanted = self.0.cards;
        if cards.len() != wanted {
            let text = match wanted {
                1 => "the model's command computes on exactly one card".to_owned(),
                _ => format!("the model's command computes on exactly {wanted} cards together"),
            };
            return Err(Reason::new("other_number_of_cards", text));
        }
        // The engine takes the part of the whole card, whatever budget there is on it.
        Ok(cards.iter().map(|card| (card.id.clone(), self.0.of(card.total))).collect())
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
        let part = |count| PartOfCards(CardPart { millionths: 450_000, cards: count, alongside: None });
        let on = |count, cards: &[Card]| {
            part(count).on(cards).map(|shares| shares.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>())
        };
        assert_eq!(on(1, &cards[..1]), Ok(vec![Bytes::gib(45)]));
        assert_eq!(on(2, &cards), Ok(vec![Bytes::gib(45), Bytes::mib(22 * 1024 + 512)]));
        assert_eq!(on(2, &cards[..1]).unwrap_err().code, "other_number_of_cards");
        assert_eq!(on(1, &[]).unwrap_err().code, "other_number_of_cards");
    }
}
