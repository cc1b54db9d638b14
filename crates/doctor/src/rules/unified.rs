//! Finds causes on GPUs that share the host's memory (Jetson, Thor, GB10), and for managed memory on any
//! card.

use plimsoll_base::Bytes;

use super::EvidenceWeight::{Decisive, Fair, Strong, Weak};
use super::RuleFinding;
use crate::cause::{Cause, SubCause};
use crate::facts::Facts;
use crate::pattern::Pattern;

rules! {
    nvmap_refused: "nvmap_alloc.c and nvmap_dev.c of L4T refuse the allocation, and libnvrm prints the \
        failed ioctl";
    refused_with_room: "judged from the sizes: the request is smaller than MemAvailable";
    kernel_no_memory: "memdescAllocInternal of NVRM returns NV_ERR_NO_MEMORY";
    cache_counts_as_used: "/proc/meminfo shows far less MemFree than MemAvailable";
    larger_than_machine: "judged from the sizes: the request exceeds MemTotal";
    managed_memory: "GGML_CUDA_ENABLE_UNIFIED_MEMORY of ggml-cuda.cu: the UVM driver migrates pages instead \
        of refusing memory";
}

/// Order of blocks of 64 KiB, which NvMap takes before single pages.
const BIG: usize = 4;

fn nvmap_refused(facts: &Facts) -> Option<RuleFinding> {
    // DECISION: the number in an NvMap error line is never a size, because it is the ioctl's number
    // (1075072515 = NVMAP_IOC_ALLOC). tegrastats' `lfb` (largest free blocks) is no evidence, because CUDA
    // memory needs no contiguous pages.
    let line = facts.quote(Pattern::NvMap)?;
    // TensorRT tries another tactic after a refusal, and says so.
    if facts.says(Pattern::TacticSkipped) && facts.refusals.is_empty() {
        return None;
    }
    let is_alone = facts.refusals.is_empty() && facts.torch.is_none();
    let weight = if facts.says_any(&[Pattern::NvmlQueryAssert, Pattern::Camera]) {
        Fair
    } else if is_alone {
        Strong
    } else {
        Decisive
    };
    let mut text =
        "the kernel refused a request of NvMap (error 12 is ENOMEM; the long number is the ioctl, not a size)".to_owned();
    if let Some(requested) = requested(facts) {
        text += &format!("; {requested} were requested");
    }
    let refusal = facts.refusal().map(|refusal| refusal.quote.clone());
    let others = facts.quotes(&[Pattern::Release, Pattern::Meminfo, Pattern::DropCaches]);
    let quotes = [line].into_iter().chain(refusal).chain(others);
    // TensorRT and cameras go on after such a line, and nothing shows a failure.
    let is_shown = !is_alone || facts.says(Pattern::OutOfMemory);
    let finding = RuleFinding::new(Cause::UnifiedMemoryRefused, weight, text, quotes).by(mechanism(facts));
    Some(finding.proven_if(is_shown))
}

fn requested(facts: &Facts) -> Option<Bytes> {
    let torch = facts.torch.as_ref().map(|torch| torch.requested);
    facts.last_refusals().find_map(|refusal| refusal.requested).or(torch)
}

/// The mechanism of the refusal, by numbers where there are numbers.
fn mechanism(facts: &Facts) -> Option<SubCause> {
    let host = &facts.host;
    let requested = requested(facts);
    // NvMap's own limit leaves out the free part of CMA (nvmap_dev.c: system_heap_free_mem).
    let cma_free = host.cma_free.unwrap_or(Bytes::ZERO);
    let available = host.available.map(|size| size.saturating_sub(cma_free));
    if let (Some(requested), Some(available)) = (requested, available)
        && requested > available
    {
        return Some(SubCause::TrueShortage);
    }
    if is_capped(facts) {
        return Some(SubCause::PolicyCap);
    }
    if facts.says(Pattern::Container) {
        return Some(SubCause::ContainerLimit);
    }
    match (requested, host.free) {
        (Some(requested), Some(free)) if requested > free => return Some(SubCause::PageCache),
        (Some(requested), Some(_)) if is_in_small_blocks(facts, requested) => {
            return Some(SubCause::Fragmentation);
        }
        _ => {}
    }
    facts.says(Pattern::DropCaches).then_some(SubCause::PageCache)
}

fn is_capped(facts: &Facts) -> bool {
    facts.release.is_some_and(|release| release.nvmap_fault().is_some())
}

/// Enough is free, but hardly any of it in blocks of 64 KiB or more: by all orders of buddyinfo, not by
/// `lfb`.
fn is_in_small_blocks(facts: &Facts, requested: Bytes) -> bool {
    const PAGE: Bytes = Bytes::kib(4);
    let free = facts.blocks.free(PAGE);
    free >= requested && facts.blocks.free_from(BIG, PAGE).scaled(20, 1) < free
}

/// No NvMap line, but the machine had the requested size.
fn refused_with_room(facts: &Facts) -> Option<RuleFinding> {
    const EXPLAINED: [Pattern; 4] =
        [Pattern::NvMap, Pattern::NvmlQueryAssert, Pattern::CublasCreate, Pattern::VaReservation];
    let refusal = facts.refusal().map(|refusal| refusal.quote.clone());
    let refused = refusal.is_some() || facts.torch.is_some() || facts.says(Pattern::OutOfMemory);
    if !facts.is_unified() || !refused || facts.says_any(&EXPLAINED) {
        return None;
    }
    let available = facts.host.available.or(facts.card_free);
    let (weight, text) = match (requested(facts), available) {
        _ if is_capped(facts) => {
            (Decisive, "memory was refused on an L4T release that limits NvMap allocations".to_owned())
        }
        (Some(requested), Some(available)) if requested <= available => {
            (Strong, format!("a request for {requested} was refused while {available} were available"))
        }
        (Some(_), Some(_)) if facts.host.available.is_some() => return None,
        // A program's free size may leave out the page cache, so the machine's size is the better bound.
        (Some(requested), _) if facts.machine().is_some_and(|total| requested.scaled(4, 3) <= total) => (
            Strong,
            format!("a request for {requested} was refused on a machine that has more memory than that"),
        ),
        (Some(_), Some(_)) => return None,
        _ if !facts.was_refused() => return None,
        // Without a size there is no arithmetic: a refusal of addresses reads the same.
        _ => (Weak, "memory was refused on a machine whose GPU shares the host memory".to_owned()),
    };
    let others = facts.quotes(&[Pattern::OutOfMemory, Pattern::UnifiedBoard]);
    let quotes = refusal.into_iter().chain(others);
    Some(RuleFinding::new(Cause::UnifiedMemoryRefused, weight, text, quotes).by(mechanism(facts)))
}

fn kernel_no_memory(facts: &Facts) -> Option<RuleFinding> {
    // The kernel reports refused addresses with the same word.
    let line = facts.quote(Pattern::KernelMemory).filter(|_| !facts.says(Pattern::VaReservation))?;
    let weight = if facts.is_unified() { Decisive } else { Fair };
    let text = "the kernel driver could not allocate pages for GPU memory";
    Some(RuleFinding::new(Cause::UnifiedMemoryRefused, weight, text, [line]).by(mechanism(facts)))
}

/// MemAvailable far above MemFree: a program that compares its need with MemFree counts the page cache as
/// used.
fn cache_counts_as_used(facts: &Facts) -> Option<RuleFinding> {
    let host = &facts.host;
    let (free, available) = host.lowest.or(host.free.zip(host.available))?;
    // MemFree falls while MemAvailable stays: the difference went into the page cache.
    let fell = host.highest_free.is_some_and(|highest| highest >= free * 2);
    let weight = if facts.was_refused() {
        Strong
    } else if fell {
        Fair
    } else {
        Weak
    };
    // NvMap's refusals have reasons of their own.
    if !facts.is_unified() || facts.says(Pattern::NvMap) || free.scaled(3, 2) > available {
        return None;
    }
    let text = format!("{free} are free and {available} are available: the page cache is counted as used");
    let quotes = facts.quotes(&[Pattern::Meminfo]);
    Some(RuleFinding::new(Cause::UnifiedMemoryRefused, weight, text, quotes).by(SubCause::PageCache))
}

fn larger_than_machine(facts: &Facts) -> Option<RuleFinding> {
    if !facts.is_unified() {
        return None;
    }
    let (requested, Some(total)) = (requested(facts), facts.host.total) else {
        return model_larger_than_machine(facts);
    };
    let requested = requested.filter(|requested| *requested > total)?;
    let text = format!("{requested} were requested on a machine with {total}");
    let quotes = facts.refusal().map(|refusal| refusal.quote.clone());
    Some(RuleFinding::new(Cause::ModelTooLarge, Decisive, text, quotes))
}

/// By names alone: the named model is larger than the named board.
fn model_larger_than_machine(facts: &Facts) -> Option<RuleFinding> {
    const DEATHS: [Pattern; 3] = [Pattern::Killed, Pattern::KernelKill, Pattern::OutOfMemory];
    let (weights, total) = (facts.weights()?, facts.host.of_board?);
    // A requested size says more than a name.
    if requested(facts).is_some_and(|requested| requested <= total) {
        return None;
    }
    let died = facts.ran_out() || facts.says_any(&DEATHS);
    let text = format!("the weights take {weights}, but the machine has only {total} of memory");
    (died && weights > total)
        .then(|| RuleFinding::new(Cause::ModelTooLarge, Fair, text, facts.quotes(&DEATHS)))
}

/// With the switch ggml allocates managed memory, which moves between card and host instead of failing.
fn managed_memory(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::UnifiedSwitch)?;
    if facts.says(Pattern::NvMap) || facts.was_refused() || facts.is_unified() {
        return None;
    }
    let weight = if facts.ran_out() { Weak } else { Fair };
    let text = "managed memory is enabled, so memory that does not fit on the card moves to the host \
        instead of being refused";
    Some(RuleFinding::new(Cause::UnifiedMemoryThrash, weight, text, [line]))
}
