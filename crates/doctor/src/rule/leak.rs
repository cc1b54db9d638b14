//! Memory that is taken and not given back, and what only looks like it.

use plimsoll_base::Bytes;

use super::Weight::{Decisive, Fair, Strong, Weak};
use super::{Finding, Rule};
use crate::cause::{Cause, SubCause};
use crate::evidence::Evidence;
use crate::saying::Saying;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "readings_rise",
        source: "arithmetic: readings that only rise",
        test: readings_rise,
    },
    Rule {
        name: "said_to_leak",
        source: "the report's own words",
        test: said_to_leak,
    },
    Rule {
        name: "kernel_slab",
        source: "/proc/meminfo: SUnreclaim above a fifth of MemTotal",
        test: kernel_slab,
    },
    Rule {
        name: "kept_alive",
        source: "ollama, llama-swap: a model stays loaded until it has been idle for minutes",
        test: kept_alive,
    },
];

/// At least three readings, none lower than the one before, the last at least half as large again as the first.
fn readings_rise(evidence: &Evidence) -> Option<Finding> {
    let readings = &evidence.series;
    let (first, last) = (*readings.first()?, *readings.last()?);
    let rises = readings.windows(2).all(|pair| pair[0] < pair[1]);
    let much = last >= first.scaled(3, 2) && last >= Bytes::mib(64);
    // Little by little, but again and again.
    let often = readings.len() >= 4 && last.saturating_sub(first) >= Bytes::mib(256);
    if readings.len() < 3 || !rises || !(much || often) {
        return None;
    }
    let weight = if much { Strong } else { Fair };
    let text = format!("{} readings rise from {first} to {last}", readings.len());
    let quotes = evidence.quotes(&[Saying::Grows, Saying::EachRound, Saying::Leaks]);
    Some(Finding::new(Cause::Leak, weight, text, quotes))
}

fn said_to_leak(evidence: &Evidence) -> Option<Finding> {
    let explained = evidence.says_any(&[Saying::KeptAlive, Saying::Harmless]);
    let leaks = evidence.says(Saying::Leaks);
    let kept = evidence.says(Saying::NotReleased);
    let both = evidence.says(Saying::GrowsEachRound);
    let grows = both || evidence.says(Saying::Grows);
    let rounds = both || evidence.says(Saying::EachRound);
    if !(leaks || grows || kept || evidence.says(Saying::FailsAgain)) {
        return None;
    }
    let weight = match (leaks, grows || kept, rounds) {
        _ if explained || evidence.says_any(&[Saying::Meant, Saying::CuredByPieces]) => Weak,
        (true, _, _) | (_, true, _) if evidence.says(Saying::StrayContext) => Fair,
        // What lies in pieces is not lost.
        (false, ..) if evidence.says(Saying::Fragmented) => Weak,
        // A process that is not gone keeps what it had.
        _ if evidence.says_any(&[Saying::NobodyShown, Saying::TakenBefore]) => Weak,
        _ if evidence.holders.len() > 1 => Fair,
        (true, _, _) | (_, true, true) if grows_with_depth(evidence) => Fair,
        (true, true, true) => Decisive,
        (true, ..) | (false, true, true) => Strong,
        (false, true, false) if kept && evidence.says(Saying::FailsAgain) => Strong,
        (false, true, false) if kept || evidence.says(Saying::FailsAgain) => Fair,
        (false, true, false) => return None,
        (false, false, _) if evidence.says(Saying::FailsAgain) => Weak,
        (false, false, _) => return None,
    };
    let quotes = evidence.quotes(&[
        Saying::Leaks,
        Saying::Grows,
        Saying::NotReleased,
        Saying::EachRound,
        Saying::GrowsEachRound,
    ]);
    Some(
        Finding::new(
            Cause::Leak,
            weight,
            "memory is told to grow and not to come back",
            quotes,
        )
        .told(),
    )
}

/// What grows with the depth of a request comes back with it, unless it is told not to.
fn grows_with_depth(evidence: &Evidence) -> bool {
    evidence.says(Saying::GrowsWithDepth)
        && !(evidence.says_any(&[Saying::NotReleased, Saying::Leaks]) && evidence.says(Saying::EachRound))
}

fn kernel_slab(evidence: &Evidence) -> Option<Finding> {
    if let Some(told) = evidence.quote(Saying::Slab)
        && evidence.says_any(&[Saying::Leaks, Saying::Grows])
    {
        let text = "the kernel's own memory is told to grow";
        return Some(
            Finding::new(Cause::Leak, Decisive, text, vec![told])
                .by(SubCause::KernelSlab)
                .told(),
        );
    }
    let (slab, total) = (evidence.host.slab_unreclaimable?, evidence.host.total);
    let large = total.map_or(slab >= Bytes::gib(4), |total| slab.scaled(5, 1) >= total);
    let quotes = evidence.quotes(&[Saying::Meminfo]);
    let text = format!("the kernel holds {slab} that it cannot give back (SUnreclaim)");
    large.then(|| Finding::new(Cause::Leak, Decisive, text, quotes).by(SubCause::KernelSlab))
}

fn kept_alive(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::KeptAlive)?;
    if !evidence.says_any(&[Saying::NotReleased, Saying::Leaks]) || !evidence.refusals.is_empty() {
        return None;
    }
    let text = "the memory comes back after some idle minutes";
    Some(
        Finding::new(Cause::NotOom, Decisive, text, vec![told])
            .by(SubCause::KeepAlive)
            .told(),
    )
}
