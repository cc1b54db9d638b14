//! What is no failure of a card's memory: warnings of runs that go on, host memory, and ends that are not about memory at all.

use super::Weight::{Decisive, Fair, Strong, Weak};
use super::{Finding, Rule};
use crate::diagnose::cause::{Cause, SubCause};
use crate::diagnose::evidence::{Evidence, Place, Purpose};
use crate::diagnose::saying::Saying;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "went_on",
        source: "the log goes on after the line",
        test: went_on,
    },
    Rule {
        name: "by_design",
        source: "the report's own words",
        test: by_design,
    },
    Rule {
        name: "taken_by_habit",
        source: "vLLM, JAX, TensorFlow: they take most of a card when they start",
        test: taken_by_habit,
    },
    Rule {
        name: "recovered",
        source: "llama-context.cpp: retries without pipeline parallelism",
        test: recovered,
    },
    Rule {
        name: "host_killed",
        source: "mm/oom_kill.c",
        test: host_killed,
    },
    Rule {
        name: "killed_without_a_word",
        source: "a shell's `Killed`: SIGKILL, which the kernel sends for want of host memory",
        test: killed_without_a_word,
    },
    Rule {
        name: "override_of_buffers",
        source: "llama-model.cpp: a buffer type that cannot hold its tensors allocates nothing",
        test: override_of_buffers,
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
        name: "program_fault",
        source: "CUDA: a kernel of the program found its input wrong",
        test: program_fault,
    },
    Rule {
        name: "arena_full",
        source: "ggml.c: ggml_new_object; an arena whose size is fixed when it is made",
        test: arena_full,
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
        name: "other_complaint",
        source: "ggml.h: GGML_ASSERT; Python's own exceptions",
        test: other_complaint,
    },
    Rule {
        name: "not_on_the_card",
        source: "llama.cpp, ollama: layers offloaded; the report's own words",
        test: not_on_the_card,
    },
    Rule {
        name: "not_about_memory",
        source: "server.cpp, common/arg.cpp, glibc's loader",
        test: not_about_memory,
    },
];

/// NvMap and its like print errors that their callers live with.
fn went_on(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quotes(&[Saying::GoesOn, Saying::Harmless]);
    let warned = evidence.says_any(&[Saying::NvMap, Saying::OutOfMemory]);
    // TensorFlow's allocator calls its first refusal no failure, and then names the tensor.
    let failed = evidence.says(Saying::TensorRefused) && !evidence.says(Saying::GoesOn);
    if failed || told.is_empty() || !warned || !evidence.refusals.is_empty() || evidence.torch.is_some() {
        return None;
    }
    let text = "it went on after the message";
    Some(
        Finding::new(Cause::NotOom, Decisive, text, told)
            .by(SubCause::Optional)
            .told(),
    )
}

/// What is held is held on purpose, and nothing was refused.
fn by_design(evidence: &Evidence) -> Option<Finding> {
    let told = evidence
        .quote(Saying::Meant)
        .or_else(|| evidence.quote(Saying::Harmless))?;
    let wondered = evidence.says_any(&[Saying::Leaks, Saying::NotReleased, Saying::Grows]);
    let weight = if wondered { Strong } else { Fair };
    let text = "it is told to be meant so";
    let refused = evidence.ran_out() || evidence.says(Saying::Neighbour);
    (!refused).then(|| Finding::new(Cause::NotOom, weight, text, vec![told]).told())
}

/// Much is in use, nothing failed and nothing grows: a framework takes its share at the start.
fn taken_by_habit(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::Wonders)?;
    const TROUBLE: [Saying; 13] = [
        Saying::Leaks,
        Saying::NotReleased,
        Saying::Grows,
        Saying::EachRound,
        Saying::GrowsWithDepth,
        Saying::StrayContext,
        Saying::VisibleDevices,
        Saying::Neighbour,
        Saying::TakenBefore,
        Saying::NobodyShown,
        Saying::Slow,
        Saying::Died,
        Saying::ManagedMemory,
    ];
    let troubled = evidence.ran_out() || evidence.says_any(&TROUBLE) || evidence.is_unified();
    let text = "what is told is how much is in use, not that anything failed";
    (!troubled).then(|| Finding::new(Cause::NotOom, Fair, text, vec![told]).told())
}

fn recovered(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::Recovered)?;
    let text = "the engine tried again with less, and nothing was refused afterwards";
    let later = evidence
        .torch
        .as_ref()
        .is_some_and(|torch| torch.quote.line > told.line);
    (evidence.refusals.is_empty() && !later)
        .then(|| Finding::new(Cause::NotOom, Decisive, text, vec![told]).by(SubCause::Recovered))
}

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

fn killed_without_a_word(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::Killed)?;
    if evidence.says(Saying::KernelKill) || evidence.ran_out() {
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

fn program_fault(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::ProgramFault)?;
    let text = "a kernel of the program stopped at an assertion of its own: an index or a value is wrong";
    (!evidence.ran_out()).then(|| Finding::new(Cause::NotOom, Strong, text, vec![told]))
}

fn arena_full(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::ArenaFull)?;
    let text = "an arena of ggml's own, whose size is fixed, is full; no device refused anything";
    let alone = evidence.refusals.is_empty() && evidence.torch.is_none();
    alone.then(|| Finding::new(Cause::NotOom, Strong, text, vec![told]))
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

/// An assertion or an exception that says nothing of memory, where nobody else does.
fn other_complaint(evidence: &Evidence) -> Option<Finding> {
    let about_memory = ["buffer", "CUDA error", "alloc", "memory"];
    let told = [Saying::Assertion, Saying::Exception]
        .into_iter()
        .find_map(|saying| evidence.quote(saying))?;
    let silent = evidence.ran_out() || evidence.startup.is_some() || evidence.says(Saying::VllmContext);
    let speaks = !silent && !about_memory.iter().any(|words| told.text.contains(words));
    let text = "the program stopped at a complaint of its own, and nothing was refused";
    speaks.then(|| Finding::new(Cause::NotOom, Weak, text, vec![told]))
}

/// What runs on the processor alone was refused no memory of a card.
fn not_on_the_card(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::CpuInstead)?;
    let text = "the program works without the card, and nothing was refused";
    let refused = evidence.ran_out() || evidence.says_any(&[Saying::HostRefused, Saying::UnifiedSwitch]);
    (!refused).then(|| Finding::new(Cause::NotOom, Fair, text, vec![told]))
}

fn not_about_memory(evidence: &Evidence) -> Option<Finding> {
    const WORDS: [(Saying, SubCause, &str); 7] = [
        (Saying::PortTaken, SubCause::PortTaken, "its port is taken"),
        (
            Saying::NotStarted,
            SubCause::NotStarted,
            "it could not be started",
        ),
        (
            Saying::MissingLibrary,
            SubCause::MissingLibrary,
            "it lacks a shared library",
        ),
        (
            Saying::UnknownFlag,
            SubCause::CommandLine,
            "it refused its command line",
        ),
        (
            Saying::ModelFile,
            SubCause::ModelFile,
            "it could not read its model",
        ),
        (
            Saying::RequestTooLong,
            SubCause::RequestTooLong,
            "a request was longer than its context",
        ),
        (
            Saying::WaitedLong,
            SubCause::NotStarted,
            "the load took longer than somebody was ready to wait",
        ),
    ];
    if evidence.ran_out() || evidence.says(Saying::UnsizedRefused) {
        return None;
    }
    let (quote, sub_cause, text) = WORDS
        .into_iter()
        .find_map(|(saying, sub_cause, text)| Some((evidence.quote(saying)?, sub_cause, text)))?;
    Some(Finding::new(Cause::NotOom, Strong, text, vec![quote]).by(sub_cause))
}
