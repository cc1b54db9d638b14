//! Recognises faults of cards, drivers and builds, which more memory would not fix.

use super::EvidenceWeight::{Decisive, Fair, Hint, Strong};
use super::RuleFinding;
use crate::cause::{Cause, SubCause};
use crate::facts::{Facts, Quote};
use crate::pattern::Pattern;

rules! {
    xid_of_hardware: "NVIDIA documents these Xid errors for the bus, the memory or the firmware";
    driver_fault: "NVRM and the CUDA runtime report these errors";
    driver_mismatch: "the CUDA runtime and NVML report these errors";
    memory_fault: "CUDA reports an illegal memory access, and the kernel's log shows it as Xid 31";
    unknown_status: "CUDA and HIP report out of memory with another error code than this one";
    wrong_build: "CUDA finds no kernel image for the card, or cuBLAS cannot start on it";
}

/// Bus, ECC, NVLink, GSP and reset; programs cause 13, 31, 43 and 45.
const HARDWARE: [u64; 25] = [
    8, 32, 38, 46, 48, 54, 61, 62, 63, 64, 74, 79, 80, 92, 94, 95, 109, 110, 119, 120, 121, 122, 123, 140,
    154,
];

fn xid_of_hardware(facts: &Facts) -> Option<RuleFinding> {
    let (code, quote) = facts.xids.iter().find(|(code, _)| HARDWARE.contains(code))?;
    let text = format!("the driver reported Xid {code}, an error of the hardware or its firmware");
    Some(RuleFinding::new(Cause::DriverOrHw, Decisive, text, [quote.clone()]))
}

fn driver_fault(facts: &Facts) -> Option<RuleFinding> {
    let off = facts.quote(Pattern::OffBus);
    let is_off = off.is_some();
    let Some(quote) = off.or_else(|| facts.quote(Pattern::DriverFault)) else {
        // Vulkan and Level Zero lose a device after a fault, a time-out, and where memory ran out.
        let text = "the device was lost: the driver reset it, after a fault or because memory ran out";
        let lost = facts.quote(Pattern::DeviceLost).filter(|_| !facts.ran_out())?;
        return Some(RuleFinding::new(Cause::DriverOrHw, Fair, text, [lost]));
    };
    // A card that fell off the bus is proven by the kernel; the run time's words say that a kernel of the GPU
    // failed.
    let lower = quote.text.to_ascii_lowercase();
    let weight = if is_off {
        Decisive
    } else if ["launch", "status_error", "error_unknown"].iter().any(|word| lower.contains(word)) {
        Fair
    } else {
        Strong
    };
    Some(RuleFinding::new(Cause::DriverOrHw, weight, "the card or its driver stopped responding", [quote]))
}

/// Lines about a wrong or missing driver. Without a visible card ggml also fails to pin memory, and goes on
/// without it.
pub(super) fn of_driver(facts: &Facts) -> Vec<Quote> {
    let mut quotes = facts.quotes(&[Pattern::NvmlInitAssert, Pattern::DriverMismatch]);
    quotes.retain(|quote| !quote.text.contains("pinned memory") || quote.text.contains("display driver"));
    quotes
}

fn driver_mismatch(facts: &Facts) -> Option<RuleFinding> {
    let quotes = of_driver(facts);
    if quotes.iter().any(is_too_old) {
        let text = "the driver is older than the CUDA version that the program was built for";
        // A board's driver belongs to its release, so a build for servers is at fault.
        let (cause, sub_cause) = if facts.is_unified() && quotes.iter().all(is_of_ptx) {
            (Cause::NotOom, SubCause::WrongBuild)
        } else {
            (Cause::DriverOrHw, SubCause::OldDriver)
        };
        return Some(RuleFinding::new(cause, Strong, text, quotes).by(sub_cause));
    }
    let text = "the driver does not match its libraries, or the program cannot reach the driver, for example \
        from a container";
    // PyTorch makes the query of this assertion to word a refusal, which may be what is amiss.
    let is_of_refusal = quotes.iter().all(|quote| quote.text.contains("CachingAllocator"));
    let weight = if is_of_refusal { Fair } else { Strong };
    (!quotes.is_empty())
        .then(|| RuleFinding::new(Cause::DriverOrHw, weight, text, quotes).by(SubCause::NoDriver))
}

fn is_of_ptx(quote: &Quote) -> bool {
    quote.text.to_ascii_lowercase().contains("unsupported toolchain")
}

/// The words of CUDA and of PyTorch for a driver that is too old.
fn is_too_old(quote: &Quote) -> bool {
    let lower = quote.text.to_ascii_lowercase();
    [
        "version is insufficient",
        "insufficientdriver",
        "driver on your system is too old",
        "unsupported toolchain",
    ]
    .iter()
    .any(|words| lower.contains(words))
}

fn memory_fault(facts: &Facts) -> Option<RuleFinding> {
    const OF_PROGRAMS: [u64; 4] = [13, 31, 43, 45];
    let xid = facts.xids.iter().find(|(code, _)| OF_PROGRAMS.contains(code));
    let access = facts.quote(Pattern::IllegalAccess);
    let quote = access.or_else(|| xid.map(|(_, quote)| quote.clone()))?;
    let text = "a GPU kernel accessed an invalid address: the program has a bug, or it uses the wrong card";
    Some(RuleFinding::new(Cause::DriverOrHw, Strong, text, [quote]).by(SubCause::MemoryFault))
}

fn wrong_build(facts: &Facts) -> Option<RuleFinding> {
    // ggml's flash attention aborts with its file name where a build lacks the kernel.
    let build = facts.quote(Pattern::WrongBuild).filter(|quote| {
        let lower = quote.text.to_ascii_lowercase();
        !lower.contains("fattn") || lower.contains("fatal error")
    });
    let blas = facts.quote(Pattern::CublasCreate);
    if let (None, Some(line), Some(left)) = (&build, &blas, facts.left_after_load()) {
        let text =
            format!("cuBLAS found no memory for its handle: the load had left {left} of the card free");
        return Some(RuleFinding::new(Cause::PoolGrowth, Strong, text, [line.clone()]));
    }
    // On a full card cuBLAS cannot start either, and prints no size.
    let is_shown = build.is_some();
    if let Some(quote) = build.or(blas) {
        let weight = if is_shown { Decisive } else { Fair };
        let text = "the program or one of its libraries was built for another card or driver";
        return Some(RuleFinding::new(Cause::NotOom, weight, text, [quote]).by(SubCause::WrongBuild));
    }
    let handle = facts.quote(Pattern::CublasInit).filter(|_| !facts.ran_out())?;
    let text = "a CUDA library could not create its handle, and no line of the log shows that the card was \
        full";
    Some(RuleFinding::new(Cause::NotOom, Fair, text, [handle]).by(SubCause::WrongBuild))
}

fn unknown_status(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::CardFault)?;
    let pins = facts.says_any(&[Pattern::PinCall, Pattern::PinnedRefused]);
    let text = "the GPU runtime reported an error that is not about memory";
    (!facts.ran_out() && !pins).then(|| RuleFinding::new(Cause::NotOom, Hint, text, [line]))
}
