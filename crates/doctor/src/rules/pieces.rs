//! Finds fragmentation: the allocator has enough idle memory, but only in blocks that are too small.

use plimsoll_base::Bytes;

use super::EvidenceWeight::{Decisive, Fair, Strong, Weak};
use super::RuleFinding;
use super::torch::{ROUNDING, SENTENCE, fills_by_batch, is_full_of_tensors};
use crate::cause::Cause;
use crate::facts::{Facts, Purpose};

rules! {
    idle_in_pieces: SENTENCE;
}

/// Idle and free memory would do, free memory alone does not, and the live tensors leave room.
fn idle_in_pieces(facts: &Facts) -> Option<RuleFinding> {
    let torch = facts.torch.as_ref()?;
    let (free, idle) = (torch.free?, torch.idle?);
    let live = torch.allocated.unwrap_or(Bytes::ZERO);
    let room = torch.total.is_none_or(|total| live + torch.requested <= total);
    let fits = free < torch.requested && torch.requested <= free + idle && room;
    if idle.scaled(4, 1) < torch.requested || idle < ROUNDING {
        return None;
    }
    let of_card = |share: u64| torch.total.is_none_or(|total| idle * share >= total);
    let loads = torch.frame.as_ref().is_some_and(|frame| frame.purpose == Purpose::Weights);
    let small = torch.total.is_some_and(|total| torch.requested.scaled(64, 1) <= total);
    let weight = match () {
        // A load frees nothing, and requests more after this.
        () if loads && !of_card(10) => Weak,
        () if fills_by_batch(facts, torch) && of_card(20) => Fair,
        () if fills_by_batch(facts, torch) => Weak,
        () if of_card(10) => Decisive,
        () if !of_card(50) => Weak,
        // Where live tensors fill the card, a smaller model would do as well.
        () if is_full_of_tensors(torch) => Fair,
        // After a small request a larger one would have failed.
        () if small => Weak,
        () if idle.scaled(2, 1) >= torch.requested && of_card(25) => Strong,
        () if idle.scaled(2, 1) >= torch.requested => Fair,
        () => Weak,
    };
    let text = format!(
        "no single block is large enough for the requested {}, although {free} are free and {idle} are idle \
            in the allocator",
        torch.requested
    );
    // Free memory may not be adjacent to idle memory. One refusal proves a state, not its origin.
    let is_shown = idle > torch.requested && !facts.grows();
    let finding = RuleFinding::new(Cause::FragmentationCachingAllocator, weight, text, [torch.quote.clone()]);
    fits.then(|| finding.proven_if(is_shown))
}
