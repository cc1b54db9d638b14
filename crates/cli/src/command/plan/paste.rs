//! Builds the command line that `plan --fit` prints for a shell, with the largest values that fit together.
//! If the model does not fit, the command line has the first change that the advice names.

use std::collections::BTreeSet;
use std::mem::discriminant;

use plimsoll_base::Advice;
use plimsoll_planner::fit::{Fit, FitAnswer, RequestChange};

/// Answers that stdout gets, as changes of the request in the order asked.
pub(super) struct Pasted {
    pub(super) changes: Vec<RequestChange>,
    /// The sentence for stderr; `None` where there is nothing to choose.
    pub(super) stated: Option<String>,
}

impl Pasted {
    // DECISION: where the request fits, its answers are printed together as far as they hold together. Where
    // it does not fit, each answer is a way of its own to make it fit, and the first one of the hints loses
    // the least.
    /// Chooses among the answers with a change. `holds` shows whether several changes fit together;
    /// `is_named` is false for `all`, of which answers that change nothing are left out.
    pub(super) fn choose(
        fit: &Fit,
        is_named: bool,
        holds: &dyn Fn(&[RequestChange]) -> bool,
    ) -> Option<Self> {
        let with_change = |answer: &&FitAnswer| answer.change.is_some();
        let answers: Vec<&FitAnswer> = fit.answers.iter().filter(with_change).collect();
        let first = *answers.first()?;
        if !fit.fits {
            let best = by_hints(fit, &answers).unwrap_or(first);
            let others = answers.iter().filter(|answer| answer.dimension != best.dimension);
            let others: Vec<&str> = others.map(|answer| answer.dimension.name()).collect();
            let stated = (!others.is_empty()).then(|| {
                format!(
                    "the flags on stdout are the answer for {}; alternatives: {}",
                    best.dimension.name(),
                    others.join(", ")
                )
            });
            return Some(Self { changes: best.change.iter().cloned().collect(), stated });
        }
        let changes_something = |answer: &&&FitAnswer| answer.best.as_ref() != Some(&answer.requested);
        let kept: Vec<&FitAnswer> =
            if is_named { answers } else { answers.iter().filter(changes_something).copied().collect() };
        Some(Self::together(&kept, holds))
    }

    /// As many of the answers as hold together, the earlier ones first.
    fn together(answers: &[&FitAnswer], holds: &dyn Fn(&[RequestChange]) -> bool) -> Self {
        let (mut changes, mut had, mut left) = (Vec::<RequestChange>::new(), Vec::new(), Vec::new());
        for answer in answers {
            let Some(change) = &answer.change else { continue };
            let mut more = changes.clone();
            more.push(change.clone());
            // The first was searched for alone, by the engine itself with --exact.
            if changes.is_empty() || (!contradicts(change, &changes) && holds(&more)) {
                changes = more;
                had.push(answer.dimension.name());
            } else {
                left.push(answer.dimension.name());
            }
        }
        let stated = (had.len() + left.len() > 1).then(|| {
            let alongside =
                if left.len() == 1 { "does not fit in addition" } else { "do not fit in addition" };
            if left.is_empty() {
                format!("the flags on stdout combine the answers for {}", had.join(", "))
            } else {
                format!(
                    "the flags on stdout are the answer for {}; {} {alongside}",
                    had.join(", "),
                    left.join(", ")
                )
            }
        });
        Self { changes, stated }
    }
}

/// The answer to the first hint that is enough by itself and was searched for.
fn by_hints<'a>(fit: &Fit, answers: &[&'a FitAnswer]) -> Option<&'a FitAnswer> {
    let enough = fit.hints.iter().filter(|hint| hint.enough);
    let of = |advice: &Advice| {
        let is_it = |change: &RequestChange| discriminant(&change.advice()) == discriminant(advice);
        answers.iter().find(|answer| answer.change.as_ref().is_some_and(is_it)).copied()
    };
    enough.map(|hint| of(&hint.advice)).find_map(|answer| answer)
}

/// True where a change sets a flag that an earlier one sets too: slots bring a context of their own.
fn contradicts(change: &RequestChange, earlier: &[RequestChange]) -> bool {
    let names = |change: &RequestChange| -> BTreeSet<String> {
        change.flags().into_iter().filter(|word| word.starts_with('-')).collect()
    };
    let own = names(change);
    earlier.iter().any(|earlier| !names(earlier).is_disjoint(&own))
}
