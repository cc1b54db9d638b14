//! Faults of cards, drivers and builds: none of them is cured by memory.

use super::Weight::{Decisive, Fair, Hint, Strong};
use super::{Finding, Rule};
use crate::cause::{Cause, SubCause};
use crate::evidence::{Evidence, Idea, Quote};
use crate::saying::Saying;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "xid_of_hardware",
        source: "NVIDIA: Xid errors; these are of the bus, the memory or the firmware",
        test: xid_of_hardware,
    },
    Rule {
        name: "driver_fault",
        source: "NVRM, CUDA run time",
        test: driver_fault,
    },
    Rule {
        name: "driver_gone",
        source: "the report's own words",
        test: driver_gone,
    },
    Rule {
        name: "library_failed",
        source: "cuBLAS: cublasStatus_t",
        test: library_failed,
    },
    Rule {
        name: "driver_mismatch",
        source: "CUDA run time, NVML",
        test: driver_mismatch,
    },
    Rule {
        name: "memory_fault",
        source: "CUDA: illegal memory access; Xid 31 is its line in the kernel's log",
        test: memory_fault,
    },
    Rule {
        name: "built_for_other",
        source: "the report's own words",
        test: built_for_other,
    },
    Rule {
        name: "unknown_status",
        source: "CUDA, HIP: an error that is named, and is not out of memory",
        test: unknown_status,
    },
    Rule {
        name: "wrong_build",
        source: "CUDA: no kernel image; cuBLAS that cannot start on this card",
        test: wrong_build,
    },
];

/// Bus, ECC, NVLink, GSP, reset; not 13, 31, 43 and 45, which programs cause.
const HARDWARE: [u64; 25] = [
    8, 32, 38, 46, 48, 54, 61, 62, 63, 64, 74, 79, 80, 92, 94, 95, 109, 110, 119, 120, 121, 122, 123, 140,
    154,
];

fn xid_of_hardware(evidence: &Evidence) -> Option<Finding> {
    let (code, quote) = evidence.xids.iter().find(|(code, _)| HARDWARE.contains(code))?;
    let text = format!("the driver reported Xid {code}, which is of the hardware or its firmware");
    Some(Finding::new(
        Cause::DriverOrHw,
        Decisive,
        text,
        vec![quote.clone()],
    ))
}

fn driver_fault(evidence: &Evidence) -> Option<Finding> {
    let off = evidence.quote(Saying::OffBus);
    let weight = if off.is_some() { Decisive } else { Strong };
    let quote = off.or_else(|| evidence.quote(Saying::DriverFault))?;
    let text = "the card or its driver stopped answering";
    Some(Finding::new(Cause::DriverOrHw, weight, text, vec![quote]))
}

/// Loading the modules again, or sleeping, has to do with drivers alone.
fn driver_gone(evidence: &Evidence) -> Option<Finding> {
    let told = evidence
        .quote(Saying::DriverGone)
        .filter(|_| !evidence.was_refused())?;
    let text = "the card is told to be lost after sleep, or until its driver is loaded again";
    Some(Finding::new(Cause::DriverOrHw, Fair, text, vec![told]).told())
}

fn library_failed(evidence: &Evidence) -> Option<Finding> {
    let told = evidence
        .quote(Saying::CublasFailed)
        .filter(|_| !evidence.ran_out())?;
    let text = "a library failed at its work, and no memory was refused: it may not fit this card or driver";
    Some(Finding::new(Cause::NotOom, Fair, text, vec![told]).by(SubCause::WrongBuild))
}

/// Who says that the driver is amiss. Pinned memory is asked for and gone without, also where the card is not to be seen.
pub(super) fn of_driver(evidence: &Evidence) -> Vec<Quote> {
    let mut quotes = evidence.quotes(&[Saying::NvmlInitAssert, Saying::DriverMismatch]);
    quotes.retain(|quote| !quote.text.contains("pinned memory") || quote.text.contains("display driver"));
    quotes
}

fn driver_mismatch(evidence: &Evidence) -> Option<Finding> {
    let quotes = of_driver(evidence);
    let text = "the driver and its libraries do not fit each other, or are not reachable from here";
    (!quotes.is_empty()).then(|| Finding::new(Cause::DriverOrHw, Strong, text, quotes))
}

fn memory_fault(evidence: &Evidence) -> Option<Finding> {
    const OF_PROGRAMS: [u64; 4] = [13, 31, 43, 45];
    let xid = evidence.xids.iter().find(|(code, _)| OF_PROGRAMS.contains(code));
    let quote = evidence
        .quote(Saying::IllegalAccess)
        .or_else(|| xid.map(|(_, quote)| quote.clone()))?;
    let text = "a kernel read or wrote an address that is not its own: a fault of the program, or of its view of the cards";
    // A choice of cards beside it explains it better.
    let weight = if evidence.says(Saying::DeviceChoice) {
        Fair
    } else {
        Strong
    };
    Some(Finding::new(Cause::DriverOrHw, weight, text, vec![quote]).by(SubCause::MemoryFault))
}

fn built_for_other(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::BuiltForOther)?;
    let text = "a library is told to be built for another card than this";
    let finding = Finding::new(Cause::NotOom, Strong, text, vec![told]).by(SubCause::WrongBuild);
    (!evidence.is_sized()).then(|| finding.told())
}

fn wrong_build(evidence: &Evidence) -> Option<Finding> {
    let build = evidence.quote(Saying::WrongBuild).filter(|quote| {
        let lower = quote.text.to_ascii_lowercase();
        !lower.contains("fattn") || lower.contains("fatal error")
    });
    let blas = evidence.quote(Saying::CublasCreate);
    // PyTorch's cuBLAS cannot start on a full card either.
    let weight = match (&build, evidence.ran_out()) {
        (Some(_), _) => Decisive,
        (None, false) => Strong,
        (None, true) => Fair,
    };
    let handle = evidence.quote(Saying::CublasInit);
    if build.is_none() && blas.is_none() && handle.is_some() {
        return handle_refused(evidence, handle?);
    }
    let quote = build.or(blas)?;
    let text = "the program or a library of it does not fit this card or driver";
    Some(Finding::new(Cause::NotOom, weight, text, vec![quote]).by(SubCause::WrongBuild))
}

/// A framework's library got no room for its handle, on a card that is full or that it does not fit.
fn handle_refused(evidence: &Evidence, quote: Quote) -> Option<Finding> {
    let text = "a library could not make its handle, though nothing is said to be full";
    let full = evidence.ran_out() || evidence.says(Saying::Neighbour);
    (!full).then(|| Finding::new(Cause::NotOom, Fair, text, vec![quote]).by(SubCause::WrongBuild))
}

/// The run time names an error, and it is none of memory.
fn unknown_status(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::CardFault)?;
    let text = "the run time gave up with an error that is not about memory";
    let pins = evidence.says_any(&[Saying::PinCall, Saying::Pinned, Saying::PinnedRefused]);
    let broken = evidence.is_about(&[Idea::Breaks, Idea::Machine]);
    (!evidence.ran_out() && !pins && !broken)
        .then(|| Finding::new(Cause::NotOom, Hint, text, vec![told]).told())
}
