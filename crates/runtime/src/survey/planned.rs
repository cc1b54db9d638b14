//! Plans the memory of a model, and lowers a context that is too large for the cards.
//!
//! A context that is too large is lowered to a size that fits the empty cards.

mod divided;

use plimsoll_base::{
    Advice, Bytes, CacheOverflow, Card, CardId, CardKind, CardShares, Curve, Hint, HostNeed, MemoryModel,
    NamedDemand, PromptCache, Reason, RequestedMemory, SpillWay,
};
use plimsoll_config::{ConfiguredModel, TooLarge};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_plan::Estimate;
use plimsoll_planner::exact::EngineSizes;
use plimsoll_planner::fit::{ClosedForms, CostModel};
use plimsoll_planner::{CardPlan, HostPlan, HostTerms, Plan, PlanError, PlanRequest, PlanTerm, Terms};

use super::named;
use super::questions::ModelQuestions;

// DECISION: the context is lowered once. An engine keeps its context size until it ends, so the free memory
// at its start must not determine it.
/// A model of limited depth is admitted only if it can be this deep.
const LEAST_DEPTH: u64 = 1024;
/// Times that a context is lowered, if the engine turns out to take more than planned.
const LOWERINGS: u32 = 3;
/// Part of a budget for small requests and exchanges, beyond the plan's share in host memory.
const ALONGSIDE_CACHE: Bytes = Bytes::mib(64);
/// A set of cards is too small beyond doubt where a plan exceeds it by this part.
const DOUBT: (u64, u64) = (1, 20);

#[derive(Debug)]
pub(super) struct PlannedModel {
    pub(super) estimate: Estimate,
    pub(super) flags: Options,
    /// All cards that are served from, which the flags number.
    pub(super) machine: Vec<Card>,
    pub(super) too_large: TooLarge,
    /// The most of its cache that may be in host memory.
    pub(super) spill: Option<Bytes>,
    /// Context that the model gets instead of the one in its flags.
    pub(super) lowered: Option<u64>,
    /// The host's memory, where it is one of the cards that are served from.
    pub(super) host: Option<CardId>,
    /// The most that the engine's cache of idle prompts takes of it.
    pub(super) prompt_cache: Option<PromptCache>,
    /// The model's engine, where it can be asked.
    pub(super) questions: Option<ModelQuestions>,
}

impl PlannedModel {
    fn answer<T>(
        &self,
        cards: &[Card],
        answer: impl FnOnce(&PlanRequest<'_>) -> Result<T, PlanError>,
    ) -> Result<T, Reason> {
        let failed = |error: &dyn std::error::Error| Reason::new("plan_failed", error.to_string());
        let seen = named::seen_by(&self.flags, &self.machine, cards).map_err(|error| failed(&error))?;
        self.estimate.answer(&seen, cards, answer).map_err(|error| failed(&error))
    }

    /// Adds what the model takes of the host's memory, `beside` its cards, to its shares of these.
    fn with_host(&self, beside: Bytes, mut shares: CardShares) -> CardShares {
        let Some(host) = &self.host else { return shares };
        let prompts = self.prompts();
        match shares.iter_mut().find(|(card, _)| card == host) {
            // The plan of a model that computes there has all but the cache of prompts.
            Some((_, bytes)) => *bytes += prompts,
            None => shares.push((host.clone(), beside + prompts)),
        }
        shares
    }

    /// The cards without the room that the cache of idle prompts takes, which no plan counts.
    fn alongside_prompts(&self, cards: &[Card]) -> Vec<Card> {
        let less = |card: &Card| {
            if self.host.as_ref() == Some(&card.id) {
                Card { free: card.free.saturating_sub(self.prompts()), ..card.clone() }
            } else {
                card.clone()
            }
        };
        cards.iter().map(less).collect()
    }

    fn prompts(&self) -> Bytes {
        self.prompt_cache.map_or(Bytes::ZERO, |cache| cache.bytes)
    }

    /// The shares without a whole plan, where they are its peaks. A search for places asks often, and needs
    /// neither advice nor the largest context.
    fn priced(&self, cards: &[Card]) -> Result<Option<CardShares>, Reason> {
        let is_divided = self.spill.is_some() || self.too_large == TooLarge::LimitDepth;
        if is_divided || cards.iter().any(|card| card.shares_host) {
            return Ok(None);
        }
        let price = self.answer(cards, |request| ClosedForms(*request).price(&[], request.cards))?;
        let by = self.correction(cards).unwrap_or_default();
        let by = by.into_iter().chain(std::iter::repeat(0));
        let shares = cards.iter().zip(by).enumerate();
        let shares = shares.map(|(at, (card, by))| (card.id.clone(), price.peak(at).shifted(by)));
        Ok(Some(self.with_host(price.host.peak(), shares.collect())))
    }

    fn plan(&self, cards: &[Card]) -> Result<Plan, Reason> {
        self.answer(cards, plimsoll_planner::plan)
    }

    fn depths(&self, cards: &[Card]) -> Result<Curve, Reason> {
        let curve = self.answer(cards, |request| plimsoll_planner::curve(request, self.longest_answer()))?;
        Ok(match self.correction(cards) {
            Some(by) => curve.shifted(&by),
            None => curve,
        })
    }

    /// The peak on each card, as the engine reports it or as planned.
    fn peaks(&self, plan: &Plan, cards: &[Card]) -> Vec<Bytes> {
        let by = self.correction(cards).unwrap_or_default();
        let by = by.into_iter().chain(std::iter::repeat(0));
        plan.cards.iter().zip(by).map(|(card, by)| card.peak.shifted(by)).collect()
    }

    /// Bytes that the engine takes beyond the plan on each of these cards; `None` until it has answered.
    fn correction(&self, cards: &[Card]) -> Option<Vec<i64>> {
        let questions = self.questions.as_ref()?;
        questions.once(cards, || {
            let empty = |card: &Card| self.machine.iter().find(|other| other.id == card.id).cloned();
            let empty: Vec<Card> = cards.iter().map(empty).collect::<Option<_>>()?;
            let plan = self.plan(&empty).ok()?;
            let limits_depth = self.too_large == TooLarge::LimitDepth;
            let is_too_large = plan.cards.iter().zip(&empty).any(|(card, of)| {
                let need = match self.least(of, card, card.peak) {
                    Some(least) => least,
                    None if limits_depth => card.loaded,
                    None => card.peak,
                };
                need > card.free + card.free.scaled(DOUBT.0, DOUBT.1)
            });
            // A placement tries many sets of cards, and most are too small.
            if is_too_large {
                return None;
            }
            let options = named::seen_by(&self.flags, &self.machine, &empty).ok()?;
            let stated = questions.ask(options, &empty)?;
            let sizes =
                |request: &PlanRequest<'_>| EngineSizes { request, transcript: &stated, program: "" }.price();
            let price = self.answer(&empty, sizes).ok()?;
            let signed = |bytes: Bytes| i64::try_from(bytes.get()).unwrap_or(i64::MAX);
            let each = plan.cards.iter().enumerate();
            Some(each.map(|(at, card)| signed(price.peak(at)) - signed(card.peak)).collect())
        })
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
        for _ in 0..LOWERINGS {
            let lowered = self.context_that_fits(entry, named);
            let Some(context) = lowered.filter(|context| *context >= u64::from(least)) else {
                return self;
            };
            let words = ["--ctx-size".to_owned(), context.to_string()];
            if let Ok(options) = Options::from_argv(&words) {
                // The plan has to see the context that the engine will be given.
                self.flags = options.merged_over(&self.flags);
                self.lowered = Some(context);
                self.questions.iter_mut().for_each(ModelQuestions::flags_changed);
            }
        }
        self
    }

    /// The largest context that fits on a set of cards; `None` if the present one does, or none.
    fn context_that_fits(&self, entry: &ConfiguredModel, named: &NamedDemand) -> Option<u64> {
        let mut largest = None;
        for cards in sets(entry, named, &self.alongside_prompts(&self.machine)) {
            let Ok(plan) = self.plan(&cards) else { continue };
            let peaks = self.peaks(&plan, &cards);
            // Its own context fits here; it waits for that place.
            if peaks.iter().zip(&cards).all(|(peak, card)| *peak <= card.free) {
                return None;
            }
            let divided = self.divided(&plan, &peaks, &cards).unwrap_or_default();
            if !divided.is_empty() && divided.iter().zip(&cards).all(|((_, share), card)| *share <= card.free)
            {
                return None;
            }
            let context = match self.correction(&cards) {
                None => plan.largest_context,
                Some(by) => {
                    // Memory that the engine takes beyond the plan is not available for a context.
                    let less = |(card, by): (&Card, &i64)| Card {
                        free: card.free.shifted(by.saturating_neg().min(0)),
                        ..card.clone()
                    };
                    let less: Vec<Card> = cards.iter().zip(&by).map(less).collect();
                    self.plan(&less).ok().and_then(|plan| plan.largest_context)
                }
            };
            // The largest of all sets, because placement may choose any of them.
            largest = largest.max(context);
        }
        largest
    }
}

/// Sets of cards to try a context on: those that the flags name, or each card alone and all together.
fn sets(entry: &ConfiguredModel, named: &NamedDemand, machine: &[Card]) -> Vec<Vec<Card>> {
    if !named.cards.is_empty() {
        let own = machine.iter().filter(|card| named.cards.contains(&card.id));
        return vec![own.cloned().collect()];
    }
    let usable: Vec<Card> = computing(machine).iter().filter(|card| entry.may_use(card)).cloned().collect();
    let mut sets: Vec<Vec<Card>> = usable.iter().map(|card| vec![card.clone()]).collect();
    if usable.len() > 1 && usable.iter().all(|card| card.kind == usable[0].kind) {
        sets.push(usable);
    }
    sets
}

/// The cards that a model computes on: without the host's memory beside others.
pub(super) fn computing(cards: &[Card]) -> Vec<Card> {
    let gpus: Vec<Card> = cards.iter().filter(|card| card.kind != CardKind::Host).cloned().collect();
    if gpus.is_empty() { cards.to_vec() } else { gpus }
}

impl MemoryModel for PlannedModel {
    /// Plans for these cards. Without a card, a plan needs no card memory, but that does not help where a
    /// card is too small.
    fn on(&self, cards: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason> {
        if cards.is_empty() {
            return Err(Reason::new("no_card", "the model needs a GPU, and this machine has none"));
        }
        let cards = &computing(cards)[..];
        if let Some(shares) = self.priced(cards)? {
            return Ok(shares);
        }
        let plan = self.plan(cards)?;
        let peaks = self.peaks(&plan, cards);
        if let Some(shares) = self.divided(&plan, &peaks, cards) {
            let on_host: Bytes = self.overflow_of(&shares, cards).iter().map(|part| part.on_host).sum();
            return Ok(self.with_host(plan.host.peak + on_host, shares));
        }
        if self.too_large == TooLarge::LimitDepth
            && self.alongside_prompts(cards).iter().zip(&peaks).any(|(card, peak)| *peak > card.free)
            && let Some(shares) = self.limited(&self.alongside_prompts(cards))
        {
            return Ok(self.with_host(plan.host.peak, shares));
        }
        let shares = plan.cards.iter().zip(peaks).map(|(card, peak)| (card.id.clone(), peak)).collect();
        Ok(self.with_host(plan.host.peak, shares))
    }

    /// Layers are split by what is free of several cards, and a cache that overflows is as large as its card
    /// has room.
    fn ignores_free(&self, cards: &[Card]) -> bool {
        let is_fixed = self.spill.is_none() && self.too_large != TooLarge::LimitDepth;
        is_fixed && computing(cards).len() == 1
    }

    fn reported(&self, cards: &[Card]) -> bool {
        self.correction(&computing(cards)).is_some()
    }

    fn curve(&self, cards: &[Card]) -> Result<Curve, String> {
        let curve = self.depths(&computing(cards)).map_err(|reason| reason.text)?;
        // A divided cache has a claim that is smaller than the model at any depth.
        Ok(if self.spill.is_some() { curve.reserved() } else { curve })
    }

    fn lowered_context(&self) -> Option<u64> {
        self.lowered
    }

    fn hints(&self, cards: &[Card]) -> Vec<Hint> {
        let plan = self.plan(&self.alongside_prompts(&computing(cards)));
        let mut hints = plan.map(|plan| plan.hints).unwrap_or_default();
        hints.retain_mut(|hint| match &mut hint.advice {
            Advice::SpillCache(advice) => {
                advice.way = SpillWay::Setting;
                advice.spill += ALONGSIDE_CACHE;
                // With as much already, it is the host that lacks memory.
                self.spill.is_none_or(|own| own < advice.spill)
            }
            _ => true,
        });
        hints
    }

    fn overflow(&self, cards: &[Card]) -> Vec<CacheOverflow> {
        let cards = &computing(cards)[..];
        let divided =
            self.plan(cards).ok().and_then(|plan| self.divided(&plan, &self.peaks(&plan, cards), cards));
        divided.map_or_else(Vec::new, |shares| self.overflow_of(&shares, cards))
    }

    fn doubts(&self, cards: &[Card]) -> Vec<Reason> {
        // How far the formulas may be off is no fault of a configuration.
        let is_of_flags = |doubt: &Reason| {
            let codes =
                ["attention_on_host", "flash_attention_off", "context_beyond_training", "rpc_not_counted"];
            codes.contains(&doubt.code)
        };
        let plan = self.plan(&computing(cards));
        plan.map(|plan| plan.warnings.into_iter().filter(is_of_flags).collect()).unwrap_or_default()
    }

    fn requested(&self, cards: &[Card]) -> Vec<RequestedMemory> {
        let cards = &computing(cards)[..];
        let Ok(plan) = self.plan(cards) else { return Vec::new() };
        let by = self.correction(cards).unwrap_or_default();
        let each = plan.cards.iter().zip(by.into_iter().chain(std::iter::repeat(0)));
        let shifted = |requested: RequestedMemory, by| RequestedMemory {
            bytes: requested.bytes.shifted(by),
            ..requested
        };
        each.filter_map(|(card, by)| Some(shifted(card.requested()?, by))).collect()
    }

    fn terms(&self, cards: &[Card]) -> Vec<(CardId, Vec<(&'static str, Bytes)>)> {
        let Ok(plan) = self.plan(&computing(cards)) else { return Vec::new() };
        let mut terms: Vec<_> = plan.cards.iter().map(|card| (card.id.clone(), card_terms(card))).collect();
        let Some(host) = &self.host else { return terms };
        if !terms.iter().any(|(card, _)| card == host) {
            terms.push((host.clone(), host_terms(&plan.host)));
        }
        let prompts = self.prompt_cache.map(|cache| (PROMPTS, cache.bytes));
        terms.iter_mut().filter(|(card, _)| card == host).for_each(|(_, terms)| terms.extend(prompts));
        terms
    }

    fn alongside_cards(&self, cards: &[Card]) -> Option<HostNeed> {
        let is_counted = self.host.is_some() || cards.iter().any(|card| card.kind == CardKind::Host);
        let on_host: Bytes = self.overflow(cards).iter().map(|part| part.on_host).sum();
        let bytes = self.plan(&computing(cards)).ok().filter(|_| !is_counted)?.host.peak + on_host;
        let mapped = self.flags.params(ProgramKind::LlamaServer).is_ok_and(|params| params.mmap);
        Some(HostNeed { bytes, mapped })
    }

    fn prompt_cache(&self) -> Option<PromptCache> {
        self.prompt_cache.filter(|_| self.host.is_some())
    }
}

/// Name of the term of idle prompts.
const PROMPTS: &str = "prompts";

fn card_terms(card: &CardPlan) -> Vec<(&'static str, Bytes)> {
    let Terms { weights, kv, compute, pool, context } = &card.terms;
    known([("context", context), ("weights", weights), ("compute", compute), ("kv", kv), ("pool", pool)])
}

fn host_terms(host: &HostPlan) -> Vec<(&'static str, Bytes)> {
    let HostTerms { weights, kv, compute, output } = &host.terms;
    known([("weights", weights), ("compute", compute), ("kv", kv), ("output", output)])
}

/// The terms with a value: an unknown one is left out, never shown as zero.
fn known<const N: usize>(named: [(&'static str, &PlanTerm); N]) -> Vec<(&'static str, Bytes)> {
    named.into_iter().filter_map(|(name, term)| Some((name, term.bytes?))).collect()
}
