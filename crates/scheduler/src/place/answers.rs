//! What a demand has answered before.
//!
//! While a model waits it is placed again at every change, and a plan is dear beside that. The same cards with
//! the same free memory get the same answer, so it is kept as long as the model waits.

use std::cell::RefCell;

use plimsoll_base::{Bytes, Card, CardId, Demand, Reason};

type Answer = Result<Vec<(CardId, Bytes)>, Reason>;
type Question = Vec<(CardId, Bytes)>;

/// Answers that are kept at most; beyond that all are forgotten.
const KEPT: usize = 256;

/// The memory of one waiting model; not for several demands.
#[derive(Debug, Default)]
pub struct Answers(RefCell<Vec<(Question, Answer)>>);

impl Answers {
    pub(super) fn ask(&self, demand: &dyn Demand, cards: &[Card]) -> Answer {
        let question: Question = cards.iter().map(|card| (card.id.clone(), card.free)).collect();
        let mut kept = self.0.borrow_mut();
        if let Some((_, answer)) = kept.iter().find(|(asked, _)| *asked == question) {
            return answer.clone();
        }
        let answer = demand.on(cards);
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

    impl Demand for Counting {
        fn on(&self, _: &[Card]) -> Answer {
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
            counting: Counts::Driver,
        };
        let less = Card {
            free: Bytes::gib(4),
            ..card.clone()
        };
        let (demand, answers) = (Counting::default(), Answers::default());
        for card in [&card, &card, &less, &card] {
            assert_eq!(answers.ask(&demand, std::slice::from_ref(card)), Ok(Vec::new()));
        }
        assert_eq!(demand.0.into_inner(), 2);
    }
}
