//! Host memory that the card was to reach directly.
//!
//! ggml asks for pinned memory, says so if it gets none, and goes on with pageable memory: a warning. Where a program cannot do without, the
//! driver's word for a limit of the host is `out of memory` too.

use super::Weight::{Decisive, Fair, Strong, Weak};
use super::fault::of_driver;
use super::{Finding, Rule};
use crate::cause::{Cause, SubCause};
use crate::evidence::{Evidence, Quote};
use crate::saying::Saying;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "pinned_refused",
        source: "ggml-cuda.cu: ggml_cuda_host_malloc",
        test: pinned_refused,
    },
    Rule {
        name: "pinned_warning",
        source: "ggml-cuda.cu: falls back to pageable memory",
        test: pinned_warning,
    },
    Rule {
        name: "lock_refused",
        source: "llama-mmap.cpp: mlock keeps the model in host memory; without it the run goes on",
        test: lock_refused,
    },
    Rule {
        name: "pin_call_failed",
        source: "cudaHostAlloc, cudaHostRegister, mlock: limits of the host",
        test: pin_call_failed,
    },
];

fn went_on(evidence: &Evidence) -> bool {
    let fatal = !evidence.refusals.is_empty() || evidence.torch.is_some();
    !fatal && evidence.says_any(&[Saying::GoesOn, Saying::Harmless, Saying::Serves, Saying::Works])
}

/// Errors of a driver that is not there, or not the one that is needed, say nothing about a limit (`cudaGetErrorString`).
fn is_limit(told: &Quote) -> bool {
    let reasons = [
        "initialization error",
        "unknown error",
        "display driver",
        "CUDA-capable device",
        "forward compatibility",
        "driver version is insufficient",
        "system not yet initialized",
    ];
    !reasons.iter().any(|reason| told.text.contains(reason))
}

fn pinned_refused(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::PinnedRefused)?;
    let text = "pinned host memory was refused";
    is_limit(&told).then(|| Finding::new(Cause::HostPinnedLimit, Strong, text, vec![told]))
}

fn pinned_warning(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::PinnedRefused)?;
    let mut quotes = vec![told.clone()];
    quotes.extend(
        evidence
            .quotes(&[Saying::GoesOn, Saying::Harmless, Saying::Serves, Saying::Works])
            .into_iter()
            .take(1),
    );
    let text = "pinned memory is optional, and the run went on without it";
    let amiss = !of_driver(evidence).is_empty();
    let (weight, speaks) = match is_limit(&told) {
        true => (Weak, went_on(evidence)),
        false if amiss => (Decisive, went_on(evidence)),
        false => (Decisive, !evidence.was_refused()),
    };
    speaks.then(|| Finding::new(Cause::NotOom, weight, text, quotes).by(SubCause::Optional))
}

/// The lines of what comes next are the proof that it went on.
fn lock_refused(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::LockRefused)?;
    let later = [
        Saying::MakesCache,
        Saying::CacheSize,
        Saying::ComputeSize,
        Saying::ReservesGraph,
        Saying::Serves,
        Saying::Works,
    ];
    let next = later
        .into_iter()
        .filter_map(|saying| evidence.said.get(&saying))
        .find(|seen| seen.last.source == told.source && seen.last.line > told.line);
    let text = "locking the model in host memory is optional";
    Some(match next {
        Some(next) if !evidence.ran_out() => {
            Finding::new(Cause::NotOom, Strong, text, vec![told, next.last.clone()]).by(SubCause::Optional)
        }
        _ => Finding::new(
            Cause::HostPinnedLimit,
            Fair,
            "the host's limit of locked memory was met",
            vec![told],
        ),
    })
}

/// A call that pins failed, or the limit itself is named beside a failure.
fn pin_call_failed(evidence: &Evidence) -> Option<Finding> {
    let told = evidence
        .quote(Saying::PinCall)
        .or_else(|| evidence.quote(Saying::Pinned))?;
    if evidence.says(Saying::LockRefused) {
        return None;
    }
    let faulty = evidence.says_any(&[Saying::IllegalAccess, Saying::DriverFault]);
    let failed = evidence.ran_out()
        || evidence.says(Saying::HostRefused)
        || (evidence.says(Saying::CardFault) && !faulty)
        || ["fail", "error"]
            .iter()
            .any(|word| told.text.to_ascii_lowercase().contains(word));
    let named = evidence.says(Saying::PinCall) && evidence.says(Saying::Pinned);
    let weight = match (named, evidence.says(Saying::StrayContext)) {
        (_, true) => return None,
        (true, _) => Decisive,
        _ if evidence.says(Saying::PinnedRefused) => return None,
        _ => Fair,
    };
    let text = "memory that had to be pinned on the host was refused";
    let finding = Finding::new(Cause::HostPinnedLimit, weight, text, vec![told]);
    failed.then(|| {
        if evidence.says(Saying::PinCall) {
            finding
        } else {
            finding.told()
        }
    })
}
