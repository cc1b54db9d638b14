//! Recognises refused pinned host memory: its limits, and refusals that the program survives.
//!
//! ggml continues with pageable memory if pinned memory is refused. Other programs fail with `out of memory`,
//! the same error as for a full card.

use super::EvidenceWeight::{Decisive, Fair, Strong, Weak};
use super::RuleFinding;
use super::fault::of_driver;
use crate::cause::{Cause, SubCause};
use crate::facts::{Facts, Quote};
use crate::formats::has_any;
use crate::pattern::Pattern;

rules! {
    pinned_refused: "ggml_cuda_host_malloc of ggml-cuda.cu prints this message";
    pinned_warning: "ggml-cuda.cu falls back to pageable memory";
    lock_refused: "llama-mmap.cpp continues if mlock fails";
    pin_call_failed: "cudaHostAlloc, cudaHostRegister and mlock fail at limits of the host";
}

fn went_on(facts: &Facts) -> bool {
    let fatal = !facts.refusals.is_empty() || facts.torch.is_some();
    !fatal && !broke(facts) && facts.says_any(&[Pattern::Serves, Pattern::Works])
}

/// The program ended by a fault of a kernel or by a check of its own, whatever it was warned of before.
fn broke(facts: &Facts) -> bool {
    facts.says_any(&[Pattern::IllegalAccess, Pattern::OffBus, Pattern::Assertion]) || !facts.xids.is_empty()
}

/// False for errors of a missing or wrong driver, which do not indicate a limit
/// (`cuda_runtime_api.h:cudaGetErrorString`).
fn is_limit(line: &Quote) -> bool {
    !has_any("driver", &line.text.to_ascii_lowercase())
}

fn pinned_refused(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::PinnedRefused).filter(is_limit)?;
    let finding = RuleFinding::new(Cause::HostPinnedLimit, Strong, "pinned host memory was refused", [line]);
    // ggml goes on without, so another failure of the log has another cause.
    let others = [Pattern::CardFault, Pattern::Exception, Pattern::Died, Pattern::Killed];
    let is_alone = facts.refusals.is_empty() && !broke(facts) && !facts.says_any(&others);
    Some(finding.proven_if(is_alone))
}

fn pinned_warning(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::PinnedRefused)?;
    let next = facts.quotes(&[Pattern::Serves, Pattern::Works]).into_iter().take(1);
    let text = "pinned memory is optional, and the program continued without it";
    let amiss = !of_driver(facts).is_empty();
    let (weight, speaks) = if is_limit(&line) {
        // A limit that the run survives is worth fixing still: host copies get slower.
        (Weak, went_on(facts))
    } else {
        // Without a driver ggml runs on the processor, where pinning has no use.
        (Decisive, if amiss { went_on(facts) } else { !facts.was_refused() })
    };
    let quotes = [line].into_iter().chain(next);
    let finding = RuleFinding::new(Cause::NotOom, weight, text, quotes).by(SubCause::Optional);
    // Without a line of work, the missing driver may be what the report is about.
    speaks.then(|| finding.proven_if(went_on(facts)))
}

/// A later line of the load proves that it went on.
fn lock_refused(facts: &Facts) -> Option<RuleFinding> {
    const LATER: [Pattern; 6] = [
        Pattern::MakesCache,
        Pattern::CacheSize,
        Pattern::ComputeSize,
        Pattern::ReservesGraph,
        Pattern::Serves,
        Pattern::Works,
    ];
    let line = facts.quote(Pattern::LockRefused)?;
    let next = LATER
        .into_iter()
        .filter_map(|pattern| Some(&facts.seen(pattern)?.last))
        .find(|last| last.origin == line.origin && last.line > line.line);
    Some(match next {
        Some(_) if broke(facts) => return None,
        Some(next) if !facts.ran_out() => {
            let text = "locking the model in host memory is optional";
            let weight = if went_on(facts) { Strong } else { Fair };
            RuleFinding::new(Cause::NotOom, weight, text, [line, next.clone()]).by(SubCause::Optional)
        }
        _ => RuleFinding::new(
            Cause::HostPinnedLimit,
            Fair,
            "the host's limit of locked memory was reached",
            [line],
        ),
    })
}

fn pin_call_failed(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::PinCall)?;
    if facts.says_any(&[Pattern::LockRefused, Pattern::PinnedRefused]) {
        return None;
    }
    let faulty = facts.says_any(&[Pattern::IllegalAccess, Pattern::DriverFault]);
    let lower = line.text.to_ascii_lowercase();
    // Calls that pin stand in many tracebacks; the log must also show a failure.
    let failed = facts.ran_out()
        || facts.says(Pattern::HostRefused)
        || (facts.says(Pattern::CardFault) && !faulty)
        || ["fail", "error"].iter().any(|word| lower.contains(word));
    let text = "a request for pinned host memory failed";
    failed.then(|| RuleFinding::new(Cause::HostPinnedLimit, Fair, text, [line]))
}
