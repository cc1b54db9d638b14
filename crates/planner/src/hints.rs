//! Advises on a model that does not fit, such as a quantised cache, with the memory that each change saves.
//!
//! Each saving is the result of a plan. Changes that are enough by themselves come first.

use std::cmp::Reverse;

use plimsoll_base::{Advice, Bytes, Card, CardKind, Hint, Order, kept_by_driver};
use plimsoll_flags::{FlashAttention, GpuLayers, ProgramKind, SplitMode};
use plimsoll_model::{TensorType, types};

use crate::fit::{CostModel, Dimension, FitQuestion, FitScale, RequestChange};
use crate::{PlanPrice, Reserve, Terms};

/// Advice that saves less is noise.
const WORTH_SAYING: Bytes = Bytes::mib(1);
/// Advice that is not enough alone must save at least this part of the missing memory.
const PART_OF_THE_GAP: u64 = 20;
/// Pairs that are listed where no single change is enough.
const PAIRS: usize = 4;

/// The loss by a change: a weight for the order, and its description.
fn loss_of(advice: &Advice) -> (u64, &'static str) {
    match advice {
        Advice::WindowedCache => (
            1,
            "tokens outside the attention window must be processed again when a later prompt goes back to \
                them",
        ),
        Advice::FlashAttention | Advice::DivideLayers(_) => (1, "nothing"),
        Advice::QuantiseCache("q8_0") => (2, "hardly any precision"),
        Advice::NoOpOffload => (2, "prompts are processed more slowly if weights are in host memory"),
        Advice::ShrinkMicroBatch(_) => (2, "prompts are processed more slowly"),
        Advice::ProjectorOnHost => (2, "images are processed more slowly"),
        Advice::FewerSlots(_) => (3, "fewer requests are served at once"),
        Advice::QuantiseCache(_) => (4, "some precision"),
        Advice::ShrinkContext(_) => (4, "shorter conversations"),
        Advice::ExpertsOnHost(_) => (8, "each generated token reads weights from host memory"),
        _ => (16, "generation is slower with each layer in host memory"),
    }
}

pub(super) fn hints<P: CostModel>(question: &FitQuestion<'_, P>) -> Vec<Hint> {
    let (cards, requested) = (question.request.cards, &question.requested);
    if requested.fits(cards) {
        return Vec::new();
    }
    let mut remedies = question.singles();
    if !remedies.iter().any(|remedy| remedy.enough) {
        remedies.extend(question.pairs(&remedies));
    }
    remedies.order_by_key(Remedy::rank);
    let gap = Bytes::new(requested.slack(cards).unsigned_abs());
    remedies.retain(|remedy| remedy.enough || remedy.saves >= gap.scaled(1, PART_OF_THE_GAP));
    let mut hints: Vec<Hint> = remedies.into_iter().map(Remedy::hint).collect();
    hints.extend(cards.iter().zip(&requested.cards).filter_map(free_card));
    hints.extend(question.another_card());
    hints
}

/// Changes that were planned together, and their effect.
#[derive(Clone, Debug)]
struct Remedy {
    changes: Vec<RequestChange>,
    saves: Bytes,
    enough: bool,
}

impl Remedy {
    fn advice(&self) -> Advice {
        let mut all: Vec<Advice> = self.changes.iter().map(RequestChange::advice).collect();
        match (all.pop(), all.is_empty()) {
            (Some(only), true) => only,
            (last, _) => Advice::Together(all.into_iter().chain(last).collect()),
        }
    }

    fn weight(&self) -> u64 {
        // DECISION: advice that is not enough by itself is ordered by bytes saved in relation to its price
        // (speed, precision, context). If no single change is enough, pairs are tried.
        self.changes.iter().map(|change| loss_of(&change.advice()).0).sum()
    }

    fn rank(&self) -> (bool, Reverse<u64>) {
        (!self.enough, Reverse(self.saves.get() / self.weight().max(1)))
    }

    fn hint(self) -> Hint {
        // A pair is described by its larger loss.
        let dearest = self.changes.iter().map(|change| loss_of(&change.advice())).max();
        Hint {
            enough: self.enough,
            costs: dearest.map(|(_, words)| words),
            ..Hint::saving(self.advice(), self.saves)
        }
    }
}

impl<P: CostModel> FitQuestion<'_, P> {
    fn singles(&self) -> Vec<Remedy> {
        let plain = self.plain().into_iter().filter_map(|kind| self.mildest_of(kind));
        plain.chain(self.scales().iter().filter_map(|scale| self.mildest(scale, &[]))).collect()
    }

    /// The mildest change of one kind that is enough, else the strongest; `kind` has the mildest first.
    fn mildest_of(&self, mut kind: Vec<RequestChange>) -> Option<Remedy> {
        // Where the strongest is not enough, no milder one is priced.
        let most = self.weigh(vec![kind.pop()?])?;
        let milder = kind.into_iter().filter(|_| most.enough);
        let enough = milder.filter_map(|change| self.weigh(vec![change])).find(|remedy| remedy.enough);
        Some(enough.unwrap_or(most))
    }

    /// Sufficient pairs of a single change that saves something and any other change.
    fn pairs(&self, singles: &[Remedy]) -> Vec<Remedy> {
        let plain: Vec<&RequestChange> = singles.iter().flat_map(|remedy| &remedy.changes).collect();
        let mut pairs = Vec::new();
        for (at, first) in plain.iter().enumerate() {
            // Two changes of one kind would overwrite each other.
            let others = plain[at + 1..].iter().filter(|second| first.kind() != second.kind());
            let both = others.map(|second| vec![(*first).clone(), (*second).clone()]);
            pairs.extend(both.filter_map(|both| self.weigh(both)));
            let first = std::slice::from_ref(*first);
            pairs.extend(self.scales().iter().filter_map(|scale| self.mildest(scale, first)));
        }
        pairs.retain(|pair| pair.enough);
        pairs.order_by_key(Remedy::rank);
        pairs.truncate(PAIRS);
        pairs
    }

    /// Prices changes; a remedy if they save memory on the cards that are short of it.
    fn weigh(&self, changes: Vec<RequestChange>) -> Option<Remedy> {
        let after = self.priced(&changes)?;
        let remedy = Remedy { saves: self.saving(&after), enough: after.fits(self.request.cards), changes };
        (remedy.saves >= WORTH_SAYING).then_some(remedy)
    }

    /// Bytes saved on the card where the unchanged request lacks the most.
    fn saving(&self, after: &PlanPrice) -> Bytes {
        let before = self.request.cards.iter().zip(&self.requested.cards);
        // Memory saved on a card with room to spare makes nothing fit.
        let lack = |(card, before): &(&Card, &Terms)| before.peak().saturating_sub(card.free);
        let short = before.zip(&after.cards).filter(|(before, _)| !lack(before).is_zero());
        let tightest = short.max_by_key(|(before, _)| lack(before));
        tightest.map_or(Bytes::ZERO, |((_, before), after)| before.peak().saturating_sub(after.peak()))
    }

    /// The mildest size of a change that is enough, with another change made as well.
    fn mildest(&self, scale: &FitScale, alongside: &[RequestChange]) -> Option<Remedy> {
        let found = self.best(scale, false, alongside)?;
        // A milder size without a price might be enough.
        let all = [alongside, &[scale.change(found.at)]].concat();
        if self.price.is_spent() { None } else { self.weigh(all) }
    }

    /// Changes of single flags that may save memory, grouped by kind, mildest first.
    fn plain(&self) -> Vec<Vec<RequestChange>> {
        let (request, params) = (self.request, self.request.params);
        let reserve = Reserve::of_model(request, u64::from(params.context));
        let cached = request.model.hyper.cached;
        let (key, value) = (params.cache_key, params.cache_value);
        // Of two types, the smaller for both comes first: it costs no precision that is not lost already.
        let one = smaller_of(key, value);
        let smaller = |kind: &TensorType| cached && is_smaller(*kind, one);
        // 128 tokens are one tile of the engine's matrix kernels.
        let batches = [params.micro_batch / 2, 128].into_iter();
        let batches = batches.filter(|&tokens| tokens >= 128 && tokens < params.micro_batch);
        let mut kinds = vec![
            [types::Q8_0, types::Q4_0].into_iter().filter(smaller).map(RequestChange::Cache).collect(),
            batches.map(|tokens| RequestChange::micro_batch(tokens, params.batch)).collect(),
        ];
        if cached && key != value {
            kinds.push(vec![RequestChange::Cache(one)]);
        }
        let slots = RequestChange::Slots { slots: 1, context: None };
        let whole = matches!(params.gpu_layers, GpuLayers::Auto | GpuLayers::All);
        // Operation offload copies host weights to a card, so it matters only where some are on the host.
        let partly = !whole || params.experts_on_host > 0 || !params.overrides.is_empty();
        let changes = [
            (reserve.sequences > 1 && request.program == ProgramKind::LlamaServer, slots),
            (params.flash_attention == FlashAttention::Off, RequestChange::FlashAttention),
            (params.op_offload && partly, RequestChange::NoOpOffload),
            (
                params.full_sliding_cache && request.model.hyper.sliding.is_some(),
                RequestChange::WindowedCache,
            ),
            (
                request.projector.is_some()
                    && params.projector_offload
                    && request.cards.iter().any(has_own_memory),
                RequestChange::ProjectorOnHost,
            ),
        ];
        kinds.extend(
            changes.into_iter().filter(|(is_possible, _)| *is_possible).map(|(_, change)| vec![change]),
        );
        kinds
    }

    /// Changes with a size, of at most what was asked for. Only a card with memory of its own has anything to
    /// move to the host.
    fn scales(&self) -> Vec<FitScale> {
        let has_card = self.request.cards.iter().any(has_own_memory);
        let dimensions = [Dimension::Context, Dimension::Experts, Dimension::Layers].into_iter();
        let dimensions = dimensions.take(if has_card { 3 } else { 1 });
        dimensions
            .filter_map(|dimension| Some(FitScale::of(dimension, self.request)?.up_to_requested()))
            .collect()
    }

    /// One more card like the first, if the model then fits.
    fn another_card(&self) -> Option<Hint> {
        let (request, params) = (self.request, self.request.params);
        let first = request.cards.iter().find(|card| has_own_memory(card))?;
        // Flags that name cards would leave the new one unused.
        if params.split_mode == SplitMode::None
            || !params.devices.is_empty()
            || !params.tensor_split.is_empty()
        {
            return None;
        }
        let mut cards = request.cards.to_vec();
        cards.push(Card { free: first.total, ..first.clone() });
        let fits = self.price.price(&[], &cards).is_ok_and(|priced| priced.fits(&cards));
        fits.then(|| Hint { enough: true, ..Hint::new(Advice::AnotherCard) })
    }
}

/// No further board joins one that shares its memory with the host, and nothing leaves it for the host.
fn has_own_memory(card: &Card) -> bool {
    card.kind == CardKind::Cuda && !card.shares_host
}

/// True where an element of `a` takes less memory than one of `b`.
fn is_smaller(a: TensorType, b: TensorType) -> bool {
    a.size * b.block < b.size * a.block
}

/// The type that takes less memory; the first of equals.
pub(super) fn smaller_of(a: TensorType, b: TensorType) -> TensorType {
    if is_smaller(b, a) { b } else { a }
}

/// A card that would be large enough if other processes left it.
fn free_card((card, terms): (&Card, &Terms)) -> Option<Hint> {
    let need = terms.peak();
    // No other process can free what the driver keeps.
    let kept = if card.kind == CardKind::Host { Bytes::ZERO } else { kept_by_driver(card.total) };
    let most = card.total.saturating_sub(kept);
    let occupied = most.saturating_sub(card.free);
    let enough = need > card.free && need <= most;
    enough.then(|| {
        let card = card.id.to_string();
        Hint::saving(Advice::FreeCard { card }, occupied)
    })
}
