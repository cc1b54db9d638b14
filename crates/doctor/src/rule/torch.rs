//! PyTorch's refusal by its own arithmetic: asked X, total T, free F, live A, idle in the allocator R, held by others O.
//!
//! The allocator gives back what it can and tries again before it reports, so what is still idle lies in pieces.

use plimsoll_base::Bytes;

use super::Weight::{Decisive, Fair, Strong, Weak};
use super::{Finding, Rule, Weight};
use crate::cause::{Cause, SubCause};
use crate::evidence::{Evidence, NO_SIZE, Purpose, Refusal, Torch};
use crate::saying::Saying;

pub(super) const SENTENCE: &str = "CUDACachingAllocator.cpp: malloc, reportProcessMemoryInfo";

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "held_by_others",
        source: SENTENCE,
        test: held_by_others,
    },
    Rule {
        name: "not_the_card",
        source: "arithmetic: a request far below what is free",
        test: not_the_card,
    },
    Rule {
        name: "live_tensors",
        source: SENTENCE,
        test: live_tensors,
    },
    Rule {
        name: "frame_alone",
        source: "the frame of the traceback that ended in the refusal",
        test: frame_alone,
    },
    Rule {
        name: "request_alone",
        source: "arithmetic: one request for a GiB or more is a product of the computation more often than a weight",
        test: request_alone,
    },
    Rule {
        name: "nvml_query_assertion",
        source: "CUDACachingAllocator.cpp: reportProcessMemoryInfo is the path of out of memory",
        test: nvml_query,
    },
];

/// What a context and its libraries take.
const CONTEXT: Bytes = Bytes::mib(700);

/// Below this the idle memory is what the allocator rounds by: sizes are printed to a hundredth of a GiB, segments are of 20 MiB.
pub(super) const ROUNDING: Bytes = Bytes::mib(64);

fn is_loading(torch: &Torch) -> bool {
    torch
        .frame
        .as_ref()
        .is_some_and(|frame| frame.purpose == Purpose::Weights)
}

/// What is told as free is of the moment after the refusal, and a driver keeps some of it: less than a twentieth of the card is none.
fn is_short(torch: &Torch) -> bool {
    let free = torch.free.unwrap_or(Bytes::ZERO);
    free < torch.asked || torch.total.is_some_and(|total| free.scaled(20, 1) < total)
}

/// Live tensors fill nearly all of the card: the pieces are a remainder, not the reason.
pub(super) fn is_full_of_life(torch: &Torch) -> bool {
    let (Some(total), Some(live)) = (torch.total, torch.allocated) else {
        return false;
    };
    live.scaled(100, 92) >= total
}

/// What the sentence does not give to this process belongs to others, or to contexts.
fn held_by_others(evidence: &Evidence) -> Option<Finding> {
    let torch = evidence.torch.as_ref()?;
    let (total, free) = (torch.total?, torch.free?);
    let others = others(torch)?;
    // On a card of its own it would have fitted.
    let alone = ours(torch).is_some_and(|ours| ours + torch.asked + CONTEXT <= total);
    let much = others.scaled(5, 1) >= total;
    let many = (much || alone) && others >= Bytes::gib(1);
    let enough = is_short(torch) && torch.asked <= free + others;
    let weight = match (much, torch.others.is_some()) {
        // Whoever is there by mistake finds others there.
        _ if evidence.choice_missed().is_some() || evidence.says(Saying::StrayContext) => Fair,
        (true, true) => Decisive,
        (true, false) => Strong,
        (false, _) => Fair,
    };
    let text = format!(
        "of {total}, {others} are held by others, {free} are free and {} were asked",
        torch.asked
    );
    (many && enough).then(|| Finding::new(Cause::ForeignProcess, weight, text, vec![torch.quote.clone()]))
}

/// What others hold. Without a word about this process, the process that is named may be this one under another number.
fn others(torch: &Torch) -> Option<Bytes> {
    let told = torch.others.map(|others| match (torch.ours, torch.allocated) {
        // In a container PyTorch does not know its own number: a single process that holds as much is this one.
        (None, Some(live)) if others >= live && torch.named == 1 => Bytes::ZERO,
        (None, Some(live)) if others >= live => {
            others.saturating_sub(live + torch.idle.unwrap_or(Bytes::ZERO) + CONTEXT)
        }
        _ => others,
    });
    told.or_else(|| unaccounted(torch))
}

/// What this process holds: as it is told, or by its allocator. The driver's own (`Allocation on device`) keeps nothing idle.
fn ours(torch: &Torch) -> Option<Bytes> {
    let idle = torch.idle.unwrap_or(Bytes::ZERO);
    torch.ours.or_else(|| Some(torch.allocated? + idle))
}

fn unaccounted(torch: &Torch) -> Option<Bytes> {
    let ours = ours(torch)?;
    let context = if torch.ours.is_some() {
        Bytes::ZERO
    } else {
        CONTEXT
    };
    Some(
        torch
            .total?
            .saturating_sub(torch.free?)
            .saturating_sub(ours + context),
    )
}

/// Four times as much is free as was asked: the card's memory is not what is short.
fn not_the_card(evidence: &Evidence) -> Option<Finding> {
    let torch = evidence.torch.as_ref()?;
    let free = torch.free?;
    if free < torch.asked.scaled(4, 1) || torch.asked.is_zero() {
        return None;
    }
    let text = format!(
        "{} were asked and {free} are free: the card's memory is not short",
        torch.asked
    );
    let quotes = vec![torch.quote.clone()];
    let pinned = evidence.says_any(&[Saying::PinCall, Saying::Pinned]);
    Some(match () {
        () if pinned => Finding::new(Cause::HostPinnedLimit, Strong, text, quotes),
        () if evidence.is_unified() => Finding::new(Cause::UnifiedMemoryRefused, Strong, text, quotes),
        () => Finding::new(Cause::Other, Fair, text, quotes).by(SubCause::HostMemory),
    })
}

/// Live tensors and the request are more than the card: no allocator could help.
fn live_tensors(evidence: &Evidence) -> Option<Finding> {
    let torch = evidence.torch.as_ref()?;
    let total = torch.total?;
    let allocated = torch
        .allocated
        .or_else(|| Some(torch.ours?.saturating_sub(CONTEXT)))?;
    let free = torch.free.unwrap_or(Bytes::ZERO);
    let in_pieces = torch.idle.is_some_and(|idle| {
        let idles = idle >= ROUNDING && idle * 50 >= total && !(is_loading(torch) && idle * 10 < total);
        idles && free < torch.asked && idle + free >= torch.asked
    });
    // Where little is asked, much more would have been asked next, whatever lies idle.
    let little = torch.asked.scaled(64, 1) <= total && torch.idle.is_some_and(|idle| idle * 10 < total);
    let foreign = others(torch).is_some_and(|others| others.scaled(5, 1) >= total && others >= Bytes::gib(1));
    if torch.asked.is_zero()
        || torch.asked >= NO_SIZE
        || (in_pieces && !is_full_of_life(torch) && !little)
        || !is_short(torch)
        || foreign
    {
        return None;
    }
    let (cause, weight) = what_lives(evidence, torch, total, allocated);
    let weight = if in_pieces && !little { Weak } else { weight };
    let text = format!(
        "{allocated} live in tensors of a card of {total}, and {} more were asked",
        torch.asked
    );
    let frame = torch.frame.as_ref().map(|frame| frame.quote.clone());
    let quotes = [Some(torch.quote.clone()), frame].into_iter().flatten().collect();
    let spilled = (allocated > total).then_some(SubCause::DriverSpill);
    Some(Finding::new(cause, weight, text, quotes).by(spilled))
}

/// What the card is full of: by the frame that asked, else by the size of the request, else by the report's words.
fn what_lives(evidence: &Evidence, torch: &Torch, total: Bytes, allocated: Bytes) -> (Cause, Weight) {
    let large = torch.asked.scaled(8, 1) >= total;
    let small = torch.asked.scaled(64, 1) <= total;
    let computes = evidence.says_any(&[Saying::Activations, Saying::Trains]);
    match torch.frame.as_ref().map(|frame| frame.purpose) {
        Some(Purpose::Weights) => return (Cause::ModelTooLarge, Strong),
        Some(Purpose::Cache) => return (Cause::KvCacheTooLarge, Strong),
        // The computation only finds what the weights have left.
        Some(_) if small && is_full_of_life(torch) => return (Cause::ModelTooLarge, Fair),
        Some(_) => return (Cause::ComputeBufferTooLarge, Strong),
        None => {}
    }
    match () {
        () if torch.asked > total => (Cause::ComputeBufferTooLarge, Strong),
        () if evidence.says(Saying::ModelToCard) && !computes => (Cause::ModelTooLarge, Strong),
        () if evidence.says_any(&[Saying::LongContext, Saying::CacheWord]) && !computes => {
            (Cause::KvCacheTooLarge, Fair)
        }
        () if large || computes => (Cause::ComputeBufferTooLarge, Strong),
        // Nearly everything lives and little is asked: what was loaded is what fills the card.
        () if is_full_of_life(torch) || allocated.scaled(10, 9) >= total => (Cause::ModelTooLarge, Fair),
        () if small && !evidence.says(Saying::BigBatch) => (Cause::ModelTooLarge, Weak),
        () => (Cause::ComputeBufferTooLarge, Weak),
    }
}

/// What else the card holds is not told, but what the program was doing.
fn frame_alone(evidence: &Evidence) -> Option<Finding> {
    let torch = evidence.torch.as_ref();
    let frame = torch
        .and_then(|torch| torch.frame.as_ref())
        .or(evidence.frame.as_ref())?;
    let named = |refusal: &Refusal| refusal.asked.is_some() || refusal.purpose != Purpose::Unknown;
    let weighed = |torch: &Torch| torch.total.is_some() && torch.allocated.or(torch.ours).is_some();
    let sized = torch.is_some_and(weighed) || evidence.refusals.iter().any(named);
    // A call that pins is no load, wherever it stands.
    let pins = torch.is_none() && evidence.says(Saying::PinCall);
    let ran_out = evidence.says_any(&[Saying::OutOfMemory, Saying::TorchRefused]);
    if sized || pins || !ran_out || evidence.is_unified() {
        return None;
    }
    let (cause, text) = match frame.purpose {
        Purpose::Weights => (Cause::ModelTooLarge, "memory ran out while the model was loaded"),
        Purpose::Cache => (Cause::KvCacheTooLarge, "memory ran out while the cache was made"),
        _ => (Cause::ComputeBufferTooLarge, "memory ran out in the computation"),
    };
    Some(Finding::new(cause, Fair, text, vec![frame.quote.clone()]))
}

/// Nothing but the size of the request is told, or it is more than the card in one piece.
fn request_alone(evidence: &Evidence) -> Option<Finding> {
    let torch = evidence.torch.as_ref()?;
    let alone = torch.total.is_none() && torch.frame.is_none();
    // No card has so much: nothing but a product of the computation asks for it, or nobody.
    let weight = match torch.asked {
        asked if asked >= NO_SIZE => return None,
        asked if asked >= Bytes::gib(200) => Strong,
        _ => Weak,
    };
    let text = format!("{} were asked in one request", torch.asked);
    (alone && torch.asked >= Bytes::gib(1)).then(|| {
        Finding::new(
            Cause::ComputeBufferTooLarge,
            weight,
            text,
            vec![torch.quote.clone()],
        )
    })
}

/// The query fails on Tegra and in sandboxes; it is only made to word a refusal.
fn nvml_query(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::NvmlQueryAssert)?;
    // The frame alone is of the assertion about the driver as well.
    if evidence.says(Saying::NvmlInitAssert) && !told.text.contains("== r") {
        return None;
    }
    let mut quotes = vec![told];
    quotes.extend(evidence.quote(Saying::NvMap));
    let text = "PyTorch asks NVML for the processes of a card only to word a refusal; the query failed, so the refusal was not worded";
    Some(Finding::new(Cause::NvmlAssertMasksOom, Decisive, text, quotes))
}
