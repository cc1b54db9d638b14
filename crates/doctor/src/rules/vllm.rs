//! Finds causes in the memory estimates that vLLM, SGLang and ollama print.

use plimsoll_base::{Bytes, round_u64};

use super::EvidenceWeight::{Decisive, Fair, Strong};
use super::RuleFinding;
use super::neighbour::of_neighbour;
use crate::cause::{Cause, SubCause};
use crate::facts::Facts;
use crate::pattern::Pattern;
use crate::sizes::{after, in_float};

rules! {
    startup_share: "request_memory in vllm/v1/worker prints these sizes";
    small_share: "determine_num_available_blocks of vLLM gives the KV cache the part of its share that weights and \
        activations leave free";
    small_static_share: "profile_max_num_token of SGLang gives the KV cache the part of its share that the weights leave free";
    no_room_for_blocks: "determine_num_available_blocks of vLLM computes these sizes, with 2 bytes per \
        parameter";
    required_beyond_available: "llm/memory.go of ollama prints these sizes";
    host_too_small: "server/sched.go of ollama prints this message";
    previous_child: "ollama: waitForVRAMRecovery";
}

fn startup_share(facts: &Facts) -> Option<RuleFinding> {
    let startup = facts.startup.as_ref()?;
    let (free, total, wanted) = (startup.free, startup.total, startup.wanted);
    let taken = total.saturating_sub(free);
    let short = wanted.saturating_sub(free);
    let text = format!("{free} of {total} were free at the start, but {wanted} are required");
    let quotes = [startup.quote.clone()];
    Some(match () {
        // Only the kernel's figures tell the page cache from a neighbour.
        () if facts.is_unified() => RuleFinding::new(Cause::UnifiedMemoryRefused, Strong, text, quotes)
            .by(SubCause::PageCache)
            .proven_if(facts.host.available.is_some_and(|available| available >= wanted)),
        // A context and a desktop take so little; another engine mostly takes more.
        () if taken.scaled(8, 1) <= total && short.scaled(20, 1) <= total => {
            RuleFinding::new(Cause::Other, Fair, text, quotes).by(SubCause::Baseline)
        }
        () => of_neighbour(facts, Strong, text, quotes),
    })
}

/// Weights and activations exceed the share of the card, but not nine tenths of the card.
fn small_share(facts: &Facts) -> Option<RuleFinding> {
    // DECISION: the cause is `kv_cache_too_large`. vLLM gives the cache what the share leaves, so the cache
    // is what finds no room. The weights fit the card, so `model_too_large` would be wrong.
    let share = facts.small_share()?;
    let quotes = facts.quotes(&[Pattern::VllmNoBlocks, Pattern::VllmWeights, Pattern::VllmFlags]);
    // Without the card's size a model that fits no card at all is possible, though less likely.
    let weight = match share.card {
        Some(_) if share.is_printed => Decisive,
        Some(_) => Strong,
        None => Fair,
    };
    Some(RuleFinding::new(Cause::KvCacheTooLarge, weight, share.to_string(), quotes))
}

/// SGLang's share is of the memory that was free before the load.
fn small_static_share(facts: &Facts) -> Option<RuleFinding> {
    let share = facts.static_share()?;
    let text = format!(
        "the weights take {} of the {} that were free, and the static share leaves nothing for the KV cache",
        share.weights, share.free
    );
    let quotes = facts.quotes(&[Pattern::VllmNoBlocks, Pattern::VllmWeights]);
    Some(RuleFinding::new(Cause::KvCacheTooLarge, Strong, text, quotes))
}

/// Weights, as printed or of two bytes a parameter, against the share of the cards.
fn no_room_for_blocks(facts: &Facts) -> Option<RuleFinding> {
    let quote = facts.quote(Pattern::VllmNoBlocks)?;
    if facts.small_share().is_some() || facts.static_share().is_some() {
        return None;
    }
    let text = "the weights and the profiling run left no memory for the KV cache";
    let printed = facts.model.weights;
    let guessed = facts.model.parameters.map(|thousand_millions| {
        // Two bytes for each of the parameters.
        Bytes::mib(round_u64(thousand_millions * 2e9 / 1_048_576.0))
    });
    let (Some(weights), Some(card)) = (printed.or(guessed), facts.card()) else {
        return Some(RuleFinding::new(Cause::ModelTooLarge, Fair, text, [quote]));
    };
    // A printed size is of one rank, a guessed one of the whole model.
    let cards = match printed {
        Some(_) => card,
        None => card * facts.options.parallel.unwrap_or(1).clamp(1, 64),
    };
    let share = in_float(cards) * facts.options.utilization.unwrap_or(0.9);
    // Activations of the profiling run take the rest of the share, a tenth to a sixth of it.
    let cause =
        if in_float(weights) > 0.85 * share { Cause::ModelTooLarge } else { Cause::ComputeBufferTooLarge };
    let text = format!("{text}: the weights take {weights} of {cards}");
    // A neighbour may hold the rest.
    let weight = if printed.is_some() && cause == Cause::ModelTooLarge { Strong } else { Fair };
    let quotes = [Some(quote), facts.quote(Pattern::VllmWeights)].into_iter().flatten();
    Some(RuleFinding::new(cause, weight, text, quotes))
}

/// ollama places as many layers on the card as it estimates to fit; the estimate is in its line.
fn required_beyond_available(facts: &Facts) -> Option<RuleFinding> {
    let estimate = facts.estimate.as_ref().filter(|_| facts.ran_out())?;
    let (full, available) = (estimate.full, estimate.available);
    let cache_leads = estimate.cache > estimate.weights;
    let cause = if cache_leads { Cause::KvCacheTooLarge } else { Cause::ModelTooLarge };
    let text = format!("the whole model needs {full}, but only {available} are available");
    (full > available).then(|| RuleFinding::new(cause, Fair, text, [estimate.quote.clone()]))
}

fn host_too_small(facts: &Facts) -> Option<RuleFinding> {
    let quote = facts.quote(Pattern::OllamaHost)?;
    // On a unified board ollama counts MemFree, which leaves out the page cache.
    if facts.is_unified() {
        let text = "little memory is available, and the GPU shares it with the host";
        return Some(
            RuleFinding::new(Cause::UnifiedMemoryRefused, Fair, text, [quote]).by(SubCause::PageCache),
        );
    }
    let text = "the model needs more host memory than is available";
    // Less than twice what is available may be a lack that other programs of the host cause.
    let (needed, available) = (after(&quote.text, "system memory ("), after(&quote.text, "available ("));
    let is_beyond = needed.zip(available).is_some_and(|(needed, available)| needed >= available * 2);
    let weight = if is_beyond { Strong } else { Fair };
    Some(RuleFinding::new(Cause::ModelTooLarge, weight, text, [quote]).by(SubCause::HostMemory))
}

/// ollama's own line is a warning, and it goes on to load.
fn previous_child(facts: &Facts) -> Option<RuleFinding> {
    let quote = facts.quote(Pattern::SlowRecovery)?;
    let refused_later = facts.seen(Pattern::OutOfMemory).is_some_and(|seen| seen.last.line > quote.line);
    // The next engine may have asked for too much all the same.
    let (cause, sub_cause, text) = if refused_later {
        (Cause::Other, SubCause::PreviousChild, "the previous engine had not released its memory")
    } else {
        (
            Cause::NotOom,
            SubCause::Optional,
            "the engine did not wait until the memory of the previous model was released",
        )
    };
    Some(RuleFinding::new(cause, Fair, text, [quote]).by(sub_cause))
}
