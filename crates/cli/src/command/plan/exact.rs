//! `plimsoll plan --exact`: plans that are confirmed by runs of the user's own engine, without a GPU.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use plimsoll_base::{Card, Reason};
use plimsoll_exact::{Asked, ExactError, Oracle, RunTerms};
use plimsoll_flags::{ModelParams, Options, ProgramKind};
use plimsoll_planner::exact::{EngineSizes, Transcript};
use plimsoll_planner::fit::{ContextPoint, Dimension, Fit, edited};
use plimsoll_planner::{EngineBuild, Plan, PlanRequest, fit};

use super::Arguments;
use super::models::Models;
use crate::report::ErrorReport;
use crate::terminal;

// DECISION: every printed value comes from a run of the engine. The number of runs is limited; a value
// unknown at the limit is an error or left out, never guessed.
/// Runs for the largest context of a plan. Two mostly suffice; five seconds is a wait that needs no progress
/// line.
const PLAN: (u32, Duration) = (16, Duration::from_secs(5));
/// Runs for one direction of `--fit`, with its trade-offs.
const DIRECTION: (u32, Duration) = (64, Duration::from_secs(300));
/// Contexts on a page, which are the steps of its slider.
const POINTS: u32 = 32;
const PAGE: (u32, Duration) = (POINTS + 8, Duration::from_secs(300));

/// An engine, with its result for the given flags.
pub(super) struct ExactQuery<'a> {
    oracle: Oracle,
    options: &'a Options,
    wish: ModelParams,
    models: Models,
    engine: EngineBuild,
    program: ProgramKind,
    cards: &'a [Card],
    /// The largest context by the formulas.
    guess: Option<u64>,
    said: Transcript,
    /// Tokens of the prompt that grows the pool.
    prompt: Option<u32>,
}

impl<'a> ExactQuery<'a> {
    /// Asks the engine about the flags, and at the same time about contexts near the border that the formulas
    /// predict.
    pub(super) fn open(
        arguments: &Arguments,
        named: Option<&Path>,
        options: &'a Options,
        cards: &'a [Card],
    ) -> Result<Self, ErrorReport> {
        let program = arguments.program();
        let wish = options.wish(program)?;
        let oracle = Oracle::find(named, program, RunTerms::of_process(!arguments.no_cache))?;
        let models = Models::read(&wish, arguments.engine())?;
        let engine = match arguments.engine {
            Some(engine) => engine,
            None => oracle.engine(options, cards)?.unwrap_or(EngineBuild::LLAMA_CPP),
        };
        let request = models.request(&wish, engine, program, cards);
        // A failure of the formulas is ignored: the engine will refuse the flags in its own words.
        let guess = plimsoll_planner::plan(&request).ok().and_then(|plan| plan.largest_context);
        // Runs of the engine are independent, so the likely contexts are asked in parallel with the first.
        let likely = match guess.filter(|_| arguments.fit.is_none()) {
            Some(guess) => fit::likely_contexts(&request, guess),
            None => Vec::new(),
        };
        let likely = likely.iter().map(|changes| edited(options, changes));
        let said = oracle.open(options, &likely.collect::<Result<Vec<_>, _>>()?, cards)?;
        Ok(Self {
            oracle,
            options,
            wish,
            models,
            engine,
            program,
            cards,
            guess,
            said,
            prompt: arguments.prompt,
        })
    }

    /// Plans these flags without a search.
    pub(super) fn once(
        arguments: &Arguments,
        named: Option<&Path>,
        (options, program): (&Options, ProgramKind),
        cards: &[Card],
    ) -> Result<Plan, ErrorReport> {
        let wish = options.wish(program)?;
        let oracle = Oracle::find(named, program, RunTerms::of_process(!arguments.no_cache))?;
        let models = Models::read(&wish, arguments.engine())?;
        let said = oracle.ask(options, cards)?;
        let engine = match arguments.engine {
            Some(engine) => engine,
            None => oracle.engine(options, cards)?.unwrap_or(EngineBuild::LLAMA_CPP),
        };
        let request = models.request(&wish, engine, program, cards);
        let plan =
            EngineSizes { request: &request, transcript: &said, program: &oracle.name() }.plan(Ok(None))?;
        tell(&oracle)?;
        Ok(plan)
    }

    fn request(&self) -> PlanRequest<'_> {
        self.models.request(&self.wish, self.engine, self.program, self.cards)
    }

    fn asked(&self, (runs, time): (u32, Duration)) -> Result<Asked<'_>, ExactError> {
        self.oracle.limit(runs, time);
        Asked::new(&self.oracle, self.options, self.request(), &self.said)
    }

    pub(super) fn plan(&self) -> Result<Plan, ErrorReport> {
        let request = self.request();
        // Before the limit of the search, which this run is no part of.
        let grown =
            self.prompt.map(|tokens| self.oracle.grown(self.options, self.cards, tokens)).transpose()?;
        let asked = self.asked(PLAN)?;
        let largest = fit::confirmed_context(&request, &asked, self.guess);
        match asked.failure() {
            // A spent budget leaves the largest context open; the plan of the flags is complete without it.
            None | Some(ExactError::Spent { .. }) => {}
            Some(error) => return Err(error.into()),
        }
        let said = grown.as_ref().unwrap_or(&self.said);
        Ok(EngineSizes { request: &request, transcript: said, program: &self.oracle.name() }.plan(largest)?)
    }

    pub(super) fn fit(&self, directions: &[Dimension]) -> Result<Fit, ErrorReport> {
        let (runs, time) = DIRECTION;
        // Each direction gets the full number of runs, so that the order of the directions does not matter.
        let count = u32::try_from(directions.len().max(1)).unwrap_or(u32::MAX);
        let asked = self.asked((runs.saturating_mul(count), time * count))?;
        let fit = fit::fit(&self.request(), &asked, directions)?;
        match asked.failure() {
            None | Some(ExactError::Spent { .. }) => Ok(fit),
            Some(error) => Err(error.into()),
        }
    }

    /// Memory of each context, for the page.
    pub(super) fn course(&self, plan: &Plan) -> Result<Vec<ContextPoint>, ErrorReport> {
        let asked = self.asked(PAGE)?;
        let besides: Vec<u64> = plan.largest_context.into_iter().collect();
        let points = fit::course(&self.request(), &asked, POINTS.into(), &besides);
        match asked.failure() {
            // A page with missing contexts would show a gap, so here a spent budget is an error.
            None => Ok(points),
            Some(error) => Err(error.into()),
        }
    }

    pub(super) fn tell(&self) -> Result<(), ErrorReport> {
        tell(&self.oracle)
    }
}

/// The engine's answers, or the reason why the closed forms have to do: an engine that cannot be asked at all.
pub(super) fn or_why(
    opened: Result<ExactQuery<'_>, ErrorReport>,
) -> Result<(Option<ExactQuery<'_>>, Option<Reason>), ErrorReport> {
    let report = match opened {
        Ok(asking) => return Ok((Some(asking), None)),
        Err(report) => report,
    };
    match report.cause::<ExactError>() {
        Some(error) if error.is_unaskable() => {
            let text =
                format!("the plan uses the formulas, because the engine could not be queried: {error}");
            Ok((None, Some(Reason::new("engine_not_asked", text))))
        }
        _ => Err(report),
    }
}

/// Prints the number of engine runs.
fn tell(oracle: &Oracle) -> Result<(), ErrorReport> {
    let mut stderr = terminal::stderr();
    Ok(writeln!(stderr, "asked {}: {}", oracle.name(), oracle.tally())?)
}
