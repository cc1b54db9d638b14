//! vLLM and ollama do their own arithmetic and print it.

use plimsoll_base::Bytes;

use super::Weight::{Decisive, Fair, Strong};
use super::{Finding, Rule};
use crate::cause::{Cause, SubCause};
use crate::evidence::Evidence;
use crate::saying::Saying;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "startup_share",
        source: "vllm/v1/worker: request_memory",
        test: startup_share,
    },
    Rule {
        name: "context_beyond_cache",
        source: "vllm: check_enough_kv_cache_memory",
        test: context_beyond_cache,
    },
    Rule {
        name: "cache_full",
        source: "SGLang: mem_cache/common.py: alloc_for_extend; vLLM's scheduler",
        test: cache_full,
    },
    Rule {
        name: "no_room_for_blocks",
        source: "vllm: determine_num_available_blocks; weights of 2 bytes a parameter",
        test: no_room_for_blocks,
    },
    Rule {
        name: "required_beyond_available",
        source: "ollama: llm/memory.go counts what the whole model needs",
        test: required_beyond_available,
    },
    Rule {
        name: "host_too_small",
        source: "ollama: server/sched.go",
        test: host_too_small,
    },
    Rule {
        name: "previous_child",
        source: "ollama: waitForVRAMRecovery",
        test: previous_child,
    },
];

fn startup_share(evidence: &Evidence) -> Option<Finding> {
    let startup = evidence.startup.as_ref()?;
    let (free, total, wanted) = (startup.free, startup.total, startup.wanted);
    let taken = total.saturating_sub(free);
    let short = wanted.saturating_sub(free);
    let text = format!("{free} of {total} were free at the start, {wanted} are wanted");
    let quotes = vec![startup.quote.clone()];
    Some(match () {
        () if evidence.is_unified() => {
            Finding::new(Cause::UnifiedMemoryRefused, Decisive, text, quotes).by(SubCause::PageCache)
        }
        // A context and a desktop's remainder; nobody else would take so little.
        () if taken.scaled(8, 1) <= total
            && short.scaled(20, 1) <= total
            && !evidence.says(Saying::Desktop) =>
        {
            Finding::new(Cause::Other, Strong, text, quotes).by(SubCause::Baseline)
        }
        () => Finding::new(Cause::ForeignProcess, Strong, text, quotes),
    })
}

fn context_beyond_cache(evidence: &Evidence) -> Option<Finding> {
    let quote = evidence.quote(Saying::VllmContext)?;
    let text = "the context needs more tokens of KV cache than the share of the card holds";
    Some(Finding::new(Cause::KvCacheTooLarge, Decisive, text, vec![quote]))
}

/// The pool for the cache was made, and requests have filled it: the card itself refused nothing.
fn cache_full(evidence: &Evidence) -> Option<Finding> {
    let quote = evidence.quote(Saying::CacheFull)?;
    let text = "the pool for the KV cache holds fewer tokens than are served at once";
    let alone = evidence.torch.is_none() && evidence.refusals.is_empty();
    alone.then(|| Finding::new(Cause::KvCacheTooLarge, Strong, text, vec![quote]))
}

/// Weights, as printed or of two bytes a parameter, against the share of the cards that it may take.
fn no_room_for_blocks(evidence: &Evidence) -> Option<Finding> {
    let quote = evidence.quote(Saying::VllmNoBlocks)?;
    let text = "weights and the profiling run left nothing for the KV cache";
    let printed = evidence.weights.map(in_float);
    let guessed = evidence
        .parameters
        .map(|thousand_millions| thousand_millions * 2e9);
    let (Some(weights), Some(card)) = (printed.or(guessed), evidence.card()) else {
        return Some(Finding::new(Cause::ModelTooLarge, Fair, text, vec![quote]));
    };
    let cards = match printed {
        Some(_) => card,
        None => card * evidence.parallel.unwrap_or(1).clamp(1, 64),
    };
    let share = in_float(cards) * evidence.utilization.unwrap_or(0.9);
    let cause = match weights > 0.85 * share {
        true => Cause::ModelTooLarge,
        false => Cause::ComputeBufferTooLarge,
    };
    let text = format!("{text}: weights of {:.1} GB on {cards}", weights / 1e9);
    let quotes = [Some(quote), evidence.quote(Saying::VllmWeights)];
    let weight = if printed.is_some() { Strong } else { Fair };
    Some(Finding::new(
        cause,
        weight,
        text,
        quotes.into_iter().flatten().collect(),
    ))
}

fn in_float(bytes: Bytes) -> f64 {
    let mib = u32::try_from(bytes.whole_mib()).unwrap_or(u32::MAX);
    f64::from(mib) * 1_048_576.0
}

/// Ollama puts as many layers on the card as it believes to fit; what it believed is in its line.
fn required_beyond_available(evidence: &Evidence) -> Option<Finding> {
    let required = evidence.required.as_ref().filter(|_| evidence.ran_out())?;
    let (full, available) = (required.full, required.available);
    if full <= available {
        return None;
    }
    let cause = match required.cache > required.weights {
        true => Cause::KvCacheTooLarge,
        false => Cause::ModelTooLarge,
    };
    let text = format!("the whole model needs {full}, and {available} are available");
    Some(Finding::new(cause, Fair, text, vec![required.quote.clone()]))
}

fn host_too_small(evidence: &Evidence) -> Option<Finding> {
    let quote = evidence.quote(Saying::OllamaHost)?;
    // There what is told as available may be what is free, without the cached files.
    if evidence.is_unified() {
        let text = "what is counted as available is short on a machine that shares its memory";
        return Some(
            Finding::new(Cause::UnifiedMemoryRefused, Fair, text, vec![quote]).by(SubCause::PageCache),
        );
    }
    let text = "the model needs more host memory than there is";
    Some(Finding::new(Cause::ModelTooLarge, Strong, text, vec![quote]))
}

fn previous_child(evidence: &Evidence) -> Option<Finding> {
    let quote = evidence.quote(Saying::PreviousChild)?;
    let text = "the engine before had not given its memory back when the next was started";
    if !quote.text.contains("didn't recover") {
        if evidence.says(Saying::NotReleased) && !evidence.was_refused() {
            return None;
        }
        let finding = Finding::new(Cause::Other, Strong, text, vec![quote]);
        return Some(finding.by(SubCause::PreviousChild).told());
    }
    // ollama's own line is a warning, and it goes on to load.
    let refused_later = evidence
        .said
        .get(&Saying::OutOfMemory)
        .is_some_and(|seen| seen.last.line > quote.line);
    Some(match refused_later {
        true => Finding::new(Cause::Other, Strong, text, vec![quote]).by(SubCause::PreviousChild),
        false => {
            let text = "the scheduler could not see memory come back in time, and nothing was refused";
            Finding::new(Cause::NotOom, Fair, text, vec![quote]).by(SubCause::Optional)
        }
    })
}
