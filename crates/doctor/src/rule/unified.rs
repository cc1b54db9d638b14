//! Cards that share the host's memory: Jetson, Thor, GB10, and managed memory on any card.
//!
//! DECISION: the number in NvMap's line is that of the ioctl (1075072515 = 0x40144e03 = NVMAP_IOC_ALLOC), never a size. Neither CMA nor
//! contiguous memory nor `lfb` is what CUDA memory needs there. What decides is the release, MemFree, and MemAvailable less CmaFree;
//! the size comes from the engine's line.

use plimsoll_base::Bytes;

use super::Weight::{Decisive, Fair, Strong, Weak};
use super::{Finding, Rule};
use crate::cause::{Cause, SubCause};
use crate::evidence::Evidence;
use crate::saying::Saying;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "nvmap_refused",
        source: "nvmap_alloc.c, nvmap_dev.c of L4T; libnvrm prints the ioctl",
        test: nvmap_refused,
    },
    Rule {
        name: "refused_with_room",
        source: "arithmetic: asked against MemAvailable",
        test: refused_with_room,
    },
    Rule {
        name: "kernel_no_memory",
        source: "NVRM: memdescAllocInternal returns NV_ERR_NO_MEMORY",
        test: kernel_no_memory,
    },
    Rule {
        name: "cache_must_go",
        source: "cudaMemGetInfo is MemFree on nvidia.ko's unified memory",
        test: cache_must_go,
    },
    Rule {
        name: "cache_counts_as_used",
        source: "/proc/meminfo: MemFree against MemAvailable",
        test: cache_counts_as_used,
    },
    Rule {
        name: "larger_than_machine",
        source: "arithmetic: asked against MemTotal",
        test: larger_than_machine,
    },
];

/// Order of blocks of 64 KiB, which NvMap likes to take.
const BIG: usize = 4;

fn nvmap_refused(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::NvMap)?;
    if evidence.says_any(&[Saying::GoesOn, Saying::Harmless]) && evidence.refusals.is_empty() {
        return None;
    }
    let weight = match evidence.says_any(&[Saying::NvmlQueryAssert, Saying::Camera]) {
        true => Fair,
        false if evidence.refusals.is_empty() && evidence.torch.is_none() => Strong,
        false => Decisive,
    };
    let sub_cause = why(evidence);
    let mut text = "the kernel refused a request of NvMap (error 12 is ENOMEM; the long number is the ioctl, not a size)".to_owned();
    if let Some(asked) = asked(evidence) {
        text += &format!("; {asked} were asked");
    }
    let mut quotes = vec![told];
    quotes.extend(evidence.refusal().map(|refusal| refusal.quote.clone()));
    quotes.extend(evidence.quotes(&[Saying::Release, Saying::Meminfo, Saying::PageCache]));
    Some(Finding::new(Cause::UnifiedMemoryRefused, weight, text, quotes).by(sub_cause))
}

fn asked(evidence: &Evidence) -> Option<Bytes> {
    let torch = evidence.torch.as_ref().map(|torch| torch.asked);
    evidence
        .last_refusals()
        .find_map(|refusal| refusal.asked)
        .or(torch)
}

/// The mechanism, by numbers where there are numbers.
fn why(evidence: &Evidence) -> Option<SubCause> {
    let host = &evidence.host;
    let asked = asked(evidence);
    let available = host
        .available
        .map(|size| size.saturating_sub(host.cma_free.unwrap_or(Bytes::ZERO)));
    if let (Some(asked), Some(available)) = (asked, available)
        && asked > available
    {
        return Some(SubCause::TrueShortage);
    }
    if is_capped(evidence) {
        return Some(SubCause::PolicyCap);
    }
    if evidence.says(Saying::Container) {
        return Some(SubCause::ContainerLimit);
    }
    match (asked, host.free) {
        (Some(asked), Some(free)) if asked > free => return Some(SubCause::PageCache),
        (Some(asked), Some(_)) if is_in_small_blocks(evidence, asked) => {
            return Some(SubCause::Fragmentation);
        }
        _ => {}
    }
    evidence.says(Saying::PageCache).then_some(SubCause::PageCache)
}

fn is_capped(evidence: &Evidence) -> bool {
    evidence
        .release
        .is_some_and(|release| release.nvmap_fault().is_some())
}

/// Enough is free, and next to nothing of it in blocks of 64 KiB or more: proven by all orders, not by `lfb`.
fn is_in_small_blocks(evidence: &Evidence, asked: Bytes) -> bool {
    const PAGE: Bytes = Bytes::kib(4);
    let free = evidence.blocks.free(PAGE);
    free >= asked && evidence.blocks.free_from(BIG, PAGE).scaled(20, 1) < free
}

/// No NvMap line, but the machine had what was asked.
fn refused_with_room(evidence: &Evidence) -> Option<Finding> {
    let refused = evidence.refusal().is_some()
        || evidence.torch.is_some()
        || evidence.says_any(&[Saying::OutOfMemory, Saying::Declines]);
    if !evidence.is_unified()
        || !refused
        || evidence.says_any(&[
            Saying::NvMap,
            Saying::NvmlQueryAssert,
            Saying::CublasCreate,
            Saying::VaReservation,
        ])
    {
        return None;
    }
    let available = evidence.host.available.or(evidence.card_free);
    let (weight, text) = match (asked(evidence), available) {
        _ if is_capped(evidence) => (
            Decisive,
            "memory was refused on a release of L4T that is known to refuse".to_owned(),
        ),
        (Some(asked), Some(available)) if asked <= available => {
            (Strong, format!("{asked} were refused with {available} available"))
        }
        (Some(_), Some(_)) if evidence.host.available.is_some() => return None,
        // Whoever holds the rest holds the same memory; what a program sees free there may leave out cached files.
        (Some(asked), _)
            if evidence
                .machine()
                .is_some_and(|total| asked.scaled(4, 3) <= total) =>
        {
            (Strong, format!("{asked} were refused on a machine that has more"))
        }
        (Some(_), Some(_)) => return None,
        _ if !evidence.was_refused() => (
            Weak,
            "the machine, whose card shares the host's memory, is told to run out".to_owned(),
        ),
        _ => (
            Fair,
            "memory was refused on a machine whose card shares the host's memory".to_owned(),
        ),
    };
    let mut quotes: Vec<_> = evidence
        .refusal()
        .map(|refusal| refusal.quote.clone())
        .into_iter()
        .collect();
    quotes.extend(evidence.quotes(&[Saying::OutOfMemory, Saying::UnifiedBoard]));
    Some(Finding::new(Cause::UnifiedMemoryRefused, weight, text, quotes).by(why(evidence)))
}

fn kernel_no_memory(evidence: &Evidence) -> Option<Finding> {
    // Addresses that cannot be had are told by the kernel in the same word.
    let told = evidence
        .quote(Saying::KernelMemory)
        .filter(|_| !evidence.says(Saying::VaReservation))?;
    let weight = if evidence.is_unified() { Decisive } else { Strong };
    let text = "the kernel's side of the driver got no pages for memory of the card";
    Some(Finding::new(Cause::UnifiedMemoryRefused, weight, text, vec![told]).by(why(evidence)))
}

/// Dropping caches is told as the cure, or the cache as what was counted as used.
fn cache_must_go(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::PageCache)?;
    if evidence.says_any(&[Saying::NvMap, Saying::CacheRuledOut]) {
        return None;
    }
    let weight = match (evidence.is_unified(), evidence.ran_out()) {
        (true, _) => Strong,
        (false, true) => Fair,
        (false, false) => Weak,
    };
    let text = "cached files are named as what stood in the way";
    Some(
        Finding::new(Cause::UnifiedMemoryRefused, weight, text, vec![told])
            .by(SubCause::PageCache)
            .told(),
    )
}

/// Twice as much could be had as is free, and somebody who looks at what is free refuses.
fn cache_counts_as_used(evidence: &Evidence) -> Option<Finding> {
    let latest = evidence.host.free.zip(evidence.host.available);
    let (free, available) = evidence.host.lowest.or(latest)?;
    // What is free falls and comes back while what could be had stays: it went into cached files.
    let fell = evidence
        .host
        .highest_free
        .is_some_and(|highest| highest >= free * 2);
    let refused = fell || evidence.ran_out() || evidence.says_any(&[Saying::Declines, Saying::ModelTooBig]);
    // NvMap's line has reasons of its own.
    let elsewhere = evidence.says_any(&[Saying::NvMap, Saying::CacheRuledOut]);
    if !evidence.is_unified() || !refused || elsewhere || free.scaled(3, 2) > available {
        return None;
    }
    let text = format!("{free} are free and {available} could be had: cached files are counted as used");
    let quotes = evidence.quotes(&[Saying::Meminfo, Saying::Declines]);
    let weight = match evidence.was_refused() || evidence.says_any(&[Saying::Declines, Saying::ModelTooBig]) {
        true => Strong,
        false if fell => Fair,
        false => Weak,
    };
    Some(Finding::new(Cause::UnifiedMemoryRefused, weight, text, quotes).by(SubCause::PageCache))
}

fn larger_than_machine(evidence: &Evidence) -> Option<Finding> {
    if !evidence.is_unified() {
        return None;
    }
    let (asked, Some(total)) = (asked(evidence), evidence.host.total) else {
        return model_larger_than_machine(evidence);
    };
    let asked = asked.filter(|asked| *asked > total)?;
    let text = format!("{asked} were asked of a machine with {total}");
    let quotes = evidence
        .refusal()
        .map(|refusal| refusal.quote.clone())
        .into_iter()
        .collect();
    Some(Finding::new(Cause::ModelTooLarge, Decisive, text, quotes))
}

/// By names alone: the model that is named is larger than the board that is named.
fn model_larger_than_machine(evidence: &Evidence) -> Option<Finding> {
    let (weights, total) = (evidence.weights()?, evidence.told_host?);
    // What was asked for is a better word than a name.
    if asked(evidence).is_some_and(|asked| asked <= total) {
        return None;
    }
    let died = evidence.ran_out() || evidence.says_any(&[Saying::Killed, Saying::KernelKill]);
    let text = format!("weights of {weights} on a machine with {total}");
    let quotes = evidence.quotes(&[Saying::Killed, Saying::KernelKill, Saying::OutOfMemory]);
    (died && weights > total).then(|| Finding::new(Cause::ModelTooLarge, Fair, text, quotes).told())
}
