//! Cost model of the search for a value that fits: the engine is run for every value that is tried.
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
pub struct Asked<'a> {
    oracle: &'a Oracle,
    options: &'a Options,
    request: PlanRequest<'a>,
    name: String,
    /// The engine's plan of the user's flags.
    asked: PlanPrice,
    /// Free memory with these flags by the engine, less that by the closed forms; `None` where they do not cover the model.
    off: OnceCell<Option<i64>>,
    /// The first error that left a question unanswered.
    failed: RefCell<Option<ExactError>>,
}

impl<'a> Asked<'a> {
    /// `options` are the flags that `request` was read from, and `said` is the engine's answer to them.
    pub fn new(
        oracle: &'a Oracle,
        options: &'a Options,
        request: PlanRequest<'a>,
        said: &Transcript,
    ) -> Result<Self, ExactError> {
        let name = oracle.name();
        let asked = EngineSizes { request: &request, transcript: said, program: &name }.price()?;
        Ok(Self { oracle, options, request, name, asked, off: OnceCell::new(), failed: RefCell::default() })
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

    fn edited(&self, changes: &[RequestChange]) -> Result<Options, ExactError> {
        Ok(edited(self.options, changes)?)
    }

    fn note(&self, error: ExactError) {
        // The first error is the cause; later ones follow from it.
        self.failed.borrow_mut().get_or_insert(error);
    }
}

impl CostModel for Asked<'_> {
    type Error = ExactError;

    fn price(&self, changes: &[RequestChange], cards: &[Card]) -> Result<PlanPrice, ExactError> {
        // DECISION: every price is the engine's own figure; the planner's formulas only choose the starting
        // point.
        let options = self.edited(changes)?;
        let wish = options.wish(self.request.program)?;
        let request = PlanRequest { wish: &wish, cards, ..self.request };
        match self.oracle.further(&options, cards) {
            Ok(said) => {
                Ok(EngineSizes { request: &request, transcript: &said, program: &self.name }.price()?)
            }
            // A refusal is an answer, so the search goes on. Other errors end it through `is_spent`.
            Err(refused @ ExactError::Refused(_)) => Err(refused),
            Err(failed) => {
                let told = ExactError::Spent { program: self.name.clone(), runs: self.oracle.tally().runs };
                self.note(failed);
                Err(told)
            }
        }
    }

    fn foresee(&self, questions: &[Vec<RequestChange>]) {
        // Changes that cannot be applied are skipped here: `price` reports them if the search gets to them.
        let options = questions.iter().filter_map(|changes| self.edited(changes).ok());
        let options: Vec<Options> = options.collect();
        if let Err(error) = self.oracle.foresee(&options, self.request.cards) {
            self.note(error);
        }
    }

    fn estimate(&self, changes: &[RequestChange]) -> Option<i64> {
        let off = || Some(self.asked.slack(self.request.cards).saturating_sub(self.computed(&[])?));
        let off = (*self.off.get_or_init(off))?;
        Some(self.computed(changes)?.saturating_add(off))
    }

    fn is_spent(&self) -> bool {
        self.failed.borrow().is_some()
    }
}
