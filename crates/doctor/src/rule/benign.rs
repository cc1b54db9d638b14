//! What is no failure of a card's memory: warnings of runs that go on, host memory, and ends that are not about memory at all.

use super::Weight::{Decisive, Fair, Strong, Weak};
use super::fault::of_driver;
use super::{Finding, Rule};
use crate::cause::{Cause, SubCause};
use crate::evidence::{Evidence, NO_SIZE, Purpose, Quote};
use crate::saying::Saying;

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
        name: "program_fault",
        source: "CUDA: a kernel of the program found its input wrong",
        test: program_fault,
    },
    Rule {
        name: "no_size_at_all",
        source: "arithmetic: no machine has 16 TiB of one card's memory; what reads like an address or an overflow is one",
        test: no_size_at_all,
    },
    Rule {
        name: "arena_full",
        source: "ggml.c: ggml_new_object; an arena whose size is fixed when it is made",
        test: arena_full,
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
    const TROUBLE: [Saying; 14] = [
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
        Saying::TakesLong,
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

fn program_fault(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::ProgramFault)?;
    let text =
        "the program stopped at what it had itself asked for: an index, a value or a card that is not there";
    // What cannot be pinned in one piece is called an argument that is not valid.
    let pins = evidence.says_any(&[Saying::PinCall, Saying::Pinned]);
    (!evidence.ran_out() && !pins).then(|| Finding::new(Cause::NotOom, Strong, text, vec![told]))
}

/// A size that is none: an argument that was torn or has run over, as where a library of another card or version is called.
fn no_size_at_all(evidence: &Evidence) -> Option<Finding> {
    let torch = evidence.torch.as_ref().map(|torch| (torch.asked, &torch.quote));
    let refused = || {
        evidence
            .refusal()
            .and_then(|refusal| Some((refusal.asked?, &refusal.quote)))
    };
    let (asked, quote) = torch.or_else(refused)?;
    let text = format!("{asked} are no size that anybody means: an address or an overflow was taken for one");
    (asked >= NO_SIZE).then(|| Finding::new(Cause::NotOom, Decisive, text, vec![quote.clone()]))
}

fn arena_full(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::ArenaFull)?;
    let text = "an arena of ggml's own, whose size is fixed, is full; no device refused anything";
    let alone = evidence.refusals.is_empty() && evidence.torch.is_none();
    alone.then(|| Finding::new(Cause::NotOom, Strong, text, vec![told]))
}

/// An assertion or an exception that says nothing of memory, where nobody else does.
fn other_complaint(evidence: &Evidence) -> Option<Finding> {
    let about_memory = ["buffer", "CUDA error", "alloc", "memory"];
    let told = [Saying::Assertion, Saying::Exception]
        .into_iter()
        .find_map(|saying| evidence.quote(saying))?;
    let silent = evidence.ran_out()
        || evidence.startup.is_some()
        || evidence.says(Saying::VllmContext)
        || is_of_a_card(evidence);
    let speaks = !silent && !about_memory.iter().any(|words| told.text.contains(words));
    let text = "the program stopped at a complaint of its own, and nothing was refused";
    speaks.then(|| Finding::new(Cause::NotOom, Weak, text, vec![told]))
}

/// Weights, cache and compute buffers were placed, and none of them on a card.
fn all_on_host(evidence: &Evidence) -> Option<Quote> {
    let purposes = [Purpose::Weights, Purpose::Cache, Purpose::Compute];
    let placed = |purpose| evidence.buffers.iter().any(|buffer| buffer.purpose == purpose);
    let all = purposes.into_iter().all(placed) && evidence.buffers.iter().all(|buffer| !buffer.on_card);
    evidence.quote(Saying::ComputeSize).filter(|_| all)
}

/// The card or its driver is what does not work.
fn is_of_a_card(evidence: &Evidence) -> bool {
    let faults = [
        Saying::DriverFault,
        Saying::DriverGone,
        Saying::IllegalAccess,
        Saying::OffBus,
    ];
    evidence.says_any(&faults) || !of_driver(evidence).is_empty() || !evidence.xids.is_empty()
}

/// What runs on the processor alone was refused no memory of a card.
fn not_on_the_card(evidence: &Evidence) -> Option<Finding> {
    let told = evidence
        .quote(Saying::CpuInstead)
        .or_else(|| all_on_host(evidence))?;
    let text = "the program works without the card, and nothing was refused";
    let refused = evidence.ran_out() || evidence.says_any(&[Saying::HostRefused, Saying::UnifiedSwitch]);
    let weight = if is_of_a_card(evidence) { Weak } else { Fair };
    (!refused).then(|| Finding::new(Cause::NotOom, weight, text, vec![told]))
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
