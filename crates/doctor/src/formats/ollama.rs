//! Reader of figures that ollama prints: the cards at its start, and its memory estimate before a load.

use plimsoll_base::Bytes;

use crate::facts::{Facts, LoadEstimate, Quote};
use crate::pattern::Pattern;
use crate::sizes::{after, all, behind, count_after};

pub(super) fn read(facts: &mut Facts, pattern: Pattern, text: &str, quote: &Quote) {
    match pattern {
        Pattern::OllamaRequired => {
            if let Some(estimate) = estimate(text, quote) {
                facts.estimate = Some(estimate);
            }
        }
        Pattern::OllamaCard => card(facts, text),
        // `msg="system memory" total="31.9 GiB" free="20.1 GiB" free_swap="4.0 GiB"`:
        // `llm/server.go:NewLlamaServer`.
        Pattern::OllamaSystem => {
            let free = after(text, " free=").zip(after(text, "free_swap="));
            facts.host.commit = free.map(|(free, swap)| free + swap).or(facts.host.commit);
        }
        // `projected to use 20798 MiB of device memory vs. 31827 MiB of free device memory`:
        // `common/fit.cpp:common_params_fit_impl`.
        Pattern::Projected => {
            let (full, free) = (after(text, "projected to use "), after(text, "device memory vs. "));
            let estimate = full.zip(free).map(|(full, free)| of_card(full, free, quote));
            facts.estimate = estimate.or_else(|| facts.estimate.take());
        }
        _ => {}
    }
}

fn of_card(full: Bytes, available: Bytes, quote: &Quote) -> LoadEstimate {
    LoadEstimate { full, available, least: available, quote: quote.clone(), ..LoadEstimate::default() }
}

/// `msg="new model will fit in available VRAM in single GPU, loading" … available=24512036864 required="13.3
/// GiB"` of `server/sched.go:pickBestFullFitByLibrary`, or `memory.available="[9.5 GiB]" …
/// memory.required.full="11.0 GiB" … memory.weights.total="5.2 GiB"`: `llm/memory.go:log`.
fn estimate(text: &str, quote: &Quote) -> Option<LoadEstimate> {
    if let Some(available) = count_after(text, "available=").map(Bytes::new) {
        return Some(of_card(after(text, "required=")?, available, quote));
    }
    let cards = behind(text, "memory.available=")?;
    // Several cards stand in one bracket, and the model may use all of them.
    let cards = cards.split(']').next().unwrap_or(cards);
    Some(LoadEstimate {
        full: after(text, "memory.required.full=")?,
        available: all(cards).map(|(size, _)| size).sum(),
        least: all(cards).map(|(size, _)| size).min()?,
        weights: after(text, "memory.weights.total="),
        cache: after(text, "memory.required.kv="),
        quote: quote.clone(),
    })
}

/// `msg="inference compute" … total="24.0 GiB" available="22.4 GiB"`: `gpu/types.go:LogDetails`.
fn card(facts: &mut Facts, text: &str) {
    // The same line lists the host as a card of the library `cpu`.
    if !text.contains("library=cpu") {
        facts.add_card_size(after(text, "total="));
    }
    facts.add_card_free(after(text, "available="));
}
