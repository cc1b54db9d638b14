//! Checks by a run of the engine whether a value, such as a context length, fits. The search for the largest
//! value that fits calls it.
//!
//! A configuration that the engine refuses does not fit. Any other failure ends the search.

use std::cell::{OnceCell, RefCell};

use plimsoll_base::Card;
use plimsoll_flags::Options;
use plimsoll_planner::PlanRequest;
use plimsoll_planner::exact::{EngineSizes, Transcript};
use plimsoll_planner::fit::{ClosedForms, CostModel, PlanPrice, RequestChange, edited};

use super::{ExactError, Oracle};

#[derive(Debug)]
pub struct Requested<'a> {
    oracle: &'a Oracle,
    options: &'a Options,
    request: PlanRequest<'a>,
    /// The engine's plan of the user's flags.
    requested: PlanPrice,
    /// Free memory with these flags by the engine, less that by the closed forms; `None` where they do not
    /// cover the model.
    off: OnceCell<Option<i64>>,
    /// The first error that left a question unanswered.
    failed: RefCell<Option<ExactError>>,
}

impl<'a> Requested<'a> {
    /// `options` are the flags that `request` was read from, and `said` is the engine's answer to them.
    pub fn new(
        oracle: &'a Oracle,
        options: &'a Options,
        request: PlanRequest<'a>,
        stated: &Transcript,
    ) -> Result<Self, ExactError> {
        let sizes = EngineSizes { request: &request, transcript: stated, program: &oracle.name() };
        let (requested, off, failed) = (sizes.price()?, OnceCell::new(), RefCell::default());
        Ok(Self { oracle, options, request, requested, off, failed })
    }

    /// Free memory by the closed forms.
    fn computed(&self, changes: &[RequestChange]) -> Option<i64> {
        let cards = self.request.cards;
        Some(ClosedForms(self.request).price(changes, cards).ok()?.slack(cards))
    }

    /// The reason why a question stayed unanswered; `None` where all were answered.
    pub fn failure(self) -> Option<ExactError> {
        self.failed.into_inner()
    }

    fn note(&self, error: ExactError) {
        // The first error is the cause; later ones follow from it.
        self.failed.borrow_mut().get_or_insert(error);
    }
}

impl CostModel for Requested<'_> {
    type Error = ExactError;

    fn price(&self, changes: &[RequestChange], cards: &[Card]) -> Result<PlanPrice, ExactError> {
        // DECISION: every price is the engine's own figure; the planner's formulas only choose the starting
        // point.
        let options = edited(self.options, changes)?;
        let params = options.params(self.request.program)?;
        let request = PlanRequest { params: &params, cards, ..self.request };
        let stated = self.oracle.further(&options, cards).map_err(|failed| match failed {
            // A refusal is an answer, so the search goes on. Other errors end it through `is_spent`.
            ExactError::Refused(_) => failed,
            _ => {
                self.note(failed);
                self.oracle.spent()
            }
        })?;
        Ok(EngineSizes { request: &request, transcript: &stated, program: &self.oracle.name() }.price()?)
    }

    fn foresee(&self, questions: &[Vec<RequestChange>]) {
        // Changes that cannot be applied are skipped here: `price` reports them if the search gets to them.
        let options = questions.iter().filter_map(|changes| edited(self.options, changes).ok());
        let options: Vec<Options> = options.collect();
        if let Err(error) = self.oracle.foresee(&options, self.request.cards) {
            self.note(error);
        }
    }

    fn estimate(&self, changes: &[RequestChange]) -> Option<i64> {
        let off = || Some(self.requested.slack(self.request.cards).saturating_sub(self.computed(&[])?));
        let off = (*self.off.get_or_init(off))?;
        Some(self.computed(changes)?.saturating_add(off))
    }

    fn is_spent(&self) -> bool {
        self.failed.borrow().is_some()
    }
}
