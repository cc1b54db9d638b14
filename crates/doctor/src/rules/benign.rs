//! Recognises reports in which no card ran out of memory: harmless warnings, and exits for other reasons.

use super::EvidenceWeight::{Decisive, Fair, Hint, Strong, Weak};
use super::RuleFinding;
use super::fault::of_driver;
use crate::cause::{Cause, SubCause};
use crate::facts::{Facts, NO_SIZE, Purpose, Quote};
use crate::pattern::Pattern;

rules! {
    went_on: "TensorFlow's bfc_allocator.cc continues after this warning; TensorRT's builder skips the \
        tactic that does not fit";
    recovered: "llama-context.cpp retries without pipeline parallelism";
    program_fault: "a CUDA kernel of the program checked its input and found it invalid";
    no_size_at_all: "no card has 16 TiB of memory, so the number is an address or an integer overflow";
    other_complaint: "GGML_ASSERT of ggml.h and Python's own exceptions print these messages";
    not_on_the_card: "llama.cpp and ollama print how many layers are offloaded";
    not_about_memory: "server.cpp, common/arg.cpp and glibc's loader print these messages";
}

/// TensorFlow's allocator and TensorRT's builder print refusals that they survive.
fn went_on(facts: &Facts) -> Option<RuleFinding> {
    let lines = facts.quotes(&[Pattern::TacticSkipped, Pattern::NotAFailure]);
    let warned = facts.says_any(&[Pattern::NvMap, Pattern::OutOfMemory]);
    // TensorFlow reports its first refusal as harmless, and then names the tensor that failed.
    let failed = facts.says(Pattern::TensorRefused) && !facts.says(Pattern::TacticSkipped);
    if failed || lines.is_empty() || !warned || !facts.refusals.is_empty() || facts.torch.is_some() {
        return None;
    }
    let text = "the program continued after the message";
    Some(RuleFinding::new(Cause::NotOom, Strong, text, lines).by(SubCause::Optional))
}

fn recovered(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::Recovered)?;
    // A second program of the same log may fail after the first recovered.
    let later = facts.torch.as_ref().is_some_and(|torch| torch.quote.line > line.line);
    let text = "the engine retried with less memory, and nothing was refused afterwards";
    (facts.refusals.is_empty() && !later)
        .then(|| RuleFinding::new(Cause::NotOom, Decisive, text, [line]).by(SubCause::Recovered))
}

fn program_fault(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::ProgramFault)?;
    let text = "the program stopped because of an invalid index, an invalid value or a card that does not \
        exist";
    // A range that cannot be pinned in one piece is reported as an invalid argument.
    let pins = facts.says(Pattern::PinCall);
    (!facts.ran_out() && !pins).then(|| RuleFinding::new(Cause::NotOom, Strong, text, [line]))
}

/// A torn or overflowed argument, as where a library of another version is called.
fn no_size_at_all(facts: &Facts) -> Option<RuleFinding> {
    let torch = facts.torch.as_ref().map(|torch| (torch.requested, &torch.quote));
    let refused = || facts.refusal().and_then(|refusal| Some((refusal.requested?, &refusal.quote)));
    let (requested, quote) = torch.or_else(refused)?;
    let text = format!("{requested} is not a plausible size: it is an address or an integer overflow");
    (requested >= NO_SIZE).then(|| RuleFinding::new(Cause::NotOom, Decisive, text, [quote.clone()]))
}

/// An assertion or exception that does not mention memory, in a log without a refusal.
fn other_complaint(facts: &Facts) -> Option<RuleFinding> {
    // `GGML_ASSERT(buffer)` follows a refusal that the log may lack.
    let about_memory = ["buffer", "CUDA error", "alloc", "memory"];
    let line = facts.quote(Pattern::Assertion).or_else(|| facts.quote(Pattern::Exception))?;
    let explained = facts.ran_out()
        || facts.startup.is_some()
        || facts.says(Pattern::VllmContext)
        || facts.is_beyond_working_set() && !compares_values(facts)
        || is_of_a_card(facts);
    let text = "the program exited with an error of its own; no allocation failed";
    let speaks = !explained && !about_memory.iter().any(|words| line.text.contains(words));
    let weight = match (ends_in_assertion(facts), compares_values(facts)) {
        // An exception may be caught; an assertion ends the process, so it is the failure.
        (false, _) => Weak,
        (true, true) => Strong,
        // ggml checks a call of Metal or CUDA in this way, too, and prints neither the call nor a size.
        (true, false) => Hint,
    };
    speaks.then(|| RuleFinding::new(Cause::NotOom, weight, text, [line]))
}

/// The failed assertion compares values of the program, and no GPU backend of ggml makes it.
pub(super) fn compares_values(facts: &Facts) -> bool {
    let Some(line) = facts.quote(Pattern::Assertion) else { return false };
    // A pointer is compared with nothing but zero: `a == NULL` leaves `a =`.
    let others = ["->", "= null", "= nullptr", "ggml-cpu"];
    let lower = line.text.to_ascii_lowercase();
    let text = others.iter().fold(lower, |text, part| text.replace(part, ""));
    let compares = ["==", "<", ">", "_can_"].iter().any(|sign| text.contains(sign));
    compares && !["status", "ggml-"].iter().any(|word| text.contains(word))
}

/// The program checked a condition of its own, and no call of the GPU run time or of a library failed.
fn ends_in_assertion(facts: &Facts) -> bool {
    let of_library = [Pattern::CublasCreate, Pattern::CublasInit, Pattern::CublasFailed];
    let of_card = [Pattern::CardFault, Pattern::UnsizedRefused];
    facts.says(Pattern::Assertion) && !facts.says_any(&of_library) && !facts.says_any(&of_card)
}

/// Weights, cache and compute buffers were placed, and none of them on a card.
fn all_on_host(facts: &Facts) -> Option<Quote> {
    let purposes = [Purpose::Weights, Purpose::Cache, Purpose::Compute];
    let placed = |purpose| facts.buffers.iter().any(|buffer| buffer.purpose == purpose);
    let all = purposes.into_iter().all(placed) && facts.buffers.iter().all(|buffer| !buffer.on_card);
    facts.quote(Pattern::ComputeSize).filter(|_| all)
}

/// The card or its driver failed.
fn is_of_a_card(facts: &Facts) -> bool {
    let faults = [Pattern::DriverFault, Pattern::DeviceLost, Pattern::IllegalAccess, Pattern::OffBus];
    facts.says_any(&faults) || !of_driver(facts).is_empty() || !facts.xids.is_empty()
}

fn not_on_the_card(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::CpuInstead).or_else(|| all_on_host(facts))?;
    let text = "the program does not use the card, and nothing was refused";
    // With managed memory the layers may all be listed on the host.
    let refused = facts.ran_out() || facts.says_any(&[Pattern::HostRefused, Pattern::UnifiedSwitch]);
    let weight = if is_of_a_card(facts) { Weak } else { Fair };
    (!refused).then(|| RuleFinding::new(Cause::NotOom, weight, text, [line]))
}

fn not_about_memory(facts: &Facts) -> Option<RuleFinding> {
    const ENDS: [(Pattern, SubCause, &str); 8] = [
        (Pattern::PortTaken, SubCause::PortTaken, "the port is already in use"),
        (Pattern::NotStarted, SubCause::NotStarted, "the program could not be started"),
        (Pattern::MissingLibrary, SubCause::MissingLibrary, "a shared library is missing"),
        (
            Pattern::PythonImport,
            SubCause::PythonImport,
            "Python could not import a module: the module is not installed in this environment, or its name \
            is misspelt",
        ),
        (Pattern::UnknownFlag, SubCause::CommandLine, "the program rejected its command line"),
        (Pattern::ModelFile, SubCause::ModelFile, "the program could not read its model"),
        (Pattern::RequestTooLong, SubCause::RequestTooLong, "a request was longer than the context"),
        (Pattern::WaitedLong, SubCause::NotStarted, "loading the model took longer than the client waited"),
    ];
    // `failed to load model` follows every refusal during a load.
    if facts.ran_out() || facts.says(Pattern::UnsizedRefused) {
        return None;
    }
    // A model that could not be read is what a card that failed leaves behind, too.
    let mut seen = ENDS
        .into_iter()
        .filter(|(.., sub_cause, _)| *sub_cause != SubCause::ModelFile || !is_of_a_card(facts));
    let (quote, sub_cause, text) =
        seen.find_map(|(pattern, sub_cause, text)| Some((facts.quote(pattern)?, sub_cause, text)))?;
    // An import that failed may be caught, and the program may go on without the module.
    let imports = sub_cause == SubCause::PythonImport;
    // The module is there, but built for another version.
    let is_other_build = imports && facts.says(Pattern::WrongBuild);
    let weight = if imports { Fair } else { Strong };
    (!is_other_build).then(|| RuleFinding::new(Cause::NotOom, weight, text, [quote]).by(sub_cause))
}
