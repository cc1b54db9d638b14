//! Host memory that the card was to reach directly.
//!
//! ggml asks for pinned memory, says so if it gets none, and goes on with pageable memory: a warning. Where a program cannot do without, the
//! driver's word for a limit of the host is `out of memory` too.

use super::Weight::{Decisive, Fair, Strong, Weak};
use super::{Finding, Rule};
use crate::diagnose::cause::{Cause, SubCause};
use crate::diagnose::evidence::{Evidence, Quote};
use crate::diagnose::saying::Saying;

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
        name: "pin_call_failed",
        source: "cudaHostAlloc, cudaHostRegister, mlock: limits of the host",
        test: pin_call_failed,
    },
];

fn went_on(evidence: &Evidence) -> bool {
    let fatal = !evidence.refusals.is_empty() || evidence.torch.is_some();
    !fatal && evidence.says_any(&[Saying::GoesOn, Saying::Harmless, Saying::Serves, Saying::Works])
}

/// `initialization error` and `unknown error` are of a driver that is not there, and say nothing about a limit.
fn is_limit(told: &Quote) -> bool {
    let reasons = ["initialization error", "unknown error"];
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
    let weight = if is_limit(&told) { Weak } else { Decisive };
    went_on(evidence).then(|| Finding::new(Cause::NotOom, weight, text, quotes).by(SubCause::Optional))
}

/// A call that pins failed, or the limit itself is named beside a failure.
fn pin_call_failed(evidence: &Evidence) -> Option<Finding> {
    let told = evidence
        .quote(Saying::PinCall)
        .or_else(|| evidence.quote(Saying::Pinned))?;
    let failed = evidence.ran_out()
        || evidence.says_any(&[Saying::HostRefused, Saying::CardFault])
        || told.text.contains(" failed");
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
