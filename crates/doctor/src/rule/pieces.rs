//! Memory that is idle in a caching allocator, in pieces too small.
//!
//! The allocator gives back what it can and tries again before it reports, so what is still idle lies in pieces.

use plimsoll_base::Bytes;

use super::Weight::{Decisive, Fair, Strong, Weak};
use super::torch::{ROUNDING, SENTENCE, is_full_of_life};
use super::{Finding, Rule};
use crate::cause::Cause;
use crate::evidence::{Evidence, Purpose};
use crate::saying::Saying;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "idle_in_pieces",
        source: SENTENCE,
        test: idle_in_pieces,
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
        name: "larger_pieces_helped",
        source: "the report's own words",
        test: larger_pieces_helped,
    },
];

/// R + F would do, F does not, and the live tensors would leave room: the idle memory is in pieces.
fn idle_in_pieces(evidence: &Evidence) -> Option<Finding> {
    let torch = evidence.torch.as_ref()?;
    let (free, idle) = (torch.free?, torch.idle?);
    let room = torch
        .total
        .is_none_or(|total| torch.allocated.unwrap_or(Bytes::ZERO) + torch.asked <= total);
    let fits = free < torch.asked && torch.asked <= free + idle && room;
    if idle.scaled(4, 1) < torch.asked || idle < ROUNDING {
        return None;
    }
    let of_card = |share: u64| torch.total.is_none_or(|total| idle * share >= total);
    let loads = torch
        .frame
        .as_ref()
        .is_some_and(|frame| frame.purpose == Purpose::Weights);
    let weight = match () {
        // A load gives nothing back, and asks for more after this.
        () if loads && !of_card(10) => Weak,
        () if of_card(10) => Decisive,
        () if !of_card(50) => Weak,
        // Where live tensors fill the card, a smaller model would do as well.
        () if is_full_of_life(torch) => Fair,
        // Where little is asked, much more will be asked next.
        () if torch
            .total
            .is_some_and(|total| torch.asked.scaled(64, 1) <= total) =>
        {
            Weak
        }
        () if idle.scaled(2, 1) >= torch.asked && of_card(25) => Strong,
        () if idle.scaled(2, 1) >= torch.asked => Fair,
        () => Weak,
    };
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
        "see documentation for memory management",
    ];
    let proven_not = evidence.torch.as_ref().is_some_and(|torch| {
        matches!((torch.total, torch.allocated), (Some(total), Some(live)) if live + torch.asked > total)
    });
    if advice.iter().any(|words| lower.contains(words)) || proven_not || evidence.is_unified() {
        return None;
    }
    let seen = evidence.said.get(&Saying::Fragmented)?;
    let known = evidence.ran_out()
        || evidence.torch.is_some()
        || evidence.says(Saying::TorchRefused)
        || [&seen.first, &seen.last]
            .iter()
            .any(|quote| quote.text.contains("reserved"));
    let weight = if known { Fair } else { Weak };
    let text = "it is said to be fragmented";
    Some(Finding::new(Cause::FragmentationCachingAllocator, weight, text, vec![told]).told())
}

/// Segments that can grow, or caches emptied, cure nothing but pieces.
fn larger_pieces_helped(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::CuredByPieces)?;
    let proven_not = evidence.torch.as_ref().is_some_and(|torch| {
        matches!((torch.total, torch.allocated), (Some(total), Some(live)) if live + torch.asked > total)
    });
    let text = "an allocator that can join its pieces is told to have helped";
    let weight = if evidence.ran_out() { Strong } else { Fair };
    (!proven_not && !evidence.is_unified())
        .then(|| Finding::new(Cause::FragmentationCachingAllocator, weight, text, vec![told]).told())
}
