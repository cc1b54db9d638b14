//! PyTorch's refusal by its own arithmetic: asked X, total T, free F, live A, idle in the allocator R, held by others O.
//!
//! The allocator gives back what it can and tries again before it reports, so what is still idle lies in pieces.

use super::Weight::{Decisive, Fair, Strong, Weak};
use super::{Finding, Rule};
use crate::bytes::Bytes;
use crate::diagnose::cause::{Cause, SubCause};
use crate::diagnose::evidence::{Evidence, Torch};
use crate::diagnose::saying::Saying;

const SENTENCE: &str = "CUDACachingAllocator.cpp: malloc, reportProcessMemoryInfo";

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "idle_in_pieces",
        source: SENTENCE,
        test: idle_in_pieces,
    },
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
        name: "blocks_between",
        source: "torch.cuda.memory_snapshot, memory_summary",
        test: blocks_between,
    },
    Rule {
        name: "said_to_be_fragmented",
        source: "the report's own words",
        test: said_to_be_fragmented,
    },
    Rule {
        name: "nvml_query_assertion",
        source: "CUDACachingAllocator.cpp: reportProcessMemoryInfo is the path of out of memory",
        test: nvml_query,
    },
];

/// What a context and its libraries take.
const CONTEXT: Bytes = Bytes::mib(700);

/// R + F would do, F does not, and the live tensors would leave room: the idle memory is in pieces.
fn idle_in_pieces(evidence: &Evidence) -> Option<Finding> {
    let torch = evidence.torch.as_ref()?;
    let (free, idle) = (torch.free?, torch.idle?);
    let room = torch
        .total
        .is_none_or(|total| torch.allocated.unwrap_or(Bytes::ZERO) + torch.asked <= total);
    let fits = free < torch.asked && torch.asked <= free + idle && room;
    if idle.scaled(4, 1) < torch.asked {
        return None;
    }
    let weight = if is_full_of_life(torch) { Weak } else { Decisive };
    let text = format!(
        "{} were asked, {free} are free and {idle} idle in the allocator: together enough, in no piece",
        torch.asked
    );
    fits.then(|| {
        Finding::new(
            Cause::FragmentationCachingAllocator,
            weight,
            text,
            vec![torch.quote.clone()],
        )
    })
}

/// Live tensors fill nearly all of the card: the pieces are a remainder, not the reason.
fn is_full_of_life(torch: &Torch) -> bool {
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
    let many = others.scaled(5, 1) >= total && others >= Bytes::gib(1);
    let enough = free < torch.asked && torch.asked <= free + others;
    let weight = if torch.others.is_some() { Decisive } else { Strong };
    let text = format!(
        "of {total}, {others} are held by others, {free} are free and {} were asked",
        torch.asked
    );
    (many && enough).then(|| Finding::new(Cause::ForeignProcess, weight, text, vec![torch.quote.clone()]))
}

/// What others hold. Without a word about this process, the process that is named may be this one under another number.
fn others(torch: &Torch) -> Option<Bytes> {
    let told = torch.others.map(|others| match (torch.ours, torch.allocated) {
        (None, Some(live)) if others >= live => {
            others.saturating_sub(live + torch.idle.unwrap_or(Bytes::ZERO) + CONTEXT)
        }
        _ => others,
    });
    told.or_else(|| unaccounted(torch))
}

fn unaccounted(torch: &Torch) -> Option<Bytes> {
    let ours = torch.ours.or_else(|| Some(torch.allocated? + torch.idle?))?;
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
        () => Finding::new(Cause::Other, Strong, text, quotes).by(SubCause::HostMemory),
    })
}

/// Live tensors and the request are more than the card: no allocator could help.
fn live_tensors(evidence: &Evidence) -> Option<Finding> {
    let torch = evidence.torch.as_ref()?;
    let (total, allocated) = (torch.total?, torch.allocated?);
    let enough_idle = torch
        .idle
        .is_some_and(|idle| idle + torch.free.unwrap_or(Bytes::ZERO) >= torch.asked);
    if torch.asked.is_zero()
        || (enough_idle && !is_full_of_life(torch))
        || torch.free.is_some_and(|free| free >= torch.asked)
    {
        return None;
    }
    if others(torch).is_some_and(|others| others.scaled(5, 1) >= total && others >= Bytes::gib(1)) {
        return None;
    }
    let text = format!(
        "{allocated} live in tensors of a card of {total}, and {} more were asked",
        torch.asked
    );
    let quotes = vec![torch.quote.clone()];
    let spilled = (allocated > total).then_some(SubCause::DriverSpill);
    let loads = evidence.says(Saying::ModelToCard) && !evidence.says(Saying::Activations);
    let cache =
        evidence.says_any(&[Saying::LongContext, Saying::CacheWord]) && !evidence.says(Saying::Activations);
    let large = torch.asked.scaled(8, 1) >= total;
    Some(
        match () {
            () if loads => Finding::new(Cause::ModelTooLarge, Strong, text, quotes),
            () if cache => Finding::new(Cause::KvCacheTooLarge, Fair, text, quotes),
            () if large || evidence.says(Saying::Activations) => {
                Finding::new(Cause::ComputeBufferTooLarge, Strong, text, quotes)
            }
            // Nearly everything lives and little is asked: what was loaded is what fills the card.
            () if is_full_of_life(torch) || allocated.scaled(10, 9) >= total => {
                Finding::new(Cause::ModelTooLarge, Fair, text, quotes)
            }
            () => Finding::new(Cause::ComputeBufferTooLarge, Weak, text, quotes),
        }
        .by(spilled),
    )
}

/// A snapshot of the allocator with dead blocks among live ones.
fn blocks_between(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::TorchSnapshot)?;
    let text = "the allocator's snapshot shows idle blocks between live ones, which cannot be given back";
    Some(Finding::new(
        Cause::FragmentationCachingAllocator,
        Strong,
        text,
        vec![told],
    ))
}

/// PyTorch's advice about fragmentation is in every one of its sentences and proves nothing.
fn said_to_be_fragmented(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::Fragmented)?;
    let lower = told.text.to_ascii_lowercase();
    let advice = [
        "to avoid fragmentation",
        "tried to allocate",
        "max_split_size_mb",
        "expandable_segments",
    ];
    let proven_not = evidence.torch.as_ref().is_some_and(|torch| {
        matches!((torch.total, torch.allocated), (Some(total), Some(live)) if live + torch.asked > total)
    });
    if advice.iter().any(|words| lower.contains(words)) || proven_not || evidence.is_unified() {
        return None;
    }
    let weight = if evidence.torch.is_some() { Fair } else { Weak };
    let text = "it is said to be fragmented";
    Some(Finding::new(
        Cause::FragmentationCachingAllocator,
        weight,
        text,
        vec![told],
    ))
}

/// The query fails on Tegra and in sandboxes; it is only made to word a refusal.
fn nvml_query(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::NvmlQueryAssert)?;
    let mut quotes = vec![told];
    quotes.extend(evidence.quote(Saying::NvMap));
    let text = "PyTorch asks NVML for the processes of a card only to word a refusal; the query failed, so the refusal was not worded";
    Some(Finding::new(Cause::NvmlAssertMasksOom, Decisive, text, quotes))
}
