//! Keeps how much memory a model takes on each set of cards that has been planned so far.
//!
//! A waiting model is placed again at every change. Each set of cards is asked about once for the same free
//! memory.

use plimsoll_base::{Bytes, Card, CardId, CardShares, Reason};

/// Answers after which all before are dropped. Free memory moves all the time while a model waits for long,
/// so that old answers are not asked for again.
const KEPT: usize = 2048;

/// Cards, each with the memory that the model could get there.
pub type CardSet = Vec<Card>;

/// What a plan tells of a set of cards.
#[derive(Clone, Debug, PartialEq)]
pub struct NeedAnswer {
    /// The cards, each with the free memory that was asked about.
    pub cards: CardShares,
    /// It holds whatever is free.
    pub ignores_free: bool,
    /// The most that the model takes of each card; or why it cannot run on these cards at all.
    pub shares: Result<CardShares, Reason>,
}

/// The answers for one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NeedAnswers {
    all: Vec<NeedAnswer>,
    /// An answer for other free memory is taken where there is none for the present one.
    pub takes_outdated: bool,
}

impl NeedAnswers {
    /// Takes answers. One that cannot be right counts as a set of cards on which the model does not run.
    pub fn extend(&mut self, answers: Vec<NeedAnswer>) {
        for mut answer in answers {
            if answer.shares.as_ref().is_ok_and(|shares| is_repeated(shares)) {
                let text = "the plan states two memory figures for the same card";
                answer.shares = Err(Reason::new("plan_failed", text));
            }
            self.all.push(answer);
        }
    }

    /// Drops all answers once they are many.
    pub fn drop_if_many(&mut self) {
        if self.all.len() >= KEPT {
            self.all.clear();
        }
    }

    /// The latest answer for these cards with so much free memory each.
    pub(super) fn find(&self, cards: &[(&Card, Bytes)]) -> Option<&NeedAnswer> {
        let is_exact = |answer: &&NeedAnswer| {
            let now = cards.iter().map(|(_, free)| free);
            answer.ignores_free || answer.cards.iter().map(|(_, free)| free).eq(now)
        };
        // The latest is the most likely.
        let of_set = || self.all.iter().rev().filter(|answer| is_of(answer, cards));
        let outdated = || of_set().next().filter(|_| self.takes_outdated);
        of_set().find(is_exact).or_else(outdated)
    }
}

fn is_of(answer: &NeedAnswer, cards: &[(&Card, Bytes)]) -> bool {
    answer.cards.iter().map(|(id, _)| id).eq(cards.iter().map(|(card, _)| &card.id))
}

fn is_repeated(shares: &[(CardId, Bytes)]) -> bool {
    shares.iter().enumerate().any(|(place, (card, _))| shares[..place].iter().any(|(other, _)| other == card))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(name: &str) -> Card {
        format!("name={name},total=8GiB").parse().unwrap()
    }

    fn answer(free: u64, gib: u64) -> NeedAnswer {
        let (card, shares) = (CardId::new("a"), vec![(CardId::new("a"), Bytes::gib(gib))]);
        NeedAnswer { cards: vec![(card, Bytes::gib(free))], ignores_free: false, shares: Ok(shares) }
    }

    #[test]
    fn an_answer_holds_for_its_cards_and_their_free_memory_and_the_latest_counts() {
        let (a, b) = (card("a"), card("b"));
        let mut answers = NeedAnswers::default();
        answers.extend(vec![answer(8, 2), answer(4, 3), answer(8, 5)]);
        let find = |answers: &NeedAnswers, card: &Card, free| {
            let found = answers.find(&[(card, Bytes::gib(free))]);
            found.map(|answer| answer.shares.clone().unwrap()[0].1)
        };
        assert_eq!(find(&answers, &a, 8), Some(Bytes::gib(5)));
        assert_eq!(find(&answers, &a, 4), Some(Bytes::gib(3)));
        assert_eq!(find(&answers, &a, 7), None);
        assert_eq!(find(&answers, &b, 8), None);
        answers.takes_outdated = true;
        assert_eq!(find(&answers, &a, 7), Some(Bytes::gib(5)));
        assert_eq!(find(&answers, &a, 4), Some(Bytes::gib(3)), "the present memory comes first");
        assert_eq!(find(&answers, &b, 8), None);
        answers.takes_outdated = false;
        answers.extend(vec![NeedAnswer { ignores_free: true, ..answer(1, 1) }]);
        assert_eq!(find(&answers, &a, 7), Some(Bytes::gib(1)));
    }

    #[test]
    fn answers_are_bounded_and_a_card_has_one_figure() {
        let mut answers = NeedAnswers::default();
        for free in 0..3000 {
            answers.drop_if_many();
            answers.extend(vec![answer(free, 1)]);
        }
        assert_eq!(answers.all.len(), 3000 - KEPT);
        let twice = vec![(CardId::new("a"), Bytes::gib(1)); 2];
        answers.extend(vec![NeedAnswer { shares: Ok(twice), ..answer(8, 1) }]);
        assert!(answers.find(&[(&card("a"), Bytes::gib(8))]).unwrap().shares.is_err());
    }
}
