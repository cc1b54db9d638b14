//! Chooses where the sizes of a plan come from: an installed engine that is asked, or else the formulas.
//!
//! `--exact` asks and fails where that fails; without it, the installed engine is asked, and the formulas
//! remain.

use std::io::Write;
use std::path::Path;

use plimsoll_base::{Card, Reason};
use plimsoll_exact::{EngineEstimate, ExactError, Oracle, RunTerms};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_plan::{Estimate, EstimateError};
use plimsoll_planner::fit::{ContextPoint, Dimension, Fit};
use plimsoll_planner::{EngineKind, Plan};

use super::{Arguments, models};
use crate::report::ErrorReport;
use crate::terminal;

/// Flags on cards, by the engine or by the formulas.
pub(super) enum Estimated<'a> {
    Engine(Box<EngineEstimate<'a>>),
    /// And the reason why no engine answered, where that is no matter of course.
    Formulas(Box<Estimate>, Option<Reason>),
}

impl<'a> Estimated<'a> {
    /// Asks the engine that `--exact` names, or the installed one.
    pub(super) fn of_plan(
        arguments: &Arguments,
        options: &'a Options,
        cards: &'a [Card],
    ) -> Result<Self, ErrorReport> {
        if arguments.exact.is_some() || !arguments.may_ask() {
            return Self::of_fit(arguments, options, cards);
        }
        let Some(oracle) = Oracle::installed(cards, RunTerms::of_process(true)) else {
            return Self::by_formulas(arguments, options, None);
        };
        match opened(oracle, arguments, options, cards) {
            // Logs of other engines than llama.cpp are read only where the user names one.
            Ok(requested) if requested.formulas().engine.kind == EngineKind::LlamaCpp => {
                Ok(Self::Engine(Box::new(requested)))
            }
            Ok(_) => Self::by_formulas(arguments, options, None),
            Err(report) => {
                // What follows the first line is advice for `--exact`.
                let refused = report.cause::<ExactError>().filter(|error| !error.is_unaskable());
                let first = |error: &ExactError| error.to_string().lines().next().map(unasked);
                let unasked = refused.and_then(first);
                Self::by_formulas(arguments, options, unasked)
            }
        }
    }

    /// Asks the engine that `--exact` names. A search takes many runs, so no other is asked.
    pub(super) fn of_fit(
        arguments: &Arguments,
        options: &'a Options,
        cards: &'a [Card],
    ) -> Result<Self, ErrorReport> {
        let Some(named) = &arguments.exact else {
            return Self::by_formulas(arguments, options, None);
        };
        let opened = oracle(arguments, named.as_deref(), arguments.program())
            .and_then(|oracle| opened(oracle, arguments, options, cards));
        match opened {
            Ok(requested) => Ok(Self::Engine(Box::new(requested))),
            // The formulas have to do for an engine that cannot be asked at all.
            Err(report) => match report.cause::<ExactError>() {
                Some(error) if error.is_unaskable() => {
                    let unasked = unasked(&error.to_string());
                    Self::by_formulas(arguments, options, Some(unasked))
                }
                _ => Err(report),
            },
        }
    }

    fn by_formulas(
        arguments: &Arguments,
        options: &Options,
        unasked: Option<Reason>,
    ) -> Result<Self, ErrorReport> {
        Ok(Self::Formulas(Box::new(estimate(arguments, options)?), unasked))
    }

    /// By the formulas.
    pub(super) fn formulas(&self) -> &Estimate {
        match self {
            Self::Engine(requested) => requested.formulas(),
            Self::Formulas(estimate, _) => estimate,
        }
    }

    /// The plan. A doubt about its source comes first, because it says what the figures are not.
    pub(super) fn plan(
        &self,
        arguments: &Arguments,
        options: &Options,
        cards: &[Card],
    ) -> Result<Plan, ErrorReport> {
        match self {
            Self::Engine(requested) => Ok(requested.plan(arguments.prompt)?),
            Self::Formulas(estimate, unasked) => {
                let mut plan = estimate.plan(options, cards)?;
                plan.warnings.extend(unasked.clone());
                Ok(plan)
            }
        }
    }

    /// The largest values that fit.
    pub(super) fn fit(
        &self,
        options: &Options,
        cards: &[Card],
        dimensions: &[Dimension],
    ) -> Result<Fit, ErrorReport> {
        match self {
            Self::Engine(requested) => Ok(requested.fit(dimensions)?),
            Self::Formulas(estimate, _) => Ok(estimate.fit(options, cards, dimensions)?),
        }
    }

    pub(super) fn is_by_formulas(&self) -> bool {
        matches!(self, Self::Formulas(..))
    }

    /// The reason why no engine answered.
    pub(super) fn unasked(&self) -> Option<Reason> {
        match self {
            Self::Engine(_) => None,
            Self::Formulas(_, unasked) => unasked.clone(),
        }
    }

    /// Memory of each context, for the page.
    pub(super) fn course(
        &self,
        options: &Options,
        cards: &[Card],
        plan: &Plan,
    ) -> Result<Vec<ContextPoint>, ErrorReport> {
        match self {
            Self::Engine(requested) => Ok(requested.course(plan)?),
            Self::Formulas(estimate, _) => models::course(estimate, options, cards, plan),
        }
    }

    /// Prints the number of engine runs.
    pub(super) fn print_runs(&self) -> Result<(), ErrorReport> {
        match self {
            Self::Engine(requested) => print_runs(requested.oracle()),
            Self::Formulas(..) => Ok(()),
        }
    }
}

/// The plan of a running program's flags with the engine's sizes.
pub(super) fn once(
    arguments: &Arguments,
    named: Option<&Path>,
    (options, program): (&Options, ProgramKind),
    cards: &[Card],
) -> Result<Plan, ErrorReport> {
    let oracle = oracle(arguments, named, program)?;
    let estimate = models::estimate(&options.params(program)?, arguments.engine(), program)?;
    let plan = oracle.plan_once(estimate, arguments.engine, options, cards)?;
    print_runs(&oracle)?;
    Ok(plan)
}

/// The estimate of these flags by the formulas.
fn estimate(arguments: &Arguments, options: &Options) -> Result<Estimate, ErrorReport> {
    let params = options.params(arguments.program()).map_err(EstimateError::from)?;
    models::estimate(&params, arguments.engine(), arguments.program())
}

fn oracle(arguments: &Arguments, named: Option<&Path>, program: ProgramKind) -> Result<Oracle, ErrorReport> {
    Ok(Oracle::find(named, program, RunTerms::of_process(!arguments.no_cache))?)
}

fn opened<'a>(
    oracle: Oracle,
    arguments: &Arguments,
    options: &'a Options,
    cards: &'a [Card],
) -> Result<EngineEstimate<'a>, ErrorReport> {
    let mut estimate = estimate(arguments, options)?;
    estimate.engine = oracle.engine_or(arguments.engine, options, cards)?;
    Ok(EngineEstimate::open(oracle, estimate, options, cards, arguments.fit.is_none())?)
}

fn unasked(why: &str) -> Reason {
    let text = format!("the plan uses the formulas, because the engine could not be queried: {why}");
    Reason::new("engine_not_asked", text)
}

fn print_runs(oracle: &Oracle) -> Result<(), ErrorReport> {
    let mut stderr = terminal::stderr();
    Ok(writeln!(stderr, "asked {}: {}", oracle.name(), oracle.tally())?)
}
