//! The largest that fits, in each direction: context, micro-batch, slots, layers, cache type, division over cards.
//!
//! DECISION: every answer is re-planned, never interpolated, through [`Price`]; so is the next step above it, which is
//! shown not to fit, and so is what the answer becomes if something else is asked otherwise. An answer is a [`Change`],
//! and thereby the flags to paste.

mod answer;
mod change;
mod course;
mod outline;
mod price;
mod scale;
mod search;
mod split;

use super::cost::{Cost, Coster, peak};
use super::request::PlanRequest;
use super::reserve::CELLS;
use answer::Question;

pub use answer::{Answer, CardLine, Dimension, Fit, Next, Trade};
pub use change::{Change, edited};
pub use course::{Point, course};
pub(super) use outline::Outline;
pub use price::{Formulas, Price, Priced};
pub(super) use search::{Search, smallest};

/// Answers each of `dimensions`, and says what would help where the request as it is does not fit.
pub fn fit<P: Price>(
    request: &PlanRequest<'_>,
    price: &P,
    dimensions: &[Dimension],
) -> Result<Fit, P::Error> {
    let asked = price.price(&[], request.cards)?;
    let question = Question::new(request, price, asked);
    let answers = dimensions.iter().map(|&dimension| question.answer(dimension));
    let answers = answers.collect();
    Ok(question.finish(answers))
}

pub(super) fn fits(request: &PlanRequest<'_>, cost: &Cost) -> bool {
    request
        .cards
        .iter()
        .zip(&cost.cards)
        .all(|(card, terms)| peak(terms) <= card.free)
}

/// The largest context that fits on these cards, at most the larger of what was asked for and what the model was
/// trained for. `None` if not even the smallest fits.
pub(super) fn largest_context(request: &PlanRequest<'_>, coster: &Coster<'_>, asked: &Cost) -> Option<u64> {
    let trained = u64::from(request.model.hyper.context_train);
    let most = trained.max(asked.reserve.context).div_ceil(CELLS).max(1);
    let slack = |cost: Cost| Priced::from(cost).slack(request.cards);
    let mut search = Search::new(1..=most, |steps| coster.at(steps * CELLS).ok().map(slack));
    if asked.reserve.context.is_multiple_of(CELLS) {
        search.know(asked.reserve.context / CELLS, slack(asked.clone()));
    }
    Some(search.largest()?.at * CELLS)
}
