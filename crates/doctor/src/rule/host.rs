//! Memory of the host, and limits that are not those of the card's size: kernels and monitors that kill, page files, one allocation at most.

use super::Weight::{Decisive, Fair, Strong, Weak};
use super::{Finding, Rule};
use crate::cause::{Cause, SubCause};
use crate::evidence::{Evidence, Place, Purpose, Quote};
use crate::saying::Saying;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "host_killed",
        source: "mm/oom_kill.c",
        test: host_killed,
    },
    Rule {
        name: "node_killed",
        source: "Ray: memory_monitor; it counts the whole node, cached files and shared memory with it",
        test: node_killed,
    },
    Rule {
        name: "wsl_refused",
        source: "dxgkrnl of WSL2: dxgkio_make_resident; -12 is ENOMEM, below the card's size",
        test: wsl_refused,
    },
    Rule {
        name: "killed_without_a_word",
        source: "a shell's `Killed`: SIGKILL, which the kernel sends for want of host memory",
        test: killed_without_a_word,
    },
    Rule {
        name: "host_refused",
        source: "ggml-backend.cpp: CPU buffers; std::bad_alloc",
        test: host_refused,
    },
    Rule {
        name: "told_of_host",
        source: "the report's own words: page file, commit limit, too little RAM",
        test: told_of_host,
    },
    Rule {
        name: "host_smaller_than_card",
        source: "arithmetic: Windows backs memory of a card by the host's commit limit",
        test: host_smaller_than_card,
    },
    Rule {
        name: "shared_memory_full",
        source: "PyTorch's DataLoader: /dev/shm",
        test: shared_memory_full,
    },
    Rule {
        name: "allocation_limit",
        source: "ggml-vulkan.cpp: maxMemoryAllocationSize, maxBufferSize",
        test: allocation_limit,
    },
    Rule {
        name: "override_of_buffers",
        source: "llama-model.cpp: a buffer type that cannot hold its tensors allocates nothing",
        test: override_of_buffers,
    },
];

fn host_killed(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::KernelKill)?;
    if evidence.says(Saying::KernelMemory) || !evidence.refusals.is_empty() {
        return None;
    }
    let text = "the kernel killed a process for want of host memory";
    // What grows until it is killed is told by how it grows.
    let grows = evidence.says(Saying::GrowsEachRound)
        || evidence.says_any(&[Saying::Leaks, Saying::Grows]) && evidence.says(Saying::EachRound);
    let (cause, weight) = match evidence.is_unified() {
        false if grows => (Cause::NotOom, Weak),
        true => (Cause::UnifiedMemoryRefused, Fair),
        false => (Cause::NotOom, Strong),
    };
    Some(Finding::new(cause, weight, text, vec![told]).by(SubCause::HostKilled))
}

fn node_killed(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::NodeKilled)?;
    let text = "a monitor killed a worker for the memory of its node";
    Some(Finding::new(Cause::Other, Strong, text, vec![told]).by(SubCause::HostMemory))
}

fn wsl_refused(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::WslRefused)?;
    let text = "WSL's own driver refused to make memory resident, whatever the card has free";
    Some(Finding::new(Cause::Other, Strong, text, vec![told]))
}

fn killed_without_a_word(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::Killed)?;
    if evidence.says_any(&[Saying::KernelKill, Saying::NodeKilled]) || evidence.ran_out() || is_by_hand(&told)
    {
        return None;
    }
    // What grows until it is killed is told by how it grows.
    let weight = if evidence.says(Saying::Grows) { Weak } else { Fair };
    let text = "it was killed without a word";
    Some(match evidence.is_unified() {
        true => Finding::new(Cause::ModelTooLarge, weight, text, vec![told]),
        false => Finding::new(Cause::NotOom, weight, text, vec![told]).by(SubCause::HostKilled),
    })
}

/// Somebody sent the signal, or it is another than SIGKILL.
fn is_by_hand(told: &Quote) -> bool {
    let text = told.text.to_ascii_lowercase();
    [
        "sigterm",
        "signal 15",
        "killed by me",
        "i killed",
        "killed manually",
        "manually killed",
        "pkill",
        "kill -",
    ]
    .iter()
    .any(|words| text.contains(words))
}

fn host_refused(evidence: &Evidence) -> Option<Finding> {
    let refusal = evidence.refusal()?;
    let named = matches!(refusal.purpose, Purpose::Cache | Purpose::Compute | Purpose::Pool);
    let pins = evidence.says_any(&[Saying::PinCall, Saying::Pinned]);
    if refusal.place != Place::Host || named || pins {
        return None;
    }
    let text = "a buffer of the host was refused; the card is not concerned";
    Some(Finding::new(Cause::Other, Strong, text, vec![refusal.quote.clone()]).by(SubCause::HostMemory))
}

/// Windows backs memory of a card with its page file: too small a file reads as a card without memory.
fn told_of_host(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::HostMemory)?;
    let named = evidence
        .refusal()
        .is_some_and(|refusal| refusal.purpose != Purpose::Unknown && refusal.asked.is_some());
    let silent = !evidence.ran_out()
        || evidence.says_any(&[Saying::KernelKill, Saying::PinnedRefused, Saying::ManagedMemory]);
    if named || silent || evidence.is_unified() {
        return None;
    }
    // A refusal in words that name no size nor device may be the host's own.
    let unsized_only = evidence
        .refusal()
        .is_some_and(|refusal| refusal.asked.is_none() && !refusal.at_run_time);
    let weight = if unsized_only { Strong } else { Fair };
    let text = "what is told to be short is memory of the host";
    Some(
        Finding::new(Cause::Other, weight, text, vec![told])
            .by(SubCause::HostMemory)
            .told(),
    )
}

fn host_smaller_than_card(evidence: &Evidence) -> Option<Finding> {
    let (host, card) = (evidence.told_host?, evidence.card()?);
    let text = format!("{host} of host memory are told beside a card of {card}, on Windows");
    let speaks =
        host < card && evidence.says(Saying::Windows) && evidence.ran_out() && evidence.torch.is_none();
    speaks.then(|| {
        let quotes = evidence.quotes(&[Saying::OutOfMemory]);
        Finding::new(Cause::Other, Strong, text, quotes)
            .by(SubCause::HostMemory)
            .told()
    })
}

fn shared_memory_full(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::SharedMemoryFull)?;
    let text = "the host's shared memory (/dev/shm) is full; the card is not concerned";
    Some(Finding::new(Cause::Other, Strong, text, vec![told]).by(SubCause::HostMemory))
}

fn allocation_limit(evidence: &Evidence) -> Option<Finding> {
    let told = evidence
        .quote(Saying::AllocationLimit)
        .filter(|quote| !quote.text.contains("pinned memory"))?;
    let text = "one allocation is larger than the driver allows, however much is free";
    Some(Finding::new(Cause::Other, Decisive, text, vec![told]).by(SubCause::AllocationLimit))
}

/// No device refused anything, no size is told: the buffer could not be made at all.
fn override_of_buffers(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::UnsizedRefused)?;
    let weight = match (evidence.refusals.is_empty(), evidence.says(Saying::Override)) {
        (false, _) => return None,
        (true, true) => Decisive,
        (true, false) => Fair,
    };
    let quotes = [Some(told), evidence.quote(Saying::Override)];
    let text =
        "a buffer could not be made, though no device refused memory: look at the overrides of tensors (-ot)";
    let quotes = quotes.into_iter().flatten().collect();
    Some(Finding::new(Cause::Other, weight, text, quotes).by(SubCause::Override))
}
