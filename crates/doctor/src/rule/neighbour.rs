//! Somebody else's memory.

use plimsoll_base::Bytes;

use super::Weight::{Fair, Strong, Weak};
use super::{Finding, Rule};
use crate::cause::Cause;
use crate::evidence::{Evidence, Purpose, Quote, Stage};
use crate::saying::Saying;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "listed_processes",
        source: "nvidia-smi: table of processes",
        test: listed_processes,
    },
    Rule {
        name: "used_by_nobody",
        source: "nvidia-smi: a card in use, and a table of processes that does not say by whom",
        test: used_by_nobody,
    },
    Rule {
        name: "nameless_holder",
        source: "nvidia-smi: `Unknown Error`, `[Not Found]`: NVML finds no program behind the number any more",
        test: nameless_holder,
    },
    Rule {
        name: "large_holder",
        source: "rocm-smi --showpids, nvidia-smi: a process with a quarter of the card that is named, and no other complaint",
        test: large_holder,
    },
    Rule {
        name: "nobody_shown",
        source: "nvidia-smi lists the processes of its own container and user, and none that is half gone",
        test: nobody_shown,
    },
    Rule {
        name: "unworded",
        source: "PyTorch words what its allocator is refused; a bare CUDA error is of a context or of pinned memory",
        test: unworded,
    },
    Rule {
        name: "no_room_for_context",
        source: "CUDA: a context takes some hundred MiB before the first allocation",
        test: no_room_for_context,
    },
    Rule {
        name: "taken_before",
        source: "llama.cpp: `using device … - N MiB free` at the start",
        test: taken_before,
    },
    Rule {
        name: "told_of_neighbour",
        source: "the report's own words",
        test: told_of_neighbour,
    },
    Rule {
        name: "small_victim",
        source: "libargus: a camera's buffers are tens of MiB",
        test: small_victim,
    },
    Rule {
        name: "others_seen",
        source: "vLLM: memory profiling; SGLang: init_torch_distributed; CUDA: cudaErrorDevicesUnavailable",
        test: others_seen,
    },
];

fn listed_processes(evidence: &Evidence) -> Option<Finding> {
    let ran_out = evidence.ran_out() && evidence.torch.is_none();
    let card = evidence.card().filter(|_| ran_out)?;
    let largest = evidence.holders.iter().max_by_key(|holder| holder.used)?;
    let held: Bytes = evidence.holders.iter().map(|holder| holder.used).sum();
    let text = format!("{} holds {} of a card of {card}", largest.name, largest.used);
    let several = evidence.holders.len() > 1 && held.scaled(2, 1) >= card && evidence.refusals.is_empty();
    let weight = if several { Strong } else { Fair };
    (held.scaled(3, 1) >= card)
        .then(|| Finding::new(Cause::ForeignProcess, weight, text, vec![largest.quote.clone()]))
}

/// Half of a card is used, and those who are listed hold less than half of that: containers, other users, a process that is not gone.
fn used_by_nobody(evidence: &Evidence) -> Option<Finding> {
    let usage = evidence.usage.as_ref()?;
    let held: Bytes = evidence.holders.iter().map(|holder| holder.used).sum();
    let alone = evidence.torch.is_none() && evidence.buffers.is_empty() && evidence.xids.is_empty();
    let nobody = usage.used.scaled(2, 1) >= usage.total && held.scaled(2, 1) < usage.used && alone;
    let text = format!(
        "{} of {} are used, and the processes that are listed hold {held}",
        usage.used, usage.total
    );
    nobody.then(|| Finding::new(Cause::ForeignProcess, Fair, text, vec![usage.quote.clone()]))
}

fn nameless_holder(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::Nameless)?;
    let text = "a process that is no more still holds memory of the card";
    Some(Finding::new(Cause::ForeignProcess, Strong, text, vec![told]))
}

/// A table of processes is shown for those who hold the memory.
fn large_holder(evidence: &Evidence) -> Option<Finding> {
    let card = evidence.card().or(evidence.named_cards)?;
    let largest = evidence.holders.iter().max_by_key(|holder| holder.used)?;
    let quiet = !evidence.ran_out() && evidence.torch.is_none() && evidence.series.len() < 3;
    let said = [
        Saying::Leaks,
        Saying::Grows,
        Saying::NotReleased,
        Saying::StrayContext,
        Saying::CardsSetApart,
    ];
    let text = format!("{} holds {} of a card of {card}", largest.name, largest.used);
    let speaks = quiet && !evidence.says_any(&said) && largest.used.scaled(4, 1) >= card;
    speaks.then(|| Finding::new(Cause::ForeignProcess, Weak, text, vec![largest.quote.clone()]))
}

fn nobody_shown(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quotes(&[Saying::NobodyShown, Saying::TakenBefore]);
    let silent = evidence.is_unified()
        || evidence.startup.is_some()
        || evidence.says(Saying::PreviousChild)
        || told.is_empty();
    let failed = evidence.ran_out()
        || evidence.says_any(&[Saying::NotReleased, Saying::Neighbour, Saying::FailsAgain]);
    let weight = if failed { Strong } else { Fair };
    let text = "the card is told to be in use before the start, or by a process that no list shows";
    (!silent).then(|| Finding::new(Cause::ForeignProcess, weight, text, told).told())
}

fn unworded(evidence: &Evidence) -> Option<Finding> {
    let told = evidence
        .quote(Saying::Unworded)
        .or_else(|| refused_in_wsl(evidence))?;
    if evidence.torch.is_some()
        || evidence.says_any(&[Saying::PinCall, Saying::Pinned])
        || evidence.is_unified()
    {
        return None;
    }
    let (cause, text) = match evidence.says_any(&[Saying::Windows, Saying::Wsl]) {
        true => (
            Cause::HostPinnedLimit,
            "memory was refused outside the allocator, on Windows or WSL, where little can be pinned",
        ),
        false => (
            Cause::ForeignProcess,
            "memory was refused outside the allocator: the card had no room for a context",
        ),
    };
    let weight = if cause == Cause::HostPinnedLimit {
        Fair
    } else {
        Weak
    };
    Some(Finding::new(cause, weight, text, vec![told]))
}

/// A call of the run time without a buffer's name, in WSL, before anything is served.
fn refused_in_wsl(evidence: &Evidence) -> Option<Quote> {
    let refusal = evidence.refusal().filter(|_| evidence.says(Saying::Wsl))?;
    let early = refusal.at_run_time && refusal.purpose == Purpose::Unknown && refusal.stage != Stage::Serving;
    early.then(|| refusal.quote.clone())
}

/// The process has nothing yet: whoever fills the card is somebody else.
fn no_room_for_context(evidence: &Evidence) -> Option<Finding> {
    let call = evidence.quote(Saying::ContextCall)?;
    let holds_some = evidence.torch.is_some() || !evidence.buffers.is_empty();
    let unsized_only = evidence.refusals.iter().all(|refusal| refusal.asked.is_none());
    let alone = unsized_only && !holds_some && !evidence.is_unified();
    let text = "the card had no room for a context, before anything was allocated";
    (alone && evidence.ran_out()).then(|| Finding::new(Cause::ForeignProcess, Fair, text, vec![call]))
}

fn taken_before(evidence: &Evidence) -> Option<Finding> {
    let taken = evidence.taken_before()?;
    let mut quotes = evidence.quotes(&[Saying::CardFree, Saying::CardTotals]);
    quotes.push(evidence.refusal()?.quote.clone());
    let text = format!("{taken} of the card were taken before it started, enough for what was refused");
    Some(Finding::new(Cause::ForeignProcess, Strong, text, quotes))
}

fn told_of_neighbour(evidence: &Evidence) -> Option<Finding> {
    let told = evidence
        .quote(Saying::Neighbour)
        .or_else(|| evidence.quote(Saying::Desktop))?;
    let is_pool = evidence
        .refusal()
        .is_some_and(|refusal| refusal.purpose == Purpose::Pool);
    // What is more than the card would not fit on an empty one.
    let card = evidence.card().max(evidence.named_cards);
    let asked = evidence.refusal().and_then(|refusal| refusal.asked);
    if matches!((asked, card), (Some(asked), Some(card)) if asked >= card) {
        return None;
    }
    let weight = match (evidence.ran_out(), evidence.startup.is_some()) {
        // vLLM's own advice names other processes in any case.
        (_, true) => return None,
        // The pool is where it shows, the neighbour is why.
        (true, _) if is_pool => Strong,
        (true, _) if evidence.says(Saying::StrayContext) => Weak,
        (true, _) if evidence.says_any(&[Saying::Leaks, Saying::Grows]) => Weak,
        (true, _) => Fair,
        (false, _) => Weak,
    };
    let text = "another holder of the same card is named";
    Some(Finding::new(Cause::ForeignProcess, weight, text, vec![told]).told())
}

/// A camera asks for little. Where it gets nothing, somebody else has everything.
fn small_victim(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::Camera)?;
    let starved = evidence.says_any(&[Saying::NvMap, Saying::OutOfMemory]) && !evidence.says(Saying::GoesOn);
    let text = "a camera, which needs tens of MiB, got none";
    starved.then(|| Finding::new(Cause::ForeignProcess, Strong, text, vec![told]))
}

/// An engine that looks at its card before and after says that somebody else moved.
fn others_seen(evidence: &Evidence) -> Option<Finding> {
    let (weight, quote) = match (
        evidence.quote(Saying::OthersSeen),
        evidence.quote(Saying::CardBusy),
    ) {
        (Some(quote), _) => (Strong, quote),
        (None, Some(quote)) => (Fair, quote),
        (None, None) => return None,
    };
    let text = "the engine found the card in another's hands";
    Some(Finding::new(Cause::ForeignProcess, weight, text, vec![quote]))
}
