//! Plans on Windows by the formulas alone: no engine is asked, and no process is measured.

use plimsoll_base::{Card, Reason};
use plimsoll_cards::Machine;
use plimsoll_flags::Options;
use plimsoll_plan::{Estimate, EstimateError};
use plimsoll_planner::Plan;
use plimsoll_planner::fit::{ContextPoint, Dimension, Fit};

use super::{Arguments, models};
use crate::command::absent;
use crate::report::ErrorReport;

/// Flags on cards by the formulas.
pub(super) struct Estimated(Estimate);

impl Estimated {
    pub(super) fn of_plan(
        arguments: &Arguments,
        options: &Options,
        cards: &[Card],
    ) -> Result<Self, ErrorReport> {
        Self::of_fit(arguments, options, cards)
    }

    pub(super) fn of_fit(arguments: &Arguments, options: &Options, _: &[Card]) -> Result<Self, ErrorReport> {
        if arguments.exact.is_some() {
            return Err(absent("plan --exact"));
        }
        let params = options.params(arguments.program()).map_err(EstimateError::from)?;
        models::estimate(&params, arguments.engine(), arguments.program()).map(Self)
    }

    pub(super) fn formulas(&self) -> &Estimate {
        &self.0
    }

    pub(super) fn is_by_formulas(&self) -> bool {
        true
    }

    pub(super) fn unasked(&self) -> Option<Reason> {
        None
    }

    pub(super) fn plan(&self, _: &Arguments, options: &Options, cards: &[Card]) -> Result<Plan, ErrorReport> {
        Ok(self.0.plan(options, cards)?)
    }

    pub(super) fn fit(
        &self,
        options: &Options,
        cards: &[Card],
        dimensions: &[Dimension],
    ) -> Result<Fit, ErrorReport> {
        Ok(self.0.fit(options, cards, dimensions)?)
    }

    /// Memory of each context, for the page.
    pub(super) fn course(
        &self,
        options: &Options,
        cards: &[Card],
        plan: &Plan,
    ) -> Result<Vec<ContextPoint>, ErrorReport> {
        models::course(&self.0, options, cards, plan)
    }

    /// No engine runs.
    pub(super) fn print_runs(&self) -> Result<(), ErrorReport> {
        Ok(())
    }
}

/// The cards that NVML knows.
pub(in crate::command) fn served(machine: &Machine) -> Vec<Card> {
    machine.cards.clone()
}

pub(super) mod check {
    use std::process::ExitCode;

    use super::{Arguments, ErrorReport, absent};

    pub(in crate::command) fn run(_: &Arguments, _: &str) -> Result<ExitCode, ErrorReport> {
        Err(absent("plan --check"))
    }
}
