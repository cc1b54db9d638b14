//! Text output of `plimsoll pool advise`: reasons and hints for an engine's memory pool.

use std::fmt::{self, Write};

use plimsoll_base::Reason;

use plimsoll_report::written;

use crate::replay::advice::PoolAdvice;

/// The whole text: the tree of reasons, then the hints.
pub(crate) fn advice(advice: &PoolAdvice) -> String {
    written(|out| write(advice, out))
}

fn write(advice: &PoolAdvice, out: &mut String) -> fmt::Result {
    match (advice.budget, advice.fits) {
        (Some(budget), Some(true)) => writeln!(out, "{}: fits into {budget}", advice.policy)?,
        (Some(budget), _) => writeln!(out, "{}: does not fit into {budget}", advice.policy)?,
        (None, _) => writeln!(out, "{}", advice.policy)?,
    }
    for reason in &advice.reasons {
        write_reason(reason, 1, out)?;
    }
    for hint in &advice.hints {
        writeln!(out, "hint: {hint}")?;
    }
    Ok(())
}

fn write_reason(reason: &Reason, depth: usize, out: &mut String) -> fmt::Result {
    writeln!(out, "{}{}", "  ".repeat(depth), reason.text)?;
    for cause in &reason.because {
        write_reason(cause, depth + 1, out)?;
    }
    Ok(())
}
