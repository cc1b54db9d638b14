//! Finds the cause of PyTorch's out-of-memory error.
//!
//! PyTorch frees its idle blocks and tries again before it reports the error. So memory that is idle
//! afterwards is in blocks that are too small.

use plimsoll_base::Bytes;

use super::EvidenceWeight::{self, Decisive, Fair, Strong, Weak};
use super::RuleFinding;
use super::neighbour::of_neighbour;
use crate::cause::{Cause, SubCause};
use crate::facts::{Facts, FailedAllocation, NO_SIZE, Purpose, Quote, TorchRefusal};
use crate::pattern::Pattern;
use crate::sizes::in_float;

pub(super) const SENTENCE: &str = "PyTorch's CUDACachingAllocator.cpp prints these sizes";

rules! {
    occupied_by_others: SENTENCE;
    not_the_card: "judged from the sizes: the request is smaller than the free memory";
    live_tensors: SENTENCE;
    frame_alone: "the last frame of the traceback requested the refused memory";
    nvml_query_assertion: "CUDACachingAllocator.cpp: reportProcessMemoryInfo runs on out of memory only";
}

/// A CUDA context and its libraries.
const CONTEXT: Bytes = Bytes::mib(700);

/// Part of the card by which vLLM's activations at work may exceed its share.
const MARGIN: f64 = 0.05;

/// Idle memory below this is rounding: sizes are printed to a hundredth of a GiB, segments have 20 MiB.
pub(super) const ROUNDING: Bytes = Bytes::mib(64);

fn is_loading(torch: &TorchRefusal) -> bool {
    torch.frame.as_ref().is_some_and(|frame| frame.purpose == Purpose::Weights)
}

/// Live tensors fill nearly all of the card, so fragmentation is not the reason.
pub(super) fn is_full_of_tensors(torch: &TorchRefusal) -> bool {
    let (Some(total), Some(live)) = (torch.total, torch.allocated) else {
        return false;
    };
    live.scaled(100, 92) >= total
}

/// Memory that the sentence does not give to this process belongs to other processes or to contexts.
fn occupied_by_others(facts: &Facts) -> Option<RuleFinding> {
    let torch = facts.torch.as_ref()?;
    let (total, free) = (torch.total?, torch.free?);
    let others = others(torch)?;
    // Alone on the card the request would have fitted.
    let alone = ours(torch).is_some_and(|ours| ours + torch.requested + CONTEXT <= total);
    let much = others.scaled(5, 1) >= total;
    let many = (much || alone) && others >= Bytes::gib(1);
    let enough = !torch.has_room() && torch.requested <= free + others;
    // Memory without a named process may be this process's own: another library, or a second framework.
    let is_shown = torch.ours.is_some() || torch.named > 1 || is_other(torch);
    let weight = if facts.choice_missed().is_some() || !much || !is_shown {
        // On a card by mistake, a program meets the processes that belong there.
        Fair
    } else if torch.others.is_some() {
        Decisive
    } else {
        Strong
    };
    let text = format!(
        "other processes hold {others} of the card's {total}; {free} are free, but the program requested {}",
        torch.requested
    );
    (many && enough).then(|| of_neighbour(facts, weight, text, [torch.quote.clone()]))
}

/// The one process that is named is another: it holds less than this one allocated, and what is used is
/// enough for both.
fn is_other(torch: &TorchRefusal) -> bool {
    let live = torch.allocated.zip(torch.others).filter(|(live, others)| others < live);
    let used = torch.total.zip(torch.free).map(|(total, free)| total.saturating_sub(free) + ROUNDING);
    torch.named == 1 && live.zip(used).is_some_and(|((live, others), used)| live + others <= used)
}

/// Memory of other processes. Without a size of this process, a named process may be this one under another
/// number.
fn others(torch: &TorchRefusal) -> Option<Bytes> {
    let printed = torch.others.map(|others| match (torch.ours, torch.allocated) {
        // In a container PyTorch does not know its own number: one process that is no other is this one.
        (None, Some(live)) if torch.named == 1 && others < live * 4 + CONTEXT && !is_other(torch) => {
            Bytes::ZERO
        }
        (None, Some(live)) if others >= live => {
            others.saturating_sub(live + torch.idle.unwrap_or(Bytes::ZERO) + CONTEXT)
        }
        _ => others,
    });
    printed.or_else(|| unaccounted(torch))
}

/// Memory of this process: printed, or by its allocator. `Allocation on device` comes from the driver's
/// allocator, which idles nothing.
fn ours(torch: &TorchRefusal) -> Option<Bytes> {
    let idle = torch.idle.unwrap_or(Bytes::ZERO);
    torch.ours.or_else(|| Some(torch.allocated? + idle))
}

fn unaccounted(torch: &TorchRefusal) -> Option<Bytes> {
    let ours = ours(torch)?;
    // A printed size of this process includes its context.
    let context = if torch.ours.is_some() { Bytes::ZERO } else { CONTEXT };
    let used = torch.total?.saturating_sub(torch.free?);
    Some(used.saturating_sub(ours + context))
}

/// Rule: if more than the request is free, the card's memory is not the cause.
fn not_the_card(facts: &Facts) -> Option<RuleFinding> {
    let torch = facts.torch.as_ref()?;
    let free = torch.free.filter(|_| torch.has_room())?;
    let text =
        format!("{} were requested and {free} are free, so the card has enough memory", torch.requested);
    let quotes = [torch.quote.clone()];
    Some(match () {
        () if facts.says(Pattern::PinCall) => RuleFinding::new(Cause::HostPinnedLimit, Fair, text, quotes),
        () if facts.is_unified() => RuleFinding::new(Cause::UnifiedMemoryRefused, Strong, text, quotes),
        () if facts.misreported().is_some() => return None,
        // The driver, a limit of the host or a lack of its memory may be the reason.
        () => {
            RuleFinding::new(Cause::Other, Strong, text, quotes).by(SubCause::AlongsideFree).proven_if(false)
        }
    })
}

/// Live tensors and the request exceed the card: no allocator could help.
fn live_tensors(facts: &Facts) -> Option<RuleFinding> {
    let torch = facts.torch.as_ref()?;
    let total = torch.total?;
    let allocated = torch.allocated.or_else(|| Some(torch.ours?.saturating_sub(CONTEXT)))?;
    let free = torch.free.unwrap_or(Bytes::ZERO);
    let in_pieces = torch.idle.is_some_and(|idle| {
        let idles = idle >= ROUNDING && idle * 50 >= total && !(is_loading(torch) && idle * 10 < total);
        idles && free < torch.requested && idle + free >= torch.requested
    });
    let of_batch = fills_by_batch(facts, torch);
    // After a small request a larger one would have failed, whatever lies idle.
    let little = torch.requested.scaled(64, 1) <= total && torch.idle.is_some_and(|idle| idle * 10 < total);
    let foreign = others(torch).is_some_and(|others| others.scaled(5, 1) >= total && others >= Bytes::gib(1));
    if torch.requested.is_zero()
        || torch.requested >= NO_SIZE
        || (in_pieces && !of_batch && !is_full_of_tensors(torch) && !little)
        || torch.has_room()
        || foreign
    {
        return None;
    }
    let (cause, weight) = what_lives(facts, torch, total, allocated);
    let weight = match (in_pieces && !little, of_batch) {
        (false, _) => weight,
        // A batch explains the lack of room as well as idle blocks do.
        (true, true) if weight != Weak => Fair,
        (true, _) => Weak,
    };
    let text = format!(
        "live tensors hold {allocated} of the card's {total}, and the program requested {} more",
        torch.requested
    );
    let frame = torch.frame.as_ref().map(|frame| frame.quote.clone());
    // More than the card in tensors: the driver of Windows had already moved some to the host.
    let spilled = (allocated > total).then_some(SubCause::DriverSpill);
    let quotes = [Some(torch.quote.clone()), frame].into_iter().flatten();
    // Only a frame proves what was requested; sizes say what it usually is, and neither says what has grown.
    let is_shown = (torch.frame.is_some() || captures_graphs(torch)) && !facts.grows();
    Some(RuleFinding::new(cause, weight, text, quotes).by(spilled).proven_if(is_shown))
}

/// Kind of the tensors that fill the card: by the frame that made the request, else by the request's size.
fn what_lives(
    facts: &Facts,
    torch: &TorchRefusal,
    total: Bytes,
    allocated: Bytes,
) -> (Cause, EvidenceWeight) {
    let large = torch.requested.scaled(8, 1) >= total;
    let small = torch.requested.scaled(64, 1) <= total;
    let full = is_full_of_tensors(torch);
    if captures_graphs(torch) {
        return (Cause::ComputeBufferTooLarge, Strong);
    }
    match torch.frame.as_ref().map(|frame| frame.purpose) {
        Some(Purpose::Weights) => return (Cause::ModelTooLarge, Strong),
        Some(Purpose::Cache) => return (Cause::KvCacheTooLarge, Strong),
        // The computation only meets what the weights have left.
        Some(_) if small && full => return (Cause::ModelTooLarge, Fair),
        Some(_) => return (Cause::ComputeBufferTooLarge, if small { Fair } else { Strong }),
        None => {}
    }
    match () {
        () if torch.requested > total => (Cause::ComputeBufferTooLarge, Strong),
        () if fills_by_batch(facts, torch) => (Cause::ComputeBufferTooLarge, if small { Weak } else { Fair }),
        // vLLM keeps weights, activations and cache within its share, so tensors beyond it were loaded before
        // the cache.
        () if is_beyond_share(facts, total, allocated) => (Cause::ModelTooLarge, Fair),
        () if facts.options.context_tokens.is_some_and(|tokens| tokens >= 65_536) => {
            (Cause::KvCacheTooLarge, Fair)
        }
        // A large weight after many others asks for as much as an intermediate result does.
        () if large && full => (Cause::ComputeBufferTooLarge, Fair),
        () if large => (Cause::ComputeBufferTooLarge, Strong),
        // Nearly all memory is live and little is requested: the loaded weights fill the card.
        () if full || allocated.scaled(10, 9) >= total => (Cause::ModelTooLarge, Fair),
        () if small => (Cause::ModelTooLarge, Weak),
        () => (Cause::ComputeBufferTooLarge, Weak),
    }
}

/// The graphs are captured after weights and KV cache, in the rest of the card's share.
fn captures_graphs(torch: &TorchRefusal) -> bool {
    let of_graphs = |line: &Quote| {
        let line = line.text.to_ascii_lowercase();
        ["capture_model", "capture_cudagraphs", "capture cuda graph", "cuda_graph_runner"]
            .iter()
            .any(|words| line.contains(words))
    };
    of_graphs(&torch.quote) || torch.frame.as_ref().is_some_and(|frame| of_graphs(&frame.quote))
}

/// A training run whose live tensors outweigh what is idle: a smaller batch is what makes room.
pub(super) fn fills_by_batch(facts: &Facts, torch: &TorchRefusal) -> bool {
    let serves = facts.says_any(&[Pattern::OfVllm, Pattern::OfSglang, Pattern::OfComfyUi]);
    // A batch does not explain why more lies idle than was requested, and much of the card.
    let idle = torch.idle.unwrap_or(Bytes::ZERO);
    let idles_much = idle >= torch.requested && torch.total.is_some_and(|total| idle.scaled(8, 1) >= total);
    facts.model.trains && !serves && torch.allocated >= torch.idle && torch.allocated.is_some() && !idles_much
}

fn is_beyond_share(facts: &Facts, total: Bytes, allocated: Bytes) -> bool {
    facts.options.utilization.is_some_and(|share| in_float(allocated) > (share + MARGIN) * in_float(total))
}

/// The sizes are missing, but the traceback shows what the program was doing.
fn frame_alone(facts: &Facts) -> Option<RuleFinding> {
    let torch = facts.torch.as_ref();
    let frame = torch.and_then(|torch| torch.frame.as_ref()).or(facts.frame.as_ref())?;
    let named =
        |refusal: &FailedAllocation| refusal.requested.is_some() || refusal.purpose != Purpose::Unknown;
    let weighed = |torch: &TorchRefusal| torch.total.is_some() && torch.allocated.or(torch.ours).is_some();
    let sized = torch.is_some_and(weighed) || facts.refusals.iter().any(named);
    // A call that pins host memory is no load, wherever it stands.
    let pins = torch.is_none() && facts.says(Pattern::PinCall);
    let ran_out = facts.says_any(&[Pattern::OutOfMemory, Pattern::TorchRefused]);
    if sized || pins || !ran_out || facts.is_unified() {
        return None;
    }
    let (cause, text) = match frame.purpose {
        Purpose::Weights => (Cause::ModelTooLarge, "memory ran out while the model was loaded"),
        Purpose::Cache => (Cause::KvCacheTooLarge, "memory ran out while the KV cache was allocated"),
        _ => (Cause::ComputeBufferTooLarge, "memory ran out during the computation"),
    };
    Some(RuleFinding::new(cause, Fair, text, [frame.quote.clone()]))
}

/// The query fails on Tegra and in sandboxes; PyTorch makes it only to word a refusal.
fn nvml_query_assertion(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::NvmlQueryAssert)?;
    // The frame alone also belongs to the assertion about a driver that does not fit.
    if facts.says(Pattern::NvmlInitAssert) && !line.text.contains("== r") {
        return None;
    }
    let quotes = [Some(line), facts.quote(Pattern::NvMap)].into_iter().flatten();
    let text = "PyTorch queries NVML for the processes on a card only after a refused allocation; the query \
        failed, and its error hid the refusal";
    Some(RuleFinding::new(Cause::NvmlAssertMasksOom, Decisive, text, quotes))
}
