//! llama.cpp and what is built on ggml: which allocation failed, at which stage, and what had been allocated by then.
//!
//! ggml tells in up to three lines: the device refuses (`allocating N MiB on device D`), then the allocator says which buffer, then the
//! caller says what for. The first opens a refusal, those that follow it closely say its purpose.

use plimsoll_base::Bytes;

use crate::evidence::{Buffer, Evidence, Place, Purpose, Quote, Refusal, Source, Stage};
use crate::saying::{Row, Saying};
use crate::sizes::{after, all, count_after};

/// Lines between the refusal and what it was for.
const CLOSE: u64 = 12;
const MOST_REFUSALS: usize = 64;
const MOST_BUFFERS: usize = 512;

pub(super) fn read(evidence: &mut Evidence, row: &Row, text: &str, quote: &Quote) {
    match row.saying {
        // Vulkan's refusal of pinned memory is a warning, as CUDA's is.
        Saying::VulkanRefused if text.contains("pinned memory") => {}
        Saying::CardRefused | Saying::VulkanRefused => {
            open(evidence, Place::Card, size_asked(text), text, quote, false);
        }
        // TensorFlow gives the size, and the driver's word behind it.
        Saying::RuntimeRefused if text.contains(" from device: ") => {}
        Saying::RuntimeRefused => open(evidence, Place::Card, None, text, quote, true),
        Saying::WeightsRefused => purpose(evidence, of_tensors(evidence.stage, text), text, quote),
        Saying::CacheRefused => purpose(evidence, Purpose::Cache, text, quote),
        Saying::ComputeRefused | Saying::GraphRefused => purpose(evidence, Purpose::Compute, text, quote),
        Saying::OutputRefused => purpose(evidence, Purpose::Output, text, quote),
        // RAPIDS reports a card's refusal as the language's exception for a host's.
        Saying::HostRefused if text.contains("out_of_memory: CUDA") => {
            open(evidence, Place::Card, None, text, quote, true);
        }
        // Locking the model in host memory is optional.
        Saying::HostRefused if text.contains("mlock") => {}
        Saying::HostRefused => open(evidence, Place::Host, size_asked(text), text, quote, false),
        Saying::BufferRefused => {
            let is_host = text.contains("cpu_buffer") || text.contains("CPU");
            let place = if is_host { Place::Host } else { Place::Card };
            open(evidence, place, size_asked(text), text, quote, false);
        }
        Saying::InPool => statement(evidence, Purpose::Pool, quote),
        Saying::VaReservation => statement(evidence, Purpose::Address, quote),
        Saying::Recovered => evidence
            .refusals
            .retain(|refusal| refusal.attempt != evidence.attempt),
        Saying::NewAttempt => {
            evidence.attempt += 1;
            evidence.stage = Stage::Unknown;
        }
        // Whoever loads after its context was made loads another model.
        Saying::LoadsWeights if matches!(evidence.stage, Stage::Context | Stage::Cache) => {
            evidence.stage = Stage::Weights;
        }
        Saying::LoadsWeights => reach(evidence, Stage::Weights),
        Saying::MakesContext => reach(evidence, Stage::Context),
        Saying::MakesCache => reach(evidence, Stage::Cache),
        Saying::ReservesGraph => reach(evidence, Stage::Graph),
        Saying::Serves | Saying::Works => reach(evidence, Stage::Serving),
        Saying::WeightsSize => buffer(evidence, Purpose::Weights, text),
        Saying::CacheSize => {
            reach(evidence, Stage::Cache);
            buffer(evidence, Purpose::Cache, text);
        }
        Saying::ComputeSize => buffer(evidence, Purpose::Compute, text),
        Saying::Breakdown => breakdown(evidence, text),
        _ => {}
    }
}

/// `alloc_tensor_range` places weights, and the cache once the context is being made.
fn of_tensors(stage: Stage, text: &str) -> Purpose {
    let of_cache = matches!(stage, Stage::Context | Stage::Cache) && text.contains("alloc_tensor_range");
    if of_cache {
        Purpose::Cache
    } else {
        Purpose::Weights
    }
}

fn reach(evidence: &mut Evidence, stage: Stage) {
    evidence.stage = evidence.stage.max(stage);
}

fn size_asked(text: &str) -> Option<Bytes> {
    after(text, "allocating ")
        .or_else(|| after(text, "buffer of size "))
        .or_else(|| {
            text.contains(" from device: ")
                .then(|| after(text, "failed to allocate "))?
        })
        .or_else(|| {
            text.contains("ytes of memory on device")
                .then(|| after(text, "allocate "))?
        })
        .or_else(|| after(text, "allocation of size "))
}

fn open(
    evidence: &mut Evidence,
    place: Place,
    asked: Option<Bytes>,
    text: &str,
    quote: &Quote,
    at_run_time: bool,
) {
    if is_hearsay(evidence, quote) {
        return;
    }
    // A line that names the buffer follows the device's own line.
    if let Some(last) = recent(evidence, quote)
        && last.place == place
        && last.at_run_time == at_run_time
        && (asked.is_none() || last.asked.is_none() || last.quote.line == quote.line)
    {
        last.asked = last.asked.or(asked);
        return;
    }
    push(
        evidence,
        Refusal {
            purpose: Purpose::Unknown,
            place,
            device: count_after(text, "on device "),
            asked,
            stage: evidence.stage,
            attempt: evidence.attempt,
            at_run_time,
            quote: quote.clone(),
        },
    );
}

/// What is told of the circumstances may repeat the log in other words; where the log speaks, it counts.
fn is_hearsay(evidence: &Evidence, quote: &Quote) -> bool {
    let told = quote.source == Source::Context;
    told && (!evidence.refusals.is_empty() || evidence.torch.is_some())
}

fn push(evidence: &mut Evidence, refusal: Refusal) {
    if evidence.refusals.len() == MOST_REFUSALS {
        evidence.refusals.remove(MOST_REFUSALS / 2);
    }
    evidence.refusals.push(refusal);
}

/// The refusal of this load that stands right before `quote`.
fn recent<'a>(evidence: &'a mut Evidence, quote: &Quote) -> Option<&'a mut Refusal> {
    let attempt = evidence.attempt;
    evidence.refusals.last_mut().filter(|last| {
        last.attempt == attempt
            && last.quote.source == quote.source
            && quote.line.saturating_sub(last.quote.line) <= CLOSE
    })
}

fn purpose(evidence: &mut Evidence, purpose: Purpose, text: &str, quote: &Quote) {
    if is_hearsay(evidence, quote) {
        return;
    }
    let asked = size_asked(text);
    if let Some(last) = recent(evidence, quote)
        && (matches!(last.purpose, Purpose::Unknown | Purpose::Weights) || last.purpose == purpose)
    {
        // A cache is made of tensors too: whoever says last what for knows best.
        last.purpose = purpose;
        last.asked = last.asked.or(asked);
        return;
    }
    let stage = evidence.stage;
    let is_host = text.contains("CPU") || text.contains("_Host");
    push(
        evidence,
        Refusal {
            purpose,
            place: if is_host { Place::Host } else { Place::Card },
            device: None,
            asked,
            stage,
            attempt: evidence.attempt,
            at_run_time: false,
            quote: quote.clone(),
        },
    );
}

/// The statement that ggml prints behind `CUDA error: …`; without such an error it says nothing.
fn statement(evidence: &mut Evidence, purpose: Purpose, quote: &Quote) {
    if let Some(last) = recent(evidence, quote)
        && last.at_run_time
        && last.purpose != Purpose::Address
    {
        last.purpose = purpose;
    }
}

/// `CUDA0 model buffer size = 702.19 MiB`; buffers of the host are not the card's.
fn buffer(evidence: &mut Evidence, purpose: Purpose, text: &str) {
    let size = after(text, "buffer size").or_else(|| {
        let (_, behind) = text.split_once('=')?;
        all(behind).last().map(|(size, _)| size)
    });
    let on_card = ["CUDA", "ROCm", "Vulkan", "SYCL", "Metal", "MUSA"]
        .iter()
        .any(|name| text.contains(name))
        && !text.contains("_Host");
    if let Some(size) = size
        && evidence.buffers.len() < MOST_BUFFERS
    {
        let attempt = evidence.attempt;
        evidence.buffers.push(Buffer {
            purpose,
            on_card,
            size,
            attempt,
        });
    }
}

/// `|   - CUDA0 (RTX 4090)   | 24080 = 1234 + (22000 = 17000 +    4000 +    1000) + 846 |`: total, free, then weights, context and compute, in MiB.
fn breakdown(evidence: &mut Evidence, text: &str) {
    let Some((total, rest)) = text.rsplit_once('(').and_then(|(before, rest)| {
        let (total, _) = before[before.rfind('|')?..].split_once('=')?;
        Some((total, rest))
    }) else {
        return;
    };
    let mib = |word: &str| {
        Some(Bytes::mib(
            word.trim_matches(|c: char| !c.is_ascii_digit())
                .parse::<u32>()
                .ok()?
                .into(),
        ))
    };
    let Some((_, parts)) = rest.split_once('=') else {
        return;
    };
    let sizes: Vec<Bytes> = parts
        .split(')')
        .next()
        .into_iter()
        .flat_map(|parts| parts.split('+'))
        .filter_map(mib)
        .collect();
    let (Some(total), [weights, cache, compute]) = (mib(total), sizes.as_slice()) else {
        return;
    };
    let attempt = evidence.attempt;
    if evidence.cards.len() < MOST_REFUSALS && evidence.buffers.iter().all(|buffer| buffer.attempt != attempt)
    {
        evidence.cards.push(total);
        for (purpose, size) in [
            (Purpose::Weights, *weights),
            (Purpose::Cache, *cache),
            (Purpose::Compute, *compute),
        ] {
            evidence.buffers.push(Buffer {
                purpose,
                on_card: true,
                size,
                attempt,
            });
        }
    }
}
