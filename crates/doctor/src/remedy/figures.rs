//! Finds the figures that a remedy quotes: what was requested, what is free, how many tokens would fit.

use plimsoll_base::Bytes;

use crate::facts::{Facts, FailedAllocation, Purpose, Quote};
use crate::pattern::Pattern;
use crate::program::is_of_cards;

/// The context of each slot is rounded down to this, as llama.cpp rounds it up to it.
const TOKENS: u64 = 256;
/// Room for a compute buffer of unknown size.
const ALLOWANCE: Bytes = Bytes::mib(256);
/// Values of the embedding's width that a token of a micro-batch takes at once.
const ACTIVATIONS: u64 = 5;

/// The figure of a name in the table; `None` if the log does not have it.
pub(super) fn figure(name: &str, facts: &Facts) -> Option<String> {
    let torch = facts.torch.as_ref();
    let startup = facts.startup.as_ref();
    let estimate = facts.estimate.as_ref();
    let text = |size: Option<Bytes>| size.filter(|size| !size.is_zero()).map(|size| size.to_string());
    match name {
        "asked" => text(torch.map(|torch| torch.requested).or_else(|| facts.refusal()?.requested)),
        "free" => torch.and_then(|torch| torch.free).map(|free| free.to_string()),
        // A card that is nearly full has no share left to give.
        "spare" => {
            let (free, card) = (torch.and_then(|torch| torch.free)?, facts.card()?);
            (free.scaled(20, 1) > card).then(|| free.to_string())
        }
        "idle" => text(torch.and_then(|torch| torch.idle)),
        "card" => text(facts.card()),
        "weights" => text(needed(facts, Purpose::Weights).or(facts.model.weights)),
        "kv" => text(needed(facts, Purpose::Cache)),
        "half" => half_of_the_cache(facts).map(|half| half.to_string()),
        "context" => facts.options.context_tokens.map(|tokens| tokens.to_string()),
        "room" => room(facts).map(|room| room.to_string()),
        "left" => room(facts)?.checked_sub(needed(facts, Purpose::Compute)?).map(|left| left.to_string()),
        "reserve" => reserved(facts).map(|reserve| reserve.to_string()),
        // These two only say whether a form is about the failed step.
        "vae" => facts.says(Pattern::InVae).then(String::new),
        "attention" => {
            let in_sampler = facts.says(Pattern::InAttention) && !facts.says(Pattern::InVae);
            in_sampler.then(String::new)
        }
        "q8" => matches!(quantised_cache(facts), Some(QuantisedCache::Whole)).then(String::new),
        "q8fit" => match quantised_cache(facts)? {
            QuantisedCache::Whole => None,
            QuantisedCache::Shorter(tokens) => Some(tokens.to_string()),
        },
        "split" => split_by_free(facts),
        "missing" => text(missing(facts)),
        "each" => {
            let (cache, tokens) = (needed(facts, Purpose::Cache)?, facts.options.context_tokens?);
            text(Some(cache.scaled(1024, tokens.max(1))))
        }
        "fits" => context_that_fits(facts).map(|tokens| tokens.to_string()),
        "layers" => layers_that_fit(facts).map(|layers| layers.to_string()),
        "needed" => text(estimate.map(|estimate| estimate.full)),
        "available" => text(estimate.map(|estimate| estimate.available)),
        "longest" => facts.options.longest_context.map(|tokens| tokens.to_string()),
        "share" => {
            let (free, total) = startup.map(|startup| (startup.free, startup.total))?;
            let hundredths = free.get().checked_mul(100)?.checked_div(total.get())?;
            (1..100).contains(&hundredths).then(|| format!("0.{hundredths:02}"))
        }
        "legacy" => {
            let is_replaced = is_of_cards("nvidia", facts) == Some(true) && !has_paged_pool(facts);
            is_replaced.then(|| "ggml's legacy pool".to_owned())
        }
        "f16" => f16_fits(facts).then(String::new),
        // Neither a card that the weights fill nor a share of nearly all has more to give.
        "raise" => {
            let is_full = facts
                .model
                .weights
                .zip(facts.card())
                .is_some_and(|(weights, card)| weights.scaled(20, 19) >= card);
            (!is_full && facts.options.utilization.is_none_or(|share| share < 0.95)).then(String::new)
        }
        _ => match name.strip_prefix("is ") {
            Some(fact) => facts.says(Pattern::named(fact)?).then(String::new),
            None => of_cards(name, facts).map(str::to_owned),
        },
    }
}

/// A figure that differs between makers of cards, by the first row that fits.
fn of_cards(name: &str, facts: &Facts) -> Option<&'static str> {
    include_str!("../cards.tsv").lines().find_map(|row| {
        let (figure, rest) = row.split_once('\t')?;
        let (cards, text) = rest.split_once('\t')?;
        (figure == name && is_of_cards(cards, facts) == Some(true)).then_some(text)
    })
}

/// The quantised cache of the log would fit as f16, into what is free above the load.
fn f16_fits(facts: &Facts) -> bool {
    let line = facts.quote(Pattern::MakesCache).map(|line| line.text).unwrap_or_default();
    // Blocks of 32 values take 34 bytes as q8_0, and at least 18 as the smaller types:
    // `ggml-common.h:block_q4_0`.
    let block = if line.contains("(q8_0)") { 34 } else { 18 };
    let fits = || {
        let (cache, free) = (needed(facts, Purpose::Cache)?, facts.free_before()?);
        let load: Bytes = facts.load_buffers().map(|buffer| buffer.size).sum();
        Some(load + cache.scaled(64, block).checked_sub(cache)? <= free)
    };
    !line.contains("(f16)") && fits() == Some(true)
}

/// The log shows ggml's pool of virtual memory, which `--pool ours` does not replace.
fn has_paged_pool(facts: &Facts) -> bool {
    let is_call = |quote: &Quote| quote.text.contains("cuMem");
    let refused = facts.refusal().and_then(|refusal| refusal.statement.as_ref());
    facts.says(Pattern::PagedPool) || refused.is_some_and(is_call)
}

/// Memory that the failed load had placed on one card.
fn placed_on(facts: &Facts, card: u64, purpose: Purpose) -> Bytes {
    let buffers = facts.load_buffers().filter(|buffer| buffer.device == card && buffer.purpose == purpose);
    buffers.map(|buffer| buffer.size).sum()
}

/// Memory for `purpose`: the refused request, or what was placed on its card.
fn needed(facts: &Facts, purpose: Purpose) -> Option<Bytes> {
    let placed = match facts.refusal() {
        Some(refusal) if refusal.purpose == purpose => return refusal.requested,
        Some(FailedAllocation { device: Some(card), .. }) => placed_on(facts, *card, purpose),
        _ => facts.placed(purpose),
    };
    Some(placed).filter(|placed| !placed.is_zero())
}

/// Free memory of the card at the refusal: what was free at the start, less what the load had placed.
fn room(facts: &Facts) -> Option<Bytes> {
    let (refusal, free) = (facts.refusal()?, facts.free_before()?);
    let card = refusal.device.unwrap_or_default();
    // An image encoder comes after all buffers of its model.
    let encoder = facts.refuses_encoder();
    let purposes = [Purpose::Weights, Purpose::Cache, Purpose::Compute].into_iter();
    let earlier =
        purposes.filter(|purpose| encoder || *purpose != refusal.purpose && *purpose != Purpose::Compute);
    let room = free.checked_sub(earlier.map(|purpose| placed_on(facts, card, purpose)).sum())?;
    // A fitting request was not refused for its size: something outside of the log holds memory.
    refusal.requested.is_none_or(|requested| requested > room).then_some(room)
}

/// A division of the model by the free memory of the cards, where the other cards have the room that one
/// lacks.
fn split_by_free(facts: &Facts) -> Option<String> {
    let (full, missing) = (facts.refusal()?.device?, missing(facts)?);
    let spare = facts.cards_free.iter().filter(|(card, _)| **card != full).map(|(card, free)| {
        let placed = [Purpose::Weights, Purpose::Cache].map(|purpose| placed_on(facts, *card, purpose));
        free.saturating_sub(placed.into_iter().sum()).saturating_sub(ALLOWANCE)
    });
    let names: Vec<String> = facts.cards_free.values().map(|free| free.whole_mib().to_string()).collect();
    // Until the cache is placed, the log does not tell how the weights are divided.
    let is_divided = !facts.placed(Purpose::Weights).is_zero();
    (is_divided && spare.sum::<Bytes>() >= missing + ALLOWANCE).then(|| names.join(","))
}

fn missing(facts: &Facts) -> Option<Bytes> {
    facts.refusal()?.requested?.checked_sub(room(facts)?)
}

/// Memory to leave for the compute buffer, which follows the cache: the log's own, else computed from its
/// figures, else an allowance. `None` without flash attention, where it grows with the heads too.
fn reserved(facts: &Facts) -> Option<Bytes> {
    facts.refusal().filter(|refusal| refusal.purpose == Purpose::Cache)?;
    let buffers = facts.buffers.iter().filter(|buffer| buffer.on_card);
    if let Some(own) =
        buffers.filter(|buffer| buffer.purpose == Purpose::Compute).map(|buffer| buffer.size).max()
    {
        return Some(own);
    }
    if facts.says(Pattern::FlashOff) {
        return None;
    }
    // Each token of a micro-batch has logits, a row of the mask over the context, and some activations, in 4
    // bytes each: above what `data/logs` records of `ggml-alloc.c:ggml_gallocr_reserve_n @ b8799`.
    let (options, model) = (&facts.options, &facts.model);
    let computed = || {
        let row = model.vocabulary? + model.embedding? * ACTIVATIONS + options.context_tokens?;
        Bytes::new(row).checked_mul(options.micro_batch?)?.checked_mul(4)
    };
    Some(computed().unwrap_or(ALLOWANCE))
}

/// Context for which a cache of the type q8_0 leaves room.
pub(super) enum QuantisedCache {
    Whole,
    Shorter(u64),
}

/// The KV cache in a quantised type that fits beside the compute buffer, or a shorter context in that type.
/// Without figures in the log it is only said that the type halves the cache.
pub(super) fn quantised_cache(facts: &Facts) -> Option<QuantisedCache> {
    // Blocks of 32 values in 34 bytes, where f16 takes 64: `ggml-common.h:block_q8_0`.
    const TYPE: (u64, u64) = (34, 64);
    /// Layers of a model whose log does not tell them.
    const FEWEST_LAYERS: u64 = 24;
    if facts.says(Pattern::CacheQuantised) {
        return None;
    }
    let whole = Some(QuantisedCache::Whole);
    let figures = || Some((room(facts)?, reserved(facts)?, needed(facts, Purpose::Cache)?));
    let Some((room, reserve, cache)) = figures() else { return whole };
    // Builds up to b8799 convert one layer at a time to f16, in memory that the run-time pool takes after the
    // load.
    let converted = cache.scaled(1, facts.options.layers.unwrap_or(FEWEST_LAYERS).max(1));
    let cache = cache.scaled(TYPE.0, TYPE.1) + converted;
    if cache + reserve <= room {
        return whole;
    }
    tokens_in(facts, room.checked_sub(reserve)?, cache).map(QuantisedCache::Shorter)
}

/// Half of the placed cache, where that is all that is missing.
fn half_of_the_cache(facts: &Facts) -> Option<Bytes> {
    let half = needed(facts, Purpose::Cache)?.scaled(1, 2);
    (half >= missing(facts)?).then_some(half)
}

/// Upper bound of the context: the refused cache in the room that there is, or the cache less what a later
/// buffer missed.
fn context_that_fits(facts: &Facts) -> Option<u64> {
    let of_load = || {
        let cache = needed(facts, Purpose::Cache)?;
        Some(match facts.refusal()?.purpose {
            Purpose::Cache => (room(facts)?.checked_sub(reserved(facts)?)?, cache),
            Purpose::Compute => (cache.checked_sub(missing(facts)?)?, cache),
            _ => return None,
        })
    };
    let of_estimate = || {
        let estimate = facts.estimate.as_ref()?;
        let cache = estimate.cache?;
        Some((estimate.available.checked_sub(estimate.full.checked_sub(cache)?)?, cache))
    };
    let (room, cache) = of_load().or_else(of_estimate)?;
    tokens_in(facts, room, cache)
}

/// Tokens of a context that fit into `room`, where all tokens of the log take `cache`.
fn tokens_in(facts: &Facts, room: Bytes, cache: Bytes) -> Option<u64> {
    let tokens = facts.options.context_tokens?;
    let fit = u128::from(tokens) * u128::from(room.get()) / u128::from(cache.get().max(1));
    let step = TOKENS * facts.options.slots.unwrap_or(1);
    let fit = u64::try_from(fit).ok()? / step * step;
    (TOKENS..tokens).contains(&fit).then_some(fit)
}

/// Upper bound of the layers: the share of the weights for which there is room.
fn layers_that_fit(facts: &Facts) -> Option<u64> {
    let of_one = facts.cards_free.len() <= 1 && !facts.refuses_encoder();
    let refusal = facts.refusal().filter(|refusal| refusal.purpose == Purpose::Weights && of_one)?;
    let (requested, layers) = (refusal.requested?, facts.options.layers?);
    let fit = u128::from(layers) * u128::from(room(facts)?.get()) / u128::from(requested.get().max(1));
    u64::try_from(fit).ok().filter(|fit| (1..layers).contains(fit))
}
