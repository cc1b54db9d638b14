//! Finds why a driver refused card memory to a ggml program, by the buffer's purpose and size.

use plimsoll_base::Bytes;

use super::EvidenceWeight::{Decisive, Fair, Strong, Weak};
use super::RuleFinding;
use crate::cause::{Cause, SubCause};
use crate::facts::{Facts, FailedAllocation, LoadStage, MemoryPlace, Purpose, Quote};
use crate::pattern::Pattern;

rules! {
    refused_buffer: "ggml-alloc.c, llama-model.cpp, llama-kv-cache.cpp, llama-context.cpp @ b10605";
    last_straw: "judged from the sizes: the refused request is small, and one large buffer fills the card";
    beyond_any_card: "ggml-alloc.c keeps several copies of a compute graph that is split across cards";
    address_reservation: "ggml-cuda.cu reserves CUDA_POOL_VMM_MAX_SIZE (32 GiB) of address space";
    refused_at_run_time: "ggml-cuda.cu allocates its buffers before the first request";
    refused_at_stage: "llama.cpp logs weights, cache, graph and serving in this order";
    large_micro_batch: "compute buffers of llama-context.cpp grow with -ub, which is 512 by default";
    counted_too_large: "ExLlama and transformers estimate the memory before they load";
}

pub(super) fn cause_of(purpose: Purpose) -> Option<Cause> {
    Some(match purpose {
        Purpose::Weights => Cause::ModelTooLarge,
        Purpose::Cache => Cause::KvCacheTooLarge,
        Purpose::Compute | Purpose::Output => Cause::ComputeBufferTooLarge,
        Purpose::Pool => Cause::PoolGrowth,
        Purpose::Unknown | Purpose::Address => return None,
    })
}

pub(super) fn requested(refusal: &FailedAllocation) -> String {
    match refusal.requested {
        Some(requested) => format!("{requested} were refused"),
        None => "memory was refused".to_owned(),
    }
}

/// A buffer below this has room on a card that nothing else fills.
const SMALL: Bytes = Bytes::mib(256);

/// The engine names the buffer. On unified memory the kernel may refuse for other reasons than size.
fn refused_buffer(facts: &Facts) -> Option<RuleFinding> {
    let refusal = facts.refusal()?;
    let cause = cause_of(refusal.purpose)?;
    if refusal.place == MemoryPlace::Host && refusal.purpose == Purpose::Weights {
        return None;
    }
    let weight = match refusal.purpose {
        _ if facts.is_unified() || facts.says(Pattern::AllocationLimit) => Fair,
        _ if straw(facts).is_some_and(|(_, other, _)| other != cause) => Fair,
        Purpose::Weights if facts.taken_before().is_some() => Fair,
        Purpose::Weights => Strong,
        Purpose::Output => Fair,
        // A legacy pool calls cudaMalloc from its first operation on, so it fails on a full card without
        // growth.
        Purpose::Pool if refusal.stage == LoadStage::Unknown && !has_grown(facts) => Weak,
        _ => Decisive,
    };
    let purpose = match refusal.purpose {
        Purpose::Weights if facts.refuses_encoder() => "the image encoder, which is loaded beside the model",
        Purpose::Weights => "the weights",
        Purpose::Cache => "the KV cache",
        Purpose::Pool => "the run-time pool, after the buffers were allocated",
        _ => "the compute buffers",
    };
    let copies = facts.quote(Pattern::PipelineCopies).filter(|_| cause == Cause::ComputeBufferTooLarge);
    // A build with one copy prints the line, too (`llama-context.cpp:llama_context`).
    let copies = copies.filter(|line| !line.text.contains("n_copies=1)"));
    let text = format!("{} for {purpose}", requested(refusal));
    let sub_cause = copies.as_ref().map(|_| SubCause::PipelineCopies);
    let quotes = refusal.quotes().chain(copies);
    // By the log's figures there was just enough, so something outside of the log took the rest. A small
    // buffer does not fill an unknown card.
    let is_small = facts.card().is_none() && refusal.requested.is_some_and(|requested| requested < SMALL);
    // Weights that an empty card would hold were refused because of other memory on it, which the log may not
    // show.
    let fits = |(card, requested): (Bytes, Bytes)| (requested + facts.placed_by_load()).scaled(5, 4) <= card;
    let is_weights = cause == Cause::ModelTooLarge && facts.free_before().is_none();
    let fits_empty = is_weights && facts.card().zip(refusal.requested).is_some_and(fits);
    let is_open = is_small || fits_empty || cause == Cause::PoolGrowth && facts.grows();
    let is_shown = !is_open && facts.request_fit().is_none();
    Some(RuleFinding::new(cause, weight, text, quotes).by(sub_cause).proven_if(is_shown))
}

/// Only the pool of virtual memory calls cuMemCreate, and only a program at work has used its pool before.
pub(super) fn has_grown(facts: &Facts) -> bool {
    let is_paged = |line: Quote| line.text.contains("cuMem");
    let statement = facts.refusal().and_then(|refusal| refusal.statement.clone());
    statement.is_some_and(is_paged) || facts.says_any(&[Pattern::SeesImage, Pattern::Works, Pattern::Serves])
}

/// The largest memory term, if the refused request is small compared with it: its size, its cause, the card.
fn straw(facts: &Facts) -> Option<(Bytes, Cause, Bytes)> {
    let (requested, card) = (facts.refusal()?.requested?, facts.card()?);
    let purposes = [Purpose::Weights, Purpose::Cache, Purpose::Compute];
    let largest = purposes.into_iter().max_by_key(|purpose| facts.placed(*purpose))?;
    let placed = facts.placed(largest);
    // A fortieth and seven tenths leave no room for another reading: the large term filled the card.
    let is_straw = requested.scaled(40, 1) <= card && placed.scaled(10, 7) >= card;
    is_straw.then_some((placed, cause_of(largest)?, card))
}

fn last_straw(facts: &Facts) -> Option<RuleFinding> {
    let (placed, cause, card) = straw(facts)?;
    let refusal = facts.refusal()?;
    let text = format!("{placed} of the card's {card} were in use when {}", requested(refusal));
    Some(RuleFinding::new(cause, Strong, text, [refusal.quote.clone()]))
}

/// Rule: a single request larger than several cards is not a tensor of a model but a graph with its copies.
fn beyond_any_card(facts: &Facts) -> Option<RuleFinding> {
    let refusal = facts.refusal()?;
    // Without a printed size the largest common card bounds it.
    let (requested, card) = (refusal.requested?, facts.card().unwrap_or(Bytes::gib(80)));
    let unnamed = matches!(refusal.purpose, Purpose::Unknown | Purpose::Compute);
    let text = format!(
        "{requested} were requested at once on a card with at most {card}: this is rather a compute graph with its \
            copies than weights"
    );
    let copies = facts.says(Pattern::PipelineCopies).then_some(SubCause::PipelineCopies);
    (unnamed && requested >= card * 2).then(|| {
        RuleFinding::new(Cause::ComputeBufferTooLarge, Strong, text, [refusal.quote.clone()])
            .by(copies)
            .proven_if(false)
    })
}

/// Rule: the driver reports a failed address reservation like a lack of memory.
fn address_reservation(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::VaReservation)?;
    let weight = match facts.refusal() {
        Some(refusal) if refusal.purpose == Purpose::Address => Decisive,
        // A switch that avoids the reservation is in many command lines.
        _ if facts.ran_out() && line.text.contains("cuMemAddressReserve") => Strong,
        _ if facts.ran_out() || line.text.contains("fail") => Fair,
        _ => return None,
    };
    let text = "a reservation of 32 GiB of address space was refused (cuMemAddressReserve); the driver \
        reports such a refusal as out of memory";
    Some(RuleFinding::new(Cause::Other, weight, text, [line]).by(SubCause::AddressReservation))
}

const AT_WORK: [Pattern; 4] = [Pattern::SeesImage, Pattern::Works, Pattern::Serves, Pattern::InPool];

/// An error of the run time without a buffer: after the load it is the pool or a library's workspace.
fn refused_at_run_time(facts: &Facts) -> Option<RuleFinding> {
    let refusal =
        facts.refusal().filter(|refusal| refusal.purpose == Purpose::Unknown && refusal.at_run_time)?;
    let placed = facts.buffers.iter().any(|buffer| buffer.attempt == refusal.attempt);
    let weight = match refusal.stage {
        LoadStage::Serving => Strong,
        _ if facts.says_any(&AT_WORK) => Strong,
        // Shared memory is refused for reasons of its own.
        _ if placed && facts.is_unified() => Weak,
        _ if placed => Fair,
        // A function of ggml that no table lists: whether the load was over is not known.
        _ if refusal.statement.is_some() => Weak,
        _ => return None,
    };
    // PyTorch has rules of its own, and cuBLAS fails on a card that it does not fit.
    if facts.torch.is_some() || facts.says(Pattern::CublasCreate) {
        return None;
    }
    let quotes = refusal.quotes().chain(facts.quotes(&AT_WORK).into_iter().take(1));
    let text = "memory ran out at run time, after the load";
    // Only a line of a request that was served shows that the load was over; Level Zero says the same of a
    // fault.
    let is_shown = refusal.stage == LoadStage::Serving && !facts.says(Pattern::OnSycl) && !facts.grows();
    Some(RuleFinding::new(Cause::PoolGrowth, weight, text, quotes).proven_if(is_shown))
}

/// No line names the purpose, but the log shows the stage.
fn refused_at_stage(facts: &Facts) -> Option<RuleFinding> {
    let refusal = facts.refusal()?;
    // Builds before buffer types placed the weights by calls of the run time.
    let is_run_time =
        refusal.at_run_time && (refusal.stage != LoadStage::Weights || !facts.buffers.is_empty());
    let open = refusal.purpose == Purpose::Unknown && refusal.place == MemoryPlace::Card && !is_run_time;
    let (cause, when) = match refusal.stage {
        LoadStage::Weights => (Cause::ModelTooLarge, "the engine loaded the weights"),
        LoadStage::Context => (Cause::KvCacheTooLarge, "the engine created the context"),
        LoadStage::Cache => (Cause::ComputeBufferTooLarge, "the engine allocated buffers after the KV cache"),
        LoadStage::Graph => (Cause::ComputeBufferTooLarge, "the engine reserved memory for the graph"),
        LoadStage::Serving => (Cause::PoolGrowth, "the engine served requests"),
        LoadStage::Unknown => return None,
    };
    let text = format!("{} while {when}", requested(refusal));
    open.then(|| RuleFinding::new(cause, Fair, text, [refusal.quote.clone()]))
}

/// The log shows neither purpose nor stage.
fn large_micro_batch(facts: &Facts) -> Option<RuleFinding> {
    let refusal = facts.refusal()?;
    let is_unnamed =
        refusal.purpose == Purpose::Unknown && refusal.place == MemoryPlace::Card && !refusal.at_run_time;
    let is_unstaged = refusal.stage == LoadStage::Unknown && !facts.is_unified();
    let tokens = facts.options.micro_batch.filter(|tokens| *tokens >= 2048 && is_unnamed && is_unstaged)?;
    let text = format!("{} while the micro-batch was {tokens} tokens", requested(refusal));
    Some(RuleFinding::new(Cause::ComputeBufferTooLarge, Fair, text, [refusal.quote.clone()]))
}

fn counted_too_large(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::BudgetRefused)?;
    let text = "the engine estimated the model's memory need, and that need exceeds the free memory";
    // Some estimates include the cache, which a large context makes the larger part; and others may hold the
    // card.
    let weight = if line.text.contains("and cache") { Weak } else { Fair };
    Some(RuleFinding::new(Cause::ModelTooLarge, weight, text, [line]))
}
