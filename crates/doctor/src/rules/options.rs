//! Rules for a refusal of which the log shows neither purpose nor stage: a large micro-batch.

use super::EvidenceWeight::Fair;
use super::RuleFinding;
use super::card::requested;
use crate::cause::Cause;
use crate::facts::{Facts, LoadStage, MemoryPlace, Purpose};

rules! {
    large_micro_batch: "compute buffers of llama-context.cpp grow with -ub, which is 512 by default";
}

fn large_micro_batch(facts: &Facts) -> Option<RuleFinding> {
    let refusal = facts.refusal()?;
    let is_unnamed =
        refusal.purpose == Purpose::Unknown && refusal.place == MemoryPlace::Card && !refusal.at_run_time;
    let is_unstaged = refusal.stage == LoadStage::Unknown && !facts.is_unified();
    let tokens = facts.options.micro_batch.filter(|tokens| *tokens >= 2048 && is_unnamed && is_unstaged)?;
    let text = format!("{} while the micro-batch was {tokens} tokens", requested(refusal));
    Some(RuleFinding::new(Cause::ComputeBufferTooLarge, Fair, text, [refusal.quote.clone()]))
}
