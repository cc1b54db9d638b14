//! Tests of allocation traces (generated, read and replayed) against recordings from a card and published
//! figures.
//!
//! `src/lib.rs` includes this file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod created;
mod hostile;
mod pool_replay;
mod replay;
#[path = "../../../crates/pool/tests/simulated/card.rs"]
pub(crate) mod simulated;

use plimsoll_traces::trace::Trace;
use plimsoll_traces::{CacheShape, DemandRules, GeneratedRun, GeneratorCard, ModelShape};

/// The run of `data/traces`: thirty parts of 2048 tokens, two tokens decoded after each.
fn recorded(cache: CacheShape) -> Trace {
    let run = GeneratedRun {
        part: 2048,
        answer: 2,
        warm_up: true,
        ..GeneratedRun::prompt(DemandRules::Copying, cache, 61_440)
    };
    plimsoll_traces::generate(&ModelShape::M8, &run, &GeneratorCard::H200).unwrap()
}
