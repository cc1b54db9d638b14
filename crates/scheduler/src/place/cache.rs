//! Cache of a model's memory needs, one for each set of cards.
//!
//! A waiting model is placed again at every change, and planning its memory is the slowest part.

use std::cell::RefCell;

use plimsoll_base::{Bytes, Card, CardId, MemoryModel, Reason};

type Shares = Result<Vec<(CardId, Bytes)>, Reason>;
type CardsAsked = Vec<(CardId, Bytes)>;

/// Answers kept at most; beyond that all are dropped.
const KEPT: usize = 256;

/// Cached memory needs of one waiting model; not to be shared between models.
#[derive(Clone, Debug, Default)]
pub struct DemandCache(RefCell<Vec<(CardsAsked, Shares)>>);

impl DemandCache {
    /// The answer for cards with so much free memory each.
    pub(super) fn ask(&self, demand: &dyn MemoryModel, cards: &[(&Card, Bytes)]) -> Shares {
        let same = |asked: &CardsAsked| {
            let asked = asked.iter().map(|(id, free)| (id, *free));
            asked.eq(cards.iter().map(|(card, free)| (&card.id, *free)))
        };
        let mut kept = self.0.borrow_mut();
        // The latest is the most likely.
        if let Some((_, answer)) = kept.iter().rev().find(|(asked, _)| same(asked)) {
            return answer.clone();
        }
        let question: CardsAsked = cards.iter().map(|(card, free)| (card.id.clone(), *free)).collect();
        let cards: Vec<Card> =
            cards.iter().map(|(card, free)| Card { free: *free, ..(*card).clone() }).collect();
        let answer = demand.on(&cards);
        // Free memory moves all the time while a model waits for long, so that old answers are not asked for
        // again.
        if kept.len() == KEPT {
            kept.clear();
        }
        kept.push((question, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use plimsoll_base::{CardKind, Counting as Counts};

    use super::*;

    #[derive(Debug, Default)]
    struct Counting(AtomicU64);

    impl MemoryModel for Counting {
        fn on(&self, _: &[Card]) -> Shares {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Vec::new())
        }
    }

    #[test]
    fn the_same_question_is_asked_once_and_another_again() {
        let card = Card {
            id: CardId::new("a"),
            kind: CardKind::Cuda,
            name: "a".to_owned(),
            uuid: None,
            total: Bytes::gib(8),
            free: Bytes::gib(8),
            compute_capability: None,
            legacy_pool: false,
            shares_host: false,
            counting: Counts::Driver,
        };
        let less = Card { free: Bytes::gib(4), ..card.clone() };
        let (demand, answers) = (Counting::default(), DemandCache::default());
        for card in [&card, &card, &less, &card] {
            assert_eq!(answers.ask(&demand, &[(card, card.free)]), Ok(Vec::new()));
        }
        assert_eq!(demand.0.into_inner(), 2);
    }
}
