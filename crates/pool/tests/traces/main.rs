//! Traces: made, read and replayed, against what a card was seen to do and what others have published.
#![allow(clippy::unwrap_used)]

mod generate;
mod hostile;
mod replay;
#[path = "../simulated/card.rs"]
mod simulated;

use plimsoll_pool::generate::{Cache, Card, Engine, Run, Shape};
use plimsoll_pool::trace::Trace;

/// The run of `data/traces`: thirty parts of 2048 tokens, two tokens decoded after each.
fn recorded(cache: Cache) -> Trace {
    let run = Run {
        part: 2048,
        answer: 2,
        warm_up: true,
        ..Run::prompt(Engine::Copying, cache, 61_440)
    };
    plimsoll_pool::generate::generate(&Shape::M8, &run, &Card::H200).unwrap()
}
