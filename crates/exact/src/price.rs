//! The questions of a search, put to an engine: [`Price`] over an [`Oracle`].
//!
//! DECISION: a search is told what the engine said and nothing else. The closed forms, moved by as much as
//! they were off for what was asked, only say where to begin, so that two runs are mostly enough: one that
//! fits and one step more that does not. What the engine refuses does not fit; where it fails otherwise, or
//! may not be asked again, the search is told so, and nothing is concluded.

use std::cell::RefCell;

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::Options;
use plimsoll_planner::PlanRequest;
use plimsoll_planner::exact::{Transcript, priced};
use plimsoll_planner::fit::{Change, Formulas, Price, Priced, edited, slack_of};

use super::{ExactError, Oracle};

#[derive(Debug)]
pub struct Asked<'a> {
    oracle: &'a Oracle,
    options: &'a Options,
    request: PlanRequest<'a>,
    name: String,
    /// Engine's peak on each card, less the formulas' peak.
    off: Vec<i64>,
    /// First failure of a question.
    failed: RefCell<Option<ExactError>>,
}

impl<'a> Asked<'a> {
    /// `options` are what `request` was read from, and `said` is what the engine said to them.
    pub fn new(
        oracle: &'a Oracle,
        options: &'a Options,
        request: PlanRequest<'a>,
        said: &Transcript,
    ) -> Result<Self, ExactError> {
        let name = oracle.name();
        let engine = priced(&request, said, &name)?;
        let off = match Formulas(request).price(&[], request.cards) {
            Ok(formulas) => peaks(&request, &engine)
                .zip(peaks(&request, &formulas))
                .map(|(engine, formulas)| engine - formulas)
                .collect(),
            Err(_) => Vec::new(),
        };
        Ok(Self {
            oracle,
            options,
            request,
            name,
            off,
            failed: RefCell::default(),
        })
    }

    /// Returns the first failure; `None` where every question was answered.
    pub fn failure(self) -> Option<ExactError> {
        self.failed.into_inner()
    }

    fn edited(&self, changes: &[Change]) -> Result<Options, ExactError> {
        Ok(edited(self.options, changes)?)
    }

    fn note(&self, error: ExactError) {
        self.failed.borrow_mut().get_or_insert(error);
    }
}

impl Price for Asked<'_> {
    type Error = ExactError;

    fn price(&self, changes: &[Change], cards: &[Card]) -> Result<Priced, ExactError> {
        let options = self.edited(changes)?;
        let wish = options.wish(self.request.program)?;
        let request = PlanRequest {
            wish: &wish,
            cards,
            ..self.request
        };
        match self.oracle.further(&options, cards) {
            Ok(said) => Ok(priced(&request, &said, &self.name)?),
            Err(refused @ ExactError::Refused(_)) => Err(refused),
            Err(failed) => {
                let told = ExactError::Spent {
                    program: self.name.clone(),
                    runs: self.oracle.tally().runs,
                };
                self.note(failed);
                Err(told)
            }
        }
    }

    fn foresee(&self, questions: &[Vec<Change>]) {
        let options = questions.iter().filter_map(|changes| self.edited(changes).ok());
        let options: Vec<Options> = options.collect();
        if let Err(error) = self.oracle.foresee(&options, self.request.cards) {
            self.note(error);
        }
    }

    fn estimate(&self, changes: &[Change]) -> Option<i64> {
        let priced = Formulas(self.request).price(changes, self.request.cards).ok()?;
        let peaks = peaks(&self.request, &priced).zip(&self.off);
        let peaks =
            peaks.map(|(peak, off)| Bytes::new(u64::try_from(peak.saturating_add(*off)).unwrap_or(0)));
        (!self.off.is_empty()).then(|| slack_of(self.request.cards, peaks))
    }

    fn is_spent(&self) -> bool {
        self.failed.borrow().is_some()
    }
}

fn peaks(request: &PlanRequest<'_>, priced: &Priced) -> impl Iterator<Item = i64> {
    let peak = |card| i64::try_from(priced.peak(card).get()).unwrap_or(i64::MAX);
    (0..request.cards.len()).map(peak)
}
