//! Rules for a refusal of which the log shows neither purpose nor stage: a large micro-batch, the first request.

use super::EvidenceWeight::{Fair, Weak};
use super::RuleFinding;
use super::card::requested;
use crate::cause::Cause;
use crate::facts::{Facts, FailedAllocation, LoadStage, MemoryPlace, Purpose, is_arena};

rules! {
    large_micro_batch: "compute buffers of llama-context.cpp grow with -ub, which is 512 by default";
    first_that_is_loaded: "every engine loads the weights first, and they are the largest part";
}

/// A refusal of the card in a log that shows neither purpose nor stage.
fn unstaged(facts: &Facts) -> Option<&FailedAllocation> {
    let refusal = facts.refusal()?;
    let unnamed =
        refusal.purpose == Purpose::Unknown && refusal.place == MemoryPlace::Card && !refusal.at_run_time;
    (unnamed && refusal.stage == LoadStage::Unknown && !facts.is_unified()).then_some(refusal)
}

fn large_micro_batch(facts: &Facts) -> Option<RuleFinding> {
    let refusal = unstaged(facts)?;
    let tokens = facts.options.micro_batch.filter(|tokens| *tokens >= 2048)?;
    let text = format!("{} while the micro-batch was {tokens} tokens", requested(refusal));
    Some(RuleFinding::new(Cause::ComputeBufferTooLarge, Fair, text, [refusal.quote.clone()]))
}

fn first_that_is_loaded(facts: &Facts) -> Option<RuleFinding> {
    let refusal = unstaged(facts).filter(|_| facts.buffers.is_empty())?;
    // A framework that takes the card as one arena asks before it knows the model.
    if matches!((refusal.asked, facts.card()), (Some(asked), Some(card)) if is_arena(asked, card)) {
        return None;
    }
    let text = format!("{} before the log shows any stage of the load", requested(refusal));
    Some(RuleFinding::new(Cause::ModelTooLarge, Weak, text, [refusal.quote.clone()]))
}
