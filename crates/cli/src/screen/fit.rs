//! Prints the result of `plimsoll plan --fit`: for each setting (context, slots, layers) the largest value,
//! and what limits it.

use std::fmt::{self, Write};

use plimsoll_base::one_line;
use plimsoll_planner::fit::{Dimension, Fit, FitAnswer, TradeOff};
use plimsoll_report::written;

use super::paper::Paper;
use super::plan::hints;

/// Renders the whole text, with a final line feed.
pub(crate) fn fit(fit: &Fit, paper: Paper) -> String {
    written(|out| write(fit, paper, out))
}

fn write(fit: &Fit, paper: Paper, out: &mut String) -> fmt::Result {
    for warning in &fit.warnings {
        paper.warning(&warning.text, out)?;
    }
    let verdict = if fit.fits { "fits" } else { "does not fit" };
    writeln!(out, "{}, {}: {verdict} as requested", one_line(&fit.model), fit.engine.kind.name())?;
    if let Some(context) = fit.default_context {
        let line = format!("note: without -c, the context is the model's own: {context} tokens");
        paper.line(&line, 6, out)?;
    }
    for answer in &fit.answers {
        write_answer(answer, paper, out)?;
    }
    for line in hints(&fit.hints) {
        paper.line(&line, 8, out)?;
    }
    Ok(())
}

fn write_answer(answer: &FitAnswer, paper: Paper, out: &mut String) -> fmt::Result {
    let line = format!("{:<6} {}", answer.dimension.name(), answer.text);
    paper.line(&line, 7, out)?;
    // One line suffices where no change of the settings helps.
    let helps = answer.best.is_some() || answer.trades.iter().any(|trade| trade.best.is_some());
    for trade in answer.trades.iter().filter(|_| helps) {
        writeln!(out, "{:<6}   with {}: {}", "", trade.flags, best(trade))?;
    }
    Ok(())
}

fn best(trade: &TradeOff) -> String {
    let Some(best) = trade.best else {
        return "nothing fits".to_owned();
    };
    match trade.dimension {
        Dimension::Context => format!("-c {best}"),
        Dimension::MicroBatch => format!("-ub {best}"),
        Dimension::Slots => format!("-np {best}"),
        Dimension::Layers => format!("-ngl {best}"),
        Dimension::Experts => format!("--n-cpu-moe {best}"),
        Dimension::Cache | Dimension::Split => best.to_string(),
    }
}
