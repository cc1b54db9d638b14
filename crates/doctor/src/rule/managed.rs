//! Managed memory, which moves to and fro instead of failing.

use super::Weight::{Decisive, Fair, Strong, Weak};
use super::{Finding, Rule};
use crate::cause::Cause;
use crate::evidence::Evidence;
use crate::saying::Saying;

pub(super) const RULES: &[Rule] = &[Rule {
    name: "managed_memory_moves",
    source: "UVM serves faults instead of failing",
    test: managed_memory_moves,
}];

fn managed_memory_moves(evidence: &Evidence) -> Option<Finding> {
    let managed = evidence.says_any(&[Saying::ManagedMemory, Saying::UnifiedSwitch]);
    let (faults, slow) = (evidence.says(Saying::PageFaults), evidence.says(Saying::Slow));
    if evidence.says(Saying::NvMap) {
        return None;
    }
    if !managed {
        return slow_on_windows(evidence).or_else(|| faults_alone(evidence));
    }
    let weight = match (faults, slow) {
        // What fails for want of memory is not served by faults.
        (false, true) if evidence.ran_out() && evidence.says(Saying::UnifiedSwitch) => Weak,
        (true, true) => Decisive,
        (true, false) | (false, true) if evidence.refusals.is_empty() => Strong,
        (false, false) if evidence.was_refused() || evidence.is_unified() => return None,
        (false, false) if evidence.ran_out() => Weak,
        (false, false) => Fair,
        _ => Weak,
    };
    let quotes = evidence.quotes(&[
        Saying::ManagedMemory,
        Saying::UnifiedSwitch,
        Saying::PageFaults,
        Saying::Slow,
    ]);
    let text = "managed memory is in use, and what is told is slowness, not failure";
    let finding = Finding::new(Cause::UnifiedMemoryThrash, weight, text, quotes);
    Some(if evidence.says(Saying::UnifiedSwitch) {
        finding
    } else {
        finding.told()
    })
}

/// Only managed memory is served page by page; a fault of a kernel is another thing.
fn faults_alone(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::PageFaults)?;
    let broken = evidence.says_any(&[Saying::IllegalAccess, Saying::DriverFault, Saying::CardFault]);
    let text = "page faults of the card are told of, which only managed memory has";
    (!broken && !evidence.ran_out())
        .then(|| Finding::new(Cause::UnifiedMemoryThrash, Fair, text, vec![told]).told())
}

/// The driver of Windows moves memory of the card to the host rather than refuse it.
fn slow_on_windows(evidence: &Evidence) -> Option<Finding> {
    let slow = evidence
        .quote(Saying::Slow)
        .or_else(|| evidence.quote(Saying::TakesLong))
        .filter(|_| evidence.says_any(&[Saying::Windows, Saying::Wsl]))?;
    let text = "it is slow on Windows, where the driver moves memory to the host rather than refuse it";
    let others = evidence.says_any(&[Saying::Neighbour, Saying::TakenBefore]);
    let speaks = !evidence.ran_out() && !evidence.is_unified() && !others;
    speaks.then(|| Finding::new(Cause::UnifiedMemoryThrash, Fair, text, vec![slow]).told())
}
