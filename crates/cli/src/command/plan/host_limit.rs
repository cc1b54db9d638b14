//! Host memory limit of plans: contexts, results of `--fit` and hints are reduced if they need more than the host has.
//!
//! The search itself considers the cards only.

use plimsoll_base::{Advice, Bytes, Card, CardKind, Hint, Reason};
use plimsoll_flags::Options;
use plimsoll_planner::Plan;
use plimsoll_planner::fit::{CardLine, Dimension, Fit, FitAnswer, NextStep, RequestChange, edited};

use super::asked::Room;
use crate::report::ErrorReport;

/// The engine rounds a context up to it.
const STEP: u64 = 256;

/// Plans the flags for these cards.
pub(super) type Planner<'a> = &'a dyn Fn(&Options, &[Card]) -> Option<Plan>;

impl Room {
    /// Lowers the largest context that fits on the cards to one that the host's memory holds too.
    pub(super) fn limit_context(&self, options: &Options, plan: &mut Plan, planned: Planner<'_>) {
        if let Some(largest) = plan.largest_context {
            plan.largest_context = self.context_within(options, largest, planned).map(|(tokens, _)| tokens);
        }
    }

    /// The largest context up to `most` that fits the host's memory, with its plan.
    fn context_within(&self, options: &Options, most: u64, planned: Planner<'_>) -> Option<(u64, Plan)> {
        let fitting = |tokens: u64| {
            let words = ["--ctx-size".to_owned(), tokens.to_string()];
            let options = Options::from_argv(&words).ok()?.merged_over(options);
            let plan = planned(&options, &self.cards)?;
            let fits = self.host(&plan, &options).is_none_or(|(_, fits)| fits);
            fits.then_some((tokens, plan))
        };
        if let Some(found) = fitting(most) {
            return Some(found);
        }
        let (mut best, mut low, mut high) = (None, 1, most / STEP);
        while low <= high {
            let middle = low.midpoint(high);
            match fitting(middle * STEP) {
                Some(found) => (best, low) = (Some(found), middle + 1),
                None => high = middle - 1,
            }
        }
        best
    }

    /// Holds the answers of a search, and its hints.
    pub(super) fn limit_fit(
        &self,
        options: &Options,
        fit: &mut Fit,
        planned: Planner<'_>,
    ) -> Result<(), ErrorReport> {
        let asked = planned(options, &self.cards).and_then(|plan| self.host(&plan, options));
        if let Some((doubt, fits)) = asked {
            fit.warnings.insert(0, doubt);
            fit.fits &= fits;
        }
        for answer in &mut fit.answers {
            self.limit_answer(options, answer, planned)?;
        }
        fit.warnings.extend(self.doubt_hints(options, &mut fit.hints, planned));
        Ok(())
    }

    fn limit_answer(
        &self,
        options: &Options,
        answer: &mut FitAnswer,
        planned: Planner<'_>,
    ) -> Result<(), ErrorReport> {
        let Some(change) = &answer.change else { return Ok(()) };
        let changed = edited(options, std::slice::from_ref(change))?;
        let plan = planned(&changed, &self.cards);
        let Some((doubt, fits)) = plan.and_then(|plan| self.host(&plan, &changed)) else { return Ok(()) };
        if fits {
            answer.text += &format!("; {}", doubt.text);
            return Ok(());
        }
        let most = if let RequestChange::Context(tokens) = change { u64::from(*tokens) } else { 0 };
        let is_context = answer.dimension == Dimension::Context;
        let found = is_context.then(|| self.context_within(options, most, planned)).flatten();
        let Some((tokens, plan)) = found else {
            answer.text = format!("nothing fits: {}; on the cards alone, {}", doubt.text, answer.text);
            answer.trades.clear();
            // Weights that are read from disk for each token are no answer to paste.
            (answer.best, answer.change) = (None, None);
            return Ok(());
        };
        answer.text = format!(
            "a context of {tokens} tokens fits in the host's memory; with {most} tokens, {}",
            doubt.text
        );
        answer.best = Some(tokens.into());
        // They were searched for on the cards alone.
        answer.trades.clear();
        answer.change = u32::try_from(tokens).ok().map(RequestChange::Context);
        answer.next = Some(NextStep { value: tokens + STEP, card: None, short: None });
        answer.cards =
            self.cards.iter().zip(&plan.cards).map(|(card, planned)| line(card, planned.peak)).collect();
        Ok(())
    }

    /// Takes back that a hint is enough where it moves more to the host than the host has. The result says so, if no hint
    /// is enough any more.
    pub(super) fn doubt_hints(
        &self,
        options: &Options,
        hints: &mut Vec<Hint>,
        planned: Planner<'_>,
    ) -> Option<Reason> {
        let mut lacks = None;
        for hint in hints.iter_mut().filter(|hint| hint.enough) {
            let mut cards = self.cards.clone();
            let words = match (&hint.advice, hint.advice.flags()) {
                (_, Some(flags)) => flags.split(' ').map(str::to_owned).collect(),
                (Advice::AnotherCard, None) => {
                    let first = cards.iter().find(|card| card.kind == CardKind::Cuda).cloned();
                    cards.extend(first.map(|first| Card { free: first.total, ..first }));
                    Vec::new()
                }
                _ => continue,
            };
            let Ok(changed) = Options::from_argv(&words) else { continue };
            let changed = changed.merged_over(options);
            let doubt = planned(&changed, &cards).and_then(|plan| self.host(&plan, &changed));
            if let Some((doubt, false)) = doubt {
                hint.enough = false;
                let flags = hint.advice.flags().unwrap_or_else(|| "one more card".to_owned());
                lacks.get_or_insert((flags, doubt));
            }
        }
        // A further card saves nothing on the others; it is advice only where the model then fits.
        hints.retain(|hint| hint.enough || hint.advice != Advice::AnotherCard);
        let (flags, doubt) = lacks.filter(|_| hints.iter().all(|hint| !hint.enough))?;
        let text = format!("no advice makes it fit: with {flags}, {}", doubt.text);
        Some(Reason::new("host_memory_lacks", text))
    }
}

fn line(card: &Card, peak: Bytes) -> CardLine {
    let signed = |bytes: Bytes| i64::try_from(bytes.get()).unwrap_or(i64::MAX);
    CardLine {
        id: card.id.clone(),
        total: card.total,
        free: card.free,
        peak,
        headroom: signed(card.free).saturating_sub(signed(peak)),
    }
}
