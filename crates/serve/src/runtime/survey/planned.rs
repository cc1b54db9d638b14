//! Memory need of a model from its plan, and the handling of models that are too large for the cards.
//!
//! A context that is too large is lowered to a size that fits the empty cards.

use plimsoll_base::{Bytes, Card, CardId, Curve, Hint, MemoryModel, NamedDemand, Reason};
use plimsoll_config::{ConfiguredModel, TooLarge};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_model::Model;
use plimsoll_planner::{EngineBuild, MeasuredContext, Plan, PlanError, PlanRequest};

use super::named;

// DECISION: the context is lowered once. An engine keeps its context size until it ends, so the free memory
// at its start must not determine it.
/// A model of limited depth is admitted only if it can be this deep.
const LEAST_DEPTH: u64 = 1024;

#[derive(Debug)]
pub(super) struct PlannedModel {
    pub(super) model: Model,
    pub(super) draft: Option<Model>,
    pub(super) projector: Option<Model>,
    pub(super) flags: Options,
    pub(super) engine: EngineBuild,
    /// All cards that are served from, which the flags number.
    pub(super) machine: Vec<Card>,
    pub(super) too_large: TooLarge,
    /// Context that the model gets instead of the one in its flags.
    pub(super) lowered: Option<u64>,
    pub(super) contexts: Vec<MeasuredContext>,
}

impl PlannedModel {
    fn answer<T>(
        &self,
        cards: &[Card],
        answer: impl FnOnce(&PlanRequest<'_>) -> Result<T, PlanError>,
    ) -> Result<T, Reason> {
        let failed = |error: &dyn std::error::Error| Reason::new("plan_failed", error.to_string());
        let wish = named::seen_by(&self.flags, &self.machine, cards).map_err(|error| failed(&error))?;
        let request = PlanRequest {
            model: &self.model,
            draft: self.draft.as_ref(),
            projector: self.projector.as_ref(),
            wish: &wish,
            engine: self.engine,
            program: ProgramKind::LlamaServer,
            cards,
            contexts: &self.contexts,
        };
        answer(&request).map_err(|error| failed(&error))
    }

    fn plan(&self, cards: &[Card]) -> Result<Plan, Reason> {
        self.answer(cards, plimsoll_planner::plan)
    }

    fn depths(&self, cards: &[Card]) -> Result<Curve, Reason> {
        self.answer(cards, |request| plimsoll_planner::curve(request, self.longest_answer()))
    }

    /// `-n`: the engine's own limit of an answer.
    fn longest_answer(&self) -> Option<u64> {
        self.flags.text("--predict")?.parse().ok()
    }

    /// Memory at the largest depth that fits free memory, if the full depth does not.
    fn limited(&self, cards: &[Card]) -> Option<Vec<(CardId, Bytes)>> {
        let curve = self.depths(cards).ok().filter(Curve::grows)?;
        let free = |id: &CardId| {
            let card = cards.iter().find(|card| card.id == *id);
            card.map_or(Bytes::ZERO, |card| card.free)
        };
        // Below that a model would be loaded only to refuse nearly every request.
        let depth = curve.within(free).unwrap_or(0).max(LEAST_DEPTH);
        let shares = curve.at(depth).into_iter();
        Some(shares.map(|share| (share.card, share.bytes)).collect())
    }

    /// Lowers the context to the largest that fits on a set of cards, if its own fits on none and that is at
    /// least `least`.
    pub(super) fn with_context_that_fits(
        mut self,
        entry: &ConfiguredModel,
        named: &NamedDemand,
        least: u32,
    ) -> Self {
        let plans: Vec<Plan> =
            sets(entry, named, &self.machine).iter().filter_map(|cards| self.plan(cards).ok()).collect();
        // Its own context fits somewhere; it waits for that place.
        if plans.iter().any(|plan| plan.fits) {
            return self;
        }
        // The largest of all sets, because placement may choose any of them.
        let largest = plans.iter().filter_map(|plan| plan.largest_context).max();
        let Some(context) = largest.filter(|context| *context >= u64::from(least)) else {
            return self;
        };
        let words = ["--ctx-size".to_owned(), context.to_string()];
        if let Ok(options) = Options::from_argv(&words) {
            // The plan has to see the context that the engine will be given.
            self.flags = options.merged_over(&self.flags);
            self.lowered = Some(context);
        }
        self
    }
}

/// Sets of cards to try a context on: those that the flags name, or each card alone and all together.
fn sets(entry: &ConfiguredModel, named: &NamedDemand, machine: &[Card]) -> Vec<Vec<Card>> {
    let may_use =
        |card: &&Card| entry.cards.is_empty() || entry.cards.iter().any(|name| card.answers_to(name));
    if !named.cards.is_empty() {
        let own = machine.iter().filter(|card| named.cards.contains(&card.id));
        return vec![own.cloned().collect()];
    }
    let usable: Vec<Card> = machine.iter().filter(may_use).cloned().collect();
    let mut sets: Vec<Vec<Card>> = usable.iter().map(|card| vec![card.clone()]).collect();
    if usable.len() > 1 && usable.iter().all(|card| card.kind == usable[0].kind) {
        sets.push(usable);
    }
    sets
}

impl MemoryModel for PlannedModel {
    /// Plans for these cards. Without a card, a plan needs no card memory, but that does not help where a
    /// card is too small.
    fn on(&self, cards: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason> {
        if cards.is_empty() {
            return Err(Reason::new("no_card", "the model needs a GPU, and this machine has none"));
        }
        let plan = self.plan(cards)?;
        if self.too_large == TooLarge::LimitDepth
            && !plan.fits
            && let Some(shares) = self.limited(cards)
        {
            return Ok(shares);
        }
        let peaks = plan.cards.iter().map(|card| (card.id.clone(), card.peak));
        Ok(peaks.collect())
    }

    fn curve(&self, cards: &[Card]) -> Result<Curve, String> {
        self.depths(cards).map_err(|reason| reason.text)
    }

    fn lowered_context(&self) -> Option<u64> {
        self.lowered
    }

    fn hints(&self, cards: &[Card]) -> Vec<Hint> {
        self.plan(cards).map(|plan| plan.hints).unwrap_or_default()
    }

    fn asked(&self, cards: &[Card]) -> Vec<(CardId, Bytes)> {
        let plan = self.plan(cards);
        let cards = plan.iter().flat_map(|plan| &plan.cards);
        cards.filter_map(|card| Some((card.id.clone(), card.asked()?))).collect()
    }
}
