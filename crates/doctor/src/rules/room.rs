//! Finds causes for memory that was refused although it was free, and for requests that no card could hold.

use plimsoll_base::Bytes;

use super::EvidenceWeight::{Fair, Strong, Weak};
use super::RuleFinding;
use super::benign::compares_values;
use super::card::{cause_of, requested};
use crate::cause::{Cause, SubCause};
use crate::facts::{Facts, MemoryPlace, Purpose};
use crate::pattern::Pattern;

rules! {
    refused_alongside_free: "llama.cpp and ollama print the free memory of the cards before a load";
    capacity_misreported: "amdgpu_ttm.c prints the memory that the kernel has for a card";
    beyond_working_set: "ggml-metal-device.m prints the allocated size and recommendedMaxWorkingSetSize";
}

/// Drivers of Vulkan and Level Zero mostly allow less than this at once.
const LARGEST_ALLOCATION: Bytes = Bytes::gib(4);

/// The request would have fitted into what was free before the load.
fn refused_alongside_free(facts: &Facts) -> Option<RuleFinding> {
    let fit = facts.request_fit().filter(|fit| fit.is_easy && !facts.says(Pattern::AllocationLimit))?;
    let estimate = facts.estimate.as_ref().map(|estimate| estimate.quote.clone());
    let refusal = facts.refusal()?;
    let line = [refusal.quote.clone()];
    let quotes =
        facts.quotes(&[Pattern::CardFree, Pattern::OllamaSystem]).into_iter().chain(estimate).chain(line);
    let (refused, free) = (requested(refusal), fit.free);
    let most = facts.estimate.as_ref().map_or(fit.needed, |estimate| estimate.full.max(fit.needed));
    let commit = facts.host.commit.filter(|commit| facts.says(Pattern::Windows) && *commit < most);
    let is_limited = facts.says_any(&[Pattern::OnVulkan, Pattern::OnSycl])
        && refusal.requested >= Some(LARGEST_ALLOCATION);
    let (text, sub_cause) = match commit {
        Some(commit) => (
            format!(
                "{refused}, although {free} of the card were free: the load needs {most}, and Windows can back \
                    {commit} with main memory and page file"
            ),
            SubCause::CommitLimit,
        ),
        None if is_limited => {
            (format!("{refused} at once, although {free} were free"), SubCause::AllocationLimit)
        }
        None => (
            format!(
                "{refused}, although {free} were free before the load: another process may have taken memory \
                    since, the figure may have been late, or the driver has a limit of its own"
            ),
            SubCause::AlongsideFree,
        ),
    };
    Some(RuleFinding::new(Cause::Other, Strong, text, quotes).by(sub_cause).proven_if(false))
}

/// An APU whose run time sees the carve-out of another card, or none.
fn capacity_misreported(facts: &Facts) -> Option<RuleFinding> {
    let (card, kernel) = facts.misreported()?;
    let torch = facts.torch.as_ref().map(|torch| torch.quote.clone());
    let refusal = torch.or_else(|| facts.refusal().map(|refusal| refusal.quote.clone()));
    let quotes = refusal.into_iter().chain(facts.quote(Pattern::KernelVram));
    let text = format!("the GPU runtime offers {card}, but the kernel has {kernel} for the card");
    Some(RuleFinding::new(Cause::Other, Strong, text, quotes).by(SubCause::CapacityMisreported))
}

/// Metal allocates beyond its limit, and the work on it then fails without a size.
fn beyond_working_set(facts: &Facts) -> Option<RuleFinding> {
    let refusal = facts.refusal().filter(|refusal| refusal.purpose == Purpose::Unknown);
    let failed = refusal.is_some()
        || facts.refusals.is_empty()
            && facts.says_any(&[Pattern::Assertion, Pattern::Died])
            && !compares_values(facts);
    let purposes = [Purpose::Weights, Purpose::Cache, Purpose::Compute];
    let placed: Bytes = purposes.into_iter().map(|purpose| facts.placed(purpose)).sum();
    let counted = facts.working_set.filter(|_| facts.is_beyond_working_set());
    let limit = facts.card().filter(|_| facts.says(Pattern::WorkingSet));
    let (occupied, limit) = counted.or(limit.map(|limit| (placed, limit))).filter(|_| failed)?;
    let largest = purposes.into_iter().max_by_key(|purpose| facts.placed(*purpose))?;
    // The list may lack the largest buffer, which is mostly that of the weights.
    let is_listed = facts.placed(largest).scaled(2, 1) >= occupied;
    let largest = if is_listed { largest } else { Purpose::Weights };
    let weight = match occupied {
        occupied if occupied > limit => Strong,
        // The rest is for the system.
        occupied if occupied.scaled(10, 8) >= limit => Fair,
        _ => return None,
    };
    let text = format!("{occupied} were allocated for the GPU, for which Metal recommends at most {limit}");
    let quotes =
        refusal.map(|refusal| refusal.quote.clone()).into_iter().chain(facts.quote(Pattern::WorkingSet));
    Some(RuleFinding::new(cause_of(largest)?, weight, text, quotes).proven_if(is_listed))
}

/// Answer where no rule and no word names a cause, although the card refused memory.
pub(super) fn unexplained(facts: &Facts) -> Option<RuleFinding> {
    let refusal = facts.refusal().filter(|refusal| refusal.place == MemoryPlace::Card);
    let of_torch = || facts.torch.as_ref().map(|torch| torch.quote.clone());
    let bare = || facts.quote(Pattern::BareRefused).or_else(of_torch);
    let line = refusal.map(|refusal| refusal.quote.clone()).or_else(bare)?;
    let requested = refusal.filter(|refusal| refusal.requested.is_some()).map(requested);
    let refused = requested.unwrap_or_else(|| "the driver refused memory".to_owned());
    let text =
        format!("{refused}, and no line shows the request's size and purpose, or the holder of the memory");
    Some(RuleFinding::new(Cause::Other, Weak, text, [line]).by(SubCause::Unexplained))
}
