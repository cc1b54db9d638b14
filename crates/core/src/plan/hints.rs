//! What would help, each piece of advice weighed by planning with it.
//!
//! Advice is given only where the plan does not fit, and only if it saves something where memory is short; the
//! most saving first.

use super::cost::{Cost, Coster, peak};
use super::fit;
use super::request::PlanRequest;
use crate::bytes::Bytes;
use crate::explain::{Advice, Hint};
use crate::flags::Program;
use crate::flags::{FlashAttention, GpuLayers, Parallel, SplitMode, Wish};
use crate::model::types;
use crate::place::{Card, CardKind};

/// Advice that saves less is noise.
const WORTH_SAYING: Bytes = Bytes::mib(1);

pub(super) fn hints(request: &PlanRequest<'_>, cost: &Cost, largest_context: Option<u64>) -> Vec<Hint> {
    if fit::fits(request, cost) {
        return Vec::new();
    }
    let mut hints: Vec<Hint> = changes(request, cost, largest_context)
        .into_iter()
        .filter_map(|(advice, wish)| weigh(request, cost, advice, &wish))
        .collect();
    hints.extend(experts_on_host(request, cost));
    hints.extend(fewer_layers(request, cost));
    hints.extend(
        request
            .cards
            .iter()
            .zip(&cost.cards)
            .filter_map(|(card, terms)| free_card(card, peak(terms))),
    );
    hints.sort_by_key(|hint| std::cmp::Reverse(hint.saves));
    hints.extend(another_card(request));
    hints
}

/// Changes of single flags that may save memory.
fn changes(request: &PlanRequest<'_>, cost: &Cost, largest_context: Option<u64>) -> Vec<(Advice, Wish)> {
    let wish = request.wish;
    let changed = |change: &dyn Fn(&mut Wish)| {
        let mut wish = wish.clone();
        change(&mut wish);
        wish
    };
    let mut changes = Vec::new();
    if let Some(tokens) = largest_context.filter(|&tokens| tokens < cost.reserve.context) {
        let context = u32::try_from(tokens).unwrap_or(u32::MAX);
        changes.push((
            Advice::ShrinkContext(tokens),
            changed(&|wish| wish.context = context),
        ));
    }
    if !wish.cache_key.quantised() && request.model.hyper.cached {
        changes.push((
            Advice::QuantiseCache(types::Q8_0.name),
            changed(&|wish| {
                wish.cache_key = types::Q8_0;
                wish.cache_value = types::Q8_0;
            }),
        ));
    }
    if wish.micro_batch > 128 {
        let half = (wish.micro_batch / 2).max(128);
        changes.push((
            Advice::ShrinkMicroBatch(u64::from(half)),
            changed(&|wish| wish.micro_batch = half),
        ));
    }
    if cost.reserve.sequences > 1 && request.program == Program::LlamaServer {
        changes.push((
            Advice::FewerSlots(1),
            changed(&|wish| wish.parallel = Parallel::Count(1)),
        ));
    }
    if wish.flash_attention == FlashAttention::Off {
        changes.push((
            Advice::FlashAttention,
            changed(&|wish| wish.flash_attention = FlashAttention::Auto),
        ));
    }
    if wish.op_offload && cost.host.weights.known() > Bytes::ZERO {
        changes.push((Advice::NoOpOffload, changed(&|wish| wish.op_offload = false)));
    }
    changes
}

/// Plans with a changed wish; a hint if that saves memory on the cards that are short of it.
fn weigh(request: &PlanRequest<'_>, cost: &Cost, advice: Advice, wish: &Wish) -> Option<Hint> {
    let changed = PlanRequest { wish, ..*request };
    let after = cost_of(&changed)?;
    let saves = saving(request, cost, &after);
    (saves >= WORTH_SAYING).then(|| Hint::saving(advice, saves))
}

fn cost_of(request: &PlanRequest<'_>) -> Option<Cost> {
    Coster::new(request)
        .and_then(|coster| coster.at(u64::from(request.wish.context)))
        .ok()
}

/// Bytes saved on the cards where the plan does not fit.
fn saving(request: &PlanRequest<'_>, before: &Cost, after: &Cost) -> Bytes {
    let short = |(card, terms): &(&Card, &super::Terms)| peak(terms) > card.free;
    let before = request.cards.iter().zip(&before.cards);
    let pairs = before.zip(&after.cards).filter(|(before, _)| short(before));
    pairs
        .map(|((_, before), after)| peak(before).saturating_sub(peak(after)))
        .sum()
}

/// The fewest layers whose experts must be in host memory.
fn experts_on_host(request: &PlanRequest<'_>, cost: &Cost) -> Option<Hint> {
    request.model.hyper.experts.as_ref()?;
    let with = |layers: u32| {
        let mut wish = request.wish.clone();
        wish.experts_on_host = layers;
        wish
    };
    fewest(request, cost, request.wish.experts_on_host, with, |layers| {
        Advice::ExpertsOnHost(u64::from(layers))
    })
}

/// The most layers that can stay on the cards.
fn fewer_layers(request: &PlanRequest<'_>, cost: &Cost) -> Option<Hint> {
    let all = request.model.hyper.layers.saturating_add(1);
    let now = match request.wish.gpu_layers {
        GpuLayers::Auto | GpuLayers::All => all,
        GpuLayers::Count(n) => n.min(all),
    };
    let with = |fewer: u32| {
        let mut wish = request.wish.clone();
        wish.gpu_layers = GpuLayers::Count(now.saturating_sub(fewer));
        wish
    };
    fewest(request, cost, 0, with, |fewer| {
        Advice::FewerLayers(u64::from(now.saturating_sub(fewer)))
    })
}

/// Halves over `start..=layers` for the least change after which the plan fits.
fn fewest(
    request: &PlanRequest<'_>,
    cost: &Cost,
    start: u32,
    with: impl Fn(u32) -> Wish,
    advice: impl Fn(u32) -> Advice,
) -> Option<Hint> {
    if !request.cards.iter().any(|card| card.kind == CardKind::Cuda) {
        return None;
    }
    let after = |layers: u32| {
        let wish = with(layers);
        cost_of(&PlanRequest {
            wish: &wish,
            ..*request
        })
    };
    let fits = |layers: u32| after(layers).is_some_and(|cost| fit::fits(request, &cost));
    let (mut low, mut high) = (start, request.model.hyper.layers);
    if high <= low || !fits(high) {
        return None;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    let saves = saving(request, cost, &after(high)?);
    (saves >= WORTH_SAYING).then(|| Hint::saving(advice(high), saves))
}

fn free_card(card: &Card, need: Bytes) -> Option<Hint> {
    let held = card.total.saturating_sub(card.free);
    let enough = need > card.free && need <= card.total;
    enough.then(|| {
        let card = card.id.to_string();
        Hint::saving(Advice::FreeCard { card }, held)
    })
}

/// Another card like the first, if the model then fits.
fn another_card(request: &PlanRequest<'_>) -> Option<Hint> {
    let first = request.cards.iter().find(|card| card.kind == CardKind::Cuda)?;
    if request.wish.split_mode == SplitMode::None
        || !request.wish.devices.is_empty()
        || !request.wish.tensor_split.is_empty()
    {
        return None;
    }
    let mut cards = request.cards.to_vec();
    cards.push(Card {
        free: first.total,
        ..first.clone()
    });
    let wider = PlanRequest {
        cards: &cards,
        ..*request
    };
    let cost = cost_of(&wider)?;
    fit::fits(&wider, &cost).then(|| Hint::new(Advice::AnotherCard))
}
