//! Makes plans from sizes that the user's own engine reports: a model's memory, the largest context that
//! fits, and memory by context length.

use std::time::Duration;

use plimsoll_base::Card;
use plimsoll_flags::{ModelParams, Options};
use plimsoll_plan::Estimate;
use plimsoll_planner::exact::{EngineSizes, Transcript};
use plimsoll_planner::fit::{ContextPoint, Dimension, Fit, edited};
use plimsoll_planner::{EngineBuild, Plan, PlanRequest, fit};

use super::{ExactError, Oracle, Requested};

// DECISION: every value comes from a run of the engine. The number of runs is limited; a value unknown at the
// limit is an error or left out, never guessed.
/// Runs for the largest context of a plan. Two mostly suffice; five seconds is a wait that needs no progress
/// line.
const PLAN: (u32, Duration) = (16, Duration::from_secs(5));
/// Runs for one direction of a search, with its trade-offs.
const DIRECTION: (u32, Duration) = (64, Duration::from_secs(300));
/// Contexts of a course.
const POINTS: u32 = 32;
const COURSE: (u32, Duration) = (POINTS + 8, Duration::from_secs(300));

/// An engine, with its answer to the given flags.
#[derive(Debug)]
pub struct EngineEstimate<'a> {
    oracle: Oracle,
    estimate: Estimate,
    options: &'a Options,
    params: ModelParams,
    cards: &'a [Card],
    /// The largest context by the formulas.
    guess: Option<u64>,
    stated: Transcript,
}

impl<'a> EngineEstimate<'a> {
    /// Asks the engine about the flags. `for_plan` asks at the same time about contexts near the border that
    /// the formulas predict.
    pub fn open(
        oracle: Oracle,
        estimate: Estimate,
        options: &'a Options,
        cards: &'a [Card],
        for_plan: bool,
    ) -> Result<Self, ExactError> {
        let params = options.params(estimate.program)?;
        let request = estimate.request(&params, cards);
        // A failure of the formulas is ignored: the engine will refuse the flags in its own words.
        let guess = plimsoll_planner::plan(&request).ok().and_then(|plan| plan.largest_context);
        // Runs of the engine are independent, so the likely contexts are asked in parallel with the first.
        let likely = match guess.filter(|_| for_plan) {
            Some(guess) => fit::likely_contexts(&request, guess),
            None => Vec::new(),
        };
        let likely = likely.iter().map(|changes| edited(options, changes));
        let stated = oracle.open(options, &likely.collect::<Result<Vec<_>, _>>()?, cards)?;
        Ok(Self { oracle, estimate, options, params, cards, guess, stated })
    }

    /// By the formulas.
    pub fn formulas(&self) -> &Estimate {
        &self.estimate
    }

    pub fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// The plan with its largest context. A `prompt` of so many tokens is computed, which grows the pool.
    pub fn plan(&self, prompt: Option<u32>) -> Result<Plan, ExactError> {
        let request = self.request();
        // Before the limit of the search, which this run is no part of.
        let grown = prompt.map(|tokens| self.oracle.grown(self.options, self.cards, tokens)).transpose()?;
        let requested = self.requested(PLAN)?;
        let largest = fit::confirmed_context(&request, &requested, self.guess);
        match requested.failure() {
            // A spent budget leaves the largest context open; the plan of the flags is complete without it.
            None | Some(ExactError::Spent { .. }) => {}
            Some(error) => return Err(error),
        }
        let stated = grown.as_ref().unwrap_or(&self.stated);
        Ok(EngineSizes { request: &request, transcript: stated, program: &self.oracle.name() }
            .plan(largest)?)
    }

    pub fn fit(&self, directions: &[Dimension]) -> Result<Fit, ExactError> {
        let (runs, time) = DIRECTION;
        // Each direction gets the full number of runs, so that the order of the directions does not matter.
        let count = u32::try_from(directions.len().max(1)).unwrap_or(u32::MAX);
        let requested = self.requested((runs.saturating_mul(count), time * count))?;
        let fit = fit::fit(&self.request(), &requested, directions)?;
        match requested.failure() {
            None | Some(ExactError::Spent { .. }) => Ok(fit),
            Some(error) => Err(error),
        }
    }

    /// Memory of each context, for the page of a plan.
    pub fn course(&self, plan: &Plan) -> Result<Vec<ContextPoint>, ExactError> {
        let requested = self.requested(COURSE)?;
        let besides: Vec<u64> = plan.largest_context.into_iter().collect();
        let points = fit::course(&self.request(), &requested, POINTS.into(), &besides);
        match requested.failure() {
            // A page with missing contexts would show a gap, so here a spent budget is an error.
            None => Ok(points),
            Some(error) => Err(error),
        }
    }

    fn request(&self) -> PlanRequest<'_> {
        self.estimate.request(&self.params, self.cards)
    }

    fn requested(&self, (runs, time): (u32, Duration)) -> Result<Requested<'_>, ExactError> {
        self.oracle.limit(runs, time);
        Requested::new(&self.oracle, self.options, self.request(), &self.stated)
    }
}

impl Oracle {
    /// The plan of these flags with the engine's sizes, without a search.
    pub fn plan_once(
        &self,
        mut estimate: Estimate,
        engine: Option<EngineBuild>,
        options: &Options,
        cards: &[Card],
    ) -> Result<Plan, ExactError> {
        let params = options.params(estimate.program)?;
        let stated = self.ask(options, cards)?;
        estimate.engine = self.engine_or(engine, options, cards)?;
        let request = estimate.request(&params, cards);
        Ok(EngineSizes { request: &request, transcript: &stated, program: &self.name() }.plan(Ok(None))?)
    }

    /// The given engine, else the one that answers.
    pub fn engine_or(
        &self,
        given: Option<EngineBuild>,
        options: &Options,
        cards: &[Card],
    ) -> Result<EngineBuild, ExactError> {
        Ok(match given {
            Some(engine) => engine,
            None => self.engine(options, cards)?.unwrap_or(EngineBuild::LLAMA_CPP),
        })
    }
}
