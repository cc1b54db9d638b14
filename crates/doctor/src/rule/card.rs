//! Memory of a card that ggml was refused: for what, and how that compares with what was placed before.

use plimsoll_base::Bytes;

use super::Weight::{Decisive, Fair, Strong, Weak};
use super::{Finding, Rule};
use crate::cause::{Cause, SubCause};
use crate::evidence::{Evidence, Place, Purpose, Refusal, Stage};
use crate::saying::Saying;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "refused_buffer",
        source: "ggml-alloc.c, llama-model.cpp, llama-kv-cache.cpp, llama-context.cpp @ b10605",
        test: refused_buffer,
    },
    Rule {
        name: "last_straw",
        source: "arithmetic: a small request is refused where one large term had filled the card",
        test: last_straw,
    },
    Rule {
        name: "beyond_any_card",
        source: "arithmetic: ggml-alloc.c adds the copies of a graph that is split over cards",
        test: beyond_any_card,
    },
    Rule {
        name: "address_reservation",
        source: "ggml-cuda.cu: CUDA_POOL_VMM_MAX_SIZE = 32 GB of addresses per device",
        test: address_reservation,
    },
    Rule {
        name: "refused_at_run_time",
        source: "ggml-cuda.cu: ggml_cuda_error; buffers are all allocated before the first request",
        test: refused_at_run_time,
    },
    Rule {
        name: "refused_at_stage",
        source: "order of llama.cpp's log: weights, cache, graph, serving",
        test: refused_at_stage,
    },
    Rule {
        name: "stops_at_stage",
        source: "order of llama.cpp's log: what comes after the last buffer that was made is what failed",
        test: stops_at_stage,
    },
    Rule {
        name: "counted_too_large",
        source: "ExLlama, transformers, bitsandbytes: they count before they load",
        test: counted_too_large,
    },
    Rule {
        name: "tensor_refused",
        source: "TensorFlow: bfc_allocator; XLA: RESOURCE_EXHAUSTED; ONNX Runtime: BFCArena; CuPy",
        test: tensor_refused,
    },
];

fn on_card(evidence: &Evidence) -> Option<&Refusal> {
    evidence.refusal()
}

fn cause_of(purpose: Purpose) -> Option<Cause> {
    Some(match purpose {
        Purpose::Weights => Cause::ModelTooLarge,
        Purpose::Cache => Cause::KvCacheTooLarge,
        Purpose::Compute | Purpose::Output => Cause::ComputeBufferTooLarge,
        Purpose::Pool => Cause::PoolGrowth,
        Purpose::Unknown | Purpose::Address => return None,
    })
}

pub(super) fn asked(refusal: &Refusal) -> String {
    match refusal.asked {
        Some(asked) => format!("{asked} were refused"),
        None => "memory was refused".to_owned(),
    }
}

/// The engine names the buffer. On unified memory the kernel may refuse for other reasons than size.
fn refused_buffer(evidence: &Evidence) -> Option<Finding> {
    let refusal = on_card(evidence)?;
    let cause = cause_of(refusal.purpose)?;
    let host_weights = refusal.place == Place::Host && refusal.purpose == Purpose::Weights;
    if host_weights {
        return None;
    }
    let weight = match refusal.purpose {
        _ if evidence.is_unified() || evidence.says(Saying::AllocationLimit) => Fair,
        _ if straw(evidence).is_some_and(|(_, other, _)| other != cause) => Fair,
        Purpose::Weights if evidence.taken_before().is_some() => Fair,
        // No device's own line: a buffer of the host fails in the same words.
        Purpose::Weights if refusal.asked.is_none() && evidence.says(Saying::HostMemory) => Fair,
        Purpose::Weights => Strong,
        Purpose::Output => Fair,
        Purpose::Pool if evidence.says_any(&[Saying::Neighbour, Saying::Desktop]) => Fair,
        _ => Decisive,
    };
    let what = match refusal.purpose {
        Purpose::Weights => "for the weights",
        Purpose::Cache => "for the KV cache",
        Purpose::Pool => "to the pool of the run time, after the buffers had been placed",
        _ => "for the buffers of the computation",
    };
    let copies = cause == Cause::ComputeBufferTooLarge && evidence.says(Saying::PipelineCopies);
    let mut quotes = vec![refusal.quote.clone()];
    quotes.extend(copies.then(|| evidence.quote(Saying::PipelineCopies)).flatten());
    let text = format!("{} {what}", asked(refusal));
    Some(Finding::new(cause, weight, text, quotes).by(copies.then_some(SubCause::PipelineCopies)))
}

/// The largest term where the refused request is small beside it: its size, its cause, the card.
fn straw(evidence: &Evidence) -> Option<(Bytes, Cause, Bytes)> {
    let (asked, card) = (evidence.refusal()?.asked?, evidence.card()?);
    let purposes = [Purpose::Weights, Purpose::Cache, Purpose::Compute];
    let largest = purposes
        .into_iter()
        .max_by_key(|purpose| evidence.placed(*purpose))?;
    let placed = evidence.placed(largest);
    let is_straw = asked.scaled(40, 1) <= card && placed.scaled(10, 7) >= card;
    is_straw.then_some((placed, cause_of(largest)?, card))
}

fn last_straw(evidence: &Evidence) -> Option<Finding> {
    let (placed, cause, card) = straw(evidence)?;
    let refusal = evidence.refusal()?;
    let text = format!(
        "{placed} of a card of {card} were taken before, so that even {} ",
        asked(refusal)
    );
    Some(Finding::new(
        cause,
        Strong,
        text.trim_end(),
        vec![refusal.quote.clone()],
    ))
}

/// One request of several cards' size is no tensor of a model: it is a graph with its copies.
fn beyond_any_card(evidence: &Evidence) -> Option<Finding> {
    let refusal = on_card(evidence)?;
    let (asked, card) = (refusal.asked?, evidence.card().unwrap_or(Bytes::gib(80)));
    let unnamed = matches!(refusal.purpose, Purpose::Unknown | Purpose::Compute);
    let text =
        format!("{asked} in one request, on a card of {card} at most: a graph with its copies, not weights");
    (unnamed && asked >= card * 2).then(|| {
        Finding::new(
            Cause::ComputeBufferTooLarge,
            Strong,
            text,
            vec![refusal.quote.clone()],
        )
        .by(SubCause::PipelineCopies)
    })
}

fn address_reservation(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::VaReservation)?;
    let refusal = on_card(evidence);
    let weight = match refusal {
        Some(refusal) if refusal.purpose == Purpose::Address => Decisive,
        Some(_) => Strong,
        None if evidence.says_any(&[Saying::KernelMemory, Saying::OutOfMemory]) => Strong,
        None => Fair,
    };
    let text =
        "32 GB of addresses were refused (cuMemAddressReserve); the driver says out of memory for that too";
    // No memory was refused, on shared memory no more than on a card of its own: what makes room there does not help.
    Some(Finding::new(Cause::Other, weight, text, vec![told]).by(SubCause::AddressReservation))
}

const AT_WORK: [Saying; 4] = [Saying::SeesImage, Saying::Works, Saying::InPool, Saying::Serves];

/// An error of the run time without a buffer: all buffers stand by then, so it is the pool or a library's workspace.
fn refused_at_run_time(evidence: &Evidence) -> Option<Finding> {
    let sees = evidence.says_any(&AT_WORK);
    let (weight, quote) = match on_card(evidence) {
        Some(refusal) if refusal.purpose == Purpose::Unknown && refusal.at_run_time => {
            let placed = evidence
                .buffers
                .iter()
                .any(|buffer| buffer.attempt == refusal.attempt);
            let weight = match refusal.stage {
                Stage::Serving => Strong,
                _ if sees => Strong,
                // Shared memory is refused for reasons of its own.
                _ if placed && evidence.is_unified() => Weak,
                _ if placed => Fair,
                _ => return None,
            };
            (weight, refusal.quote.clone())
        }
        None if sees && evidence.says(Saying::OutOfMemory) && !evidence.is_unified() => {
            (Fair, evidence.quote(Saying::OutOfMemory)?)
        }
        _ => return None,
    };
    if evidence.torch.is_some() || evidence.says(Saying::CublasCreate) {
        return None;
    }
    let mut quotes = vec![quote];
    quotes.extend(evidence.quotes(&AT_WORK).into_iter().take(1));
    let text = "memory ran out at run time, after the load";
    Some(Finding::new(Cause::PoolGrowth, weight, text, quotes))
}

/// No line says what for, but the log says how far it had come.
fn refused_at_stage(evidence: &Evidence) -> Option<Finding> {
    let refusal = on_card(evidence)?;
    // Old builds placed the weights by calls of the run time.
    let named = refusal.at_run_time && (refusal.stage != Stage::Weights || !evidence.buffers.is_empty());
    let open = refusal.purpose == Purpose::Unknown && refusal.place == Place::Card && !named;
    let (cause, what) = match refusal.stage {
        Stage::Weights => (Cause::ModelTooLarge, "while the weights were loaded"),
        Stage::Context => (Cause::KvCacheTooLarge, "while the context was made"),
        Stage::Cache => (Cause::ComputeBufferTooLarge, "after the KV cache was placed"),
        Stage::Graph => (Cause::ComputeBufferTooLarge, "while the graph was reserved"),
        Stage::Serving => (Cause::PoolGrowth, "while it served"),
        Stage::Unknown => return None,
    };
    let text = format!("{} {what}", asked(refusal));
    open.then(|| Finding::new(cause, Fair, text, vec![refusal.quote.clone()]))
}

/// The log is cut before the line that says what failed: the next buffer that it would have named.
fn stops_at_stage(evidence: &Evidence) -> Option<Finding> {
    let last = evidence.buffers.iter().rfind(|buffer| buffer.on_card)?;
    let quiet = evidence.refusals.is_empty() && evidence.torch.is_none() && evidence.stage < Stage::Serving;
    let failed = evidence.says_any(&[Saying::OutOfMemory, Saying::Died, Saying::Exception]);
    let (cause, what) = match last.purpose {
        Purpose::Cache => (Cause::ComputeBufferTooLarge, "the KV cache was placed"),
        Purpose::Compute => (Cause::PoolGrowth, "all buffers were placed"),
        _ => return None,
    };
    let text = format!("the log ends where {what}, and what comes next is told to have failed");
    let quotes = evidence.quotes(&[Saying::CacheSize, Saying::ComputeSize]);
    (quiet && failed).then(|| Finding::new(cause, Weak, text, quotes))
}

fn counted_too_large(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::BudgetRefused)?;
    let text = "the engine counted the model, and it does not fit";
    // Some count the cache with it.
    let weight = match evidence.says_any(&[Saying::LongContext, Saying::CacheWord]) {
        true => Fair,
        false => Strong,
    };
    Some(Finding::new(Cause::ModelTooLarge, weight, text, vec![told]))
}

fn tensor_refused(evidence: &Evidence) -> Option<Finding> {
    let told = evidence
        .quote(Saying::TensorRefused)
        .filter(|_| evidence.torch.is_none())?;
    let text = "a tensor was refused by name or size while the program computed";
    Some(Finding::new(Cause::ComputeBufferTooLarge, Fair, text, vec![told]))
}
