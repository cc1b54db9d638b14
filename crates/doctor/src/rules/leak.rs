//! Recognises memory leaks: rising readings, growth per request, and kernel memory that cannot be reclaimed.

use plimsoll_base::Bytes;

use super::EvidenceWeight::{Decisive, Fair, Strong};
use super::RuleFinding;
use crate::cause::{Cause, SubCause};
use crate::facts::Facts;
use crate::pattern::Pattern;

rules! {
    readings_rise: "the measured memory rises from each reading to the next";
    grows_each_round: "memory grows by a MiB or more with each request or image";
    kernel_slab: "/proc/meminfo shows SUnreclaim above a fifth of MemTotal";
}

/// At least three readings, each above the one before, the last half as large again as the first.
fn readings_rise(facts: &Facts) -> Option<RuleFinding> {
    let readings = &facts.series;
    let (first, last) = (*readings.first()?, *readings.last()?);
    let rises = readings.windows(2).all(|pair| pair[0] < pair[1]);
    let much = last >= first.scaled(3, 2) && last >= Bytes::mib(64);
    // Little by little, but again and again.
    let often = readings.len() >= 4 && last.saturating_sub(first) >= Bytes::mib(256);
    // A rise of a half within a few readings is more than caches warm up to.
    let weight = if much { Strong } else { Fair };
    let text = format!("memory rises in {} readings, from {first} to {last}", readings.len());
    (rises && (much || often)).then(|| RuleFinding::new(Cause::Leak, weight, text, facts.growth.clone()))
}

fn grows_each_round(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.growth.clone()?;
    let text = "memory grows with each request or round";
    Some(RuleFinding::new(Cause::Leak, Strong, text, [line]).proven_if(false))
}

fn kernel_slab(facts: &Facts) -> Option<RuleFinding> {
    let (slab, total) = (facts.host.slab_unreclaimable?, facts.host.total);
    let large = total.map_or(slab >= Bytes::gib(4), |total| slab.scaled(5, 1) >= total);
    let quotes = facts.quotes(&[Pattern::Meminfo]);
    let text = format!("the kernel holds {slab} that it cannot reclaim (SUnreclaim)");
    large.then(|| RuleFinding::new(Cause::Leak, Decisive, text, quotes).by(SubCause::KernelSlab))
}
