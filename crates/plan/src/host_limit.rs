//! Reduces contexts and hints of a plan if they need more memory than the host has.
//!
//! The search itself considers the cards only.

use plimsoll_base::{Advice, Bytes, Card, CardKind, Hint, Reason};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_planner::fit::{CardLine, Dimension, Fit, FitAnswer, NextStep, RequestChange, edited};
use plimsoll_planner::{HostPlan, HostRoom, Plan, PlannedSpeed};

use super::{Estimate, EstimateError};

/// The engine rounds a context up to it.
const STEP: u64 = 256;

/// Host memory that a plan may need without a word, where nothing is known of the machine.
const UNCHECKED: Bytes = Bytes::gib(4);

/// Host memory of the machine that is planned for.
#[derive(Clone, Copy, Debug)]
pub struct PlannedHost {
    pub room: HostRoom,
    /// The cards take their memory from it.
    pub is_shared: bool,
}

/// A machine that holds plans of a model to its host memory.
#[derive(Clone, Copy, Debug)]
pub struct HostLimit<'a> {
    pub estimate: &'a Estimate,
    pub cards: &'a [Card],
    /// `None` if it is not known.
    pub host: Option<PlannedHost>,
}

impl HostLimit<'_> {
    /// Holds a plan: its verdict, its largest context and its hints. `doubts` about the input come before
    /// those of the planner.
    pub fn limit_plan(&self, options: &Options, plan: &mut Plan, mut doubts: Vec<Reason>) {
        if let Some((doubt, fits)) = self.doubt(plan, options) {
            doubts.push(doubt);
            plan.fits &= fits;
        }
        if !plan.fits {
            plan.speed = PlannedSpeed::unusable();
        }
        plan.warnings.splice(0..0, doubts);
        if let Some(largest) = plan.largest_context {
            plan.largest_context = self.context_within(options, largest).map(|(tokens, _)| tokens);
        }
        plan.warnings.extend(self.doubt_hints(options, &mut plan.hints));
    }

    /// Doubt about host memory, and whether the plan still fits.
    pub fn doubt(&self, plan: &Plan, options: &Options) -> Option<(Reason, bool)> {
        let HostPlan { peak, .. } = plan.host;
        if self.cards.iter().any(|card| card.kind == CardKind::Host) {
            // The host is one of the cards, and its verdict is that of a card.
            return None;
        }
        let Some(host) = self.host else {
            let text = format!(
                "{peak} of host memory are needed too, but the host memory of the planned machine is \
                unknown; give it with --host SIZE"
            );
            return (peak > UNCHECKED).then(|| (Reason::new("host_memory_unchecked", text), true));
        };
        let shared: Bytes = plan.cards.iter().map(|card| card.peak).sum();
        let need = if host.is_shared { peak + shared } else { peak };
        host.room.doubt(need, mapped(options))
    }

    /// True where the cards and the host hold the model with these flags.
    pub fn fits_wholly(&self, options: &Options) -> bool {
        let plan = self.planned(options, self.cards);
        plan.is_some_and(|plan| plan.fits && self.doubt(&plan, options).is_none_or(|(_, fits)| fits))
    }

    fn planned(&self, options: &Options, cards: &[Card]) -> Option<Plan> {
        self.estimate.plan(options, cards).ok()
    }

    /// The largest context up to `most` that fits the host's memory, with its plan.
    fn context_within(&self, options: &Options, most: u64) -> Option<(u64, Plan)> {
        let fitting = |tokens: u64| {
            let words = ["--ctx-size".to_owned(), tokens.to_string()];
            let options = Options::from_argv(&words).ok()?.merged_over(options);
            let plan = self.planned(&options, self.cards)?;
            let fits = self.doubt(&plan, &options).is_none_or(|(_, fits)| fits);
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
    pub fn limit_fit(&self, options: &Options, fit: &mut Fit) -> Result<(), EstimateError> {
        let requested = self.planned(options, self.cards).and_then(|plan| self.doubt(&plan, options));
        if let Some((doubt, fits)) = requested {
            fit.warnings.insert(0, doubt);
            fit.fits &= fits;
        }
        for answer in &mut fit.answers {
            self.limit_answer(options, answer)?;
        }
        fit.warnings.extend(self.doubt_hints(options, &mut fit.hints));
        Ok(())
    }

    fn limit_answer(&self, options: &Options, answer: &mut FitAnswer) -> Result<(), EstimateError> {
        let Some(change) = &answer.change else { return Ok(()) };
        let changed = edited(options, std::slice::from_ref(change))?;
        let plan = self.planned(&changed, self.cards);
        let Some((doubt, fits)) = plan.and_then(|plan| self.doubt(&plan, &changed)) else { return Ok(()) };
        if fits {
            answer.text += &format!("; {}", doubt.text);
            return Ok(());
        }
        let most = if let RequestChange::Context(tokens) = change { u64::from(*tokens) } else { 0 };
        let is_context = answer.dimension == Dimension::Context;
        let found = is_context.then(|| self.context_within(options, most)).flatten();
        let Some((tokens, plan)) = found else {
            answer.text =
                format!("no value fits: {}; without the limit of host memory, {}", doubt.text, answer.text);
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

    /// Takes back that a hint is enough where it moves more to the host than the host has. The result says
    /// so, if no hint is enough any more.
    fn doubt_hints(&self, options: &Options, hints: &mut Vec<Hint>) -> Option<Reason> {
        let mut lacks = None;
        for hint in hints.iter_mut().filter(|hint| hint.enough) {
            let mut cards = self.cards.to_vec();
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
            let doubt = self.planned(&changed, &cards).and_then(|plan| self.doubt(&plan, &changed));
            if let Some((doubt, false)) = doubt {
                hint.enough = false;
                let flags = hint.advice.flags().unwrap_or_else(|| "one more card".to_owned());
                lacks.get_or_insert((flags, doubt));
            }
        }
        // A further card saves nothing on the others; it is advice only where the model then fits.
        hints.retain(|hint| hint.enough || hint.advice != Advice::AnotherCard);
        let (flags, doubt) = lacks.filter(|_| hints.iter().all(|hint| !hint.enough))?;
        let text = format!("no advice makes the model fit: with {flags}, {}", doubt.text);
        Some(Reason::new("host_memory_lacks", text))
    }
}

/// True where the weights are pages of the file, which the kernel may drop.
fn mapped(options: &Options) -> bool {
    options.params(ProgramKind::LlamaServer).is_ok_and(|params| params.mmap)
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
