//! Cost model of the search for a value that fits: the engine is run for every value that is tried.
//!
//! A configuration that the engine refuses does not fit. Any other failure ends the search.

use std::cell::{OnceCell, RefCell};

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::Options;
use plimsoll_planner::PlanRequest;
use plimsoll_planner::exact::{Transcript, priced};
use plimsoll_planner::fit::{ClosedForms, CostModel, PlanPrice, RequestChange, edited, slack_of};

use super::{ExactError, Oracle};

#[derive(Debug)]
pub struct Asked<'a> {
    oracle: &'a Oracle,
    options: &'a Options,
    request: PlanRequest<'a>,
    name: String,
    /// The engine's plan of the user's flags.
    asked: PlanPrice,
    /// Error of the closed forms on these flags, per card: the engine's peak less the formulas' peak. Empty where no
    /// closed form covers the model.
    off: OnceCell<Vec<i64>>,
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
        let asked = priced(&request, said, &name)?;
        Ok(Self { oracle, options, request, name, asked, off: OnceCell::new(), failed: RefCell::default() })
    }

    fn off(&self) -> Vec<i64> {
        let formulas = ClosedForms(self.request).price(&[], self.request.cards);
        let off = |formulas: PlanPrice| {
            let both = peaks(&self.request, &self.asked).zip(peaks(&self.request, &formulas));
            both.map(|(engine, formulas)| engine - formulas).collect()
        };
        formulas.map(off).unwrap_or_default()
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
            Ok(said) => Ok(priced(&request, &said, &self.name)?),
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
        let priced = ClosedForms(self.request).price(changes, self.request.cards).ok()?;
        let off = self.off.get_or_init(|| self.off());
        let peaks = peaks(&self.request, &priced).zip(off);
        let peaks =
            peaks.map(|(peak, off)| Bytes::new(u64::try_from(peak.saturating_add(*off)).unwrap_or(0)));
        (!off.is_empty()).then(|| slack_of(self.request.cards, peaks))
    }

    fn is_spent(&self) -> bool {
        self.failed.borrow().is_some()
    }
}

fn peaks(request: &PlanRequest<'_>, priced: &PlanPrice) -> impl Iterator<Item = i64> {
    let peak = |card| i64::try_from(priced.peak(card).get()).unwrap_or(i64::MAX);
    (0..request.cards.len()).map(peak)
}
