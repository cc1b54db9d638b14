//! Rules based on options and model names: a large context or micro-batch, weights larger than the cards.
//!
//! They apply only if the log does not name the purpose of the refused memory.

use super::EvidenceWeight::{Fair, Weak};
use super::RuleFinding;
use super::card::requested;
use crate::cause::Cause;
use crate::facts::{Facts, FailedAllocation, LoadStage, MemoryPlace, Purpose, is_arena};
use crate::pattern::Pattern;

rules! {
    weights_beyond_cards: "judged from the sizes: the model file, or the number of parameters times their \
        bits, exceeds the memory of the cards";
    weights_fill_card: "judged from the sizes: the allocated weights fill most of the card";
    beyond_weights: "judged from the sizes: the refused request exceeds the size of all weights";
    large_context: "the KV cache grows with the context; 4096 to 32768 tokens are usual";
    large_micro_batch: "compute buffers of llama-context.cpp grow with -ub, which is 512 by default";
    first_that_is_loaded: "every engine loads the weights first, and they are the largest part";
}

/// No program names the purpose of the memory.
fn is_unnamed(facts: &Facts) -> bool {
    let named = facts.refusal().is_some_and(|refusal| refusal.purpose != Purpose::Unknown);
    !named && facts.frame.is_none() && facts.startup.is_none() && !facts.is_unified()
}

fn weights_beyond_cards(facts: &Facts) -> Option<RuleFinding> {
    let speaks = is_unnamed(facts) && facts.ran_out() && facts.progress.stage != LoadStage::Serving;
    let (weights, cards) = facts.weights_beyond_cards().filter(|_| speaks)?;
    let text = format!("the weights take {weights}, but the cards have {cards}");
    let quote = facts.refusal().map(|refusal| refusal.quote.clone());
    let quote = quote.or_else(|| facts.quote(Pattern::OutOfMemory));
    Some(RuleFinding::new(Cause::ModelTooLarge, Fair, text, quote).indirect())
}

/// The refused request has no size, but the placed weights fill a card.
fn weights_fill_card(facts: &Facts) -> Option<RuleFinding> {
    let sized = facts.refusal().is_some_and(|refusal| refusal.asked.is_some());
    if sized || !is_unnamed(facts) || !facts.ran_out() || facts.progress.stage == LoadStage::Serving {
        return None;
    }
    let weights = facts.buffers.iter().filter(|buffer| buffer.on_card && buffer.purpose == Purpose::Weights);
    let largest = weights.map(|buffer| buffer.size).max()?;
    let card = facts.card().or(facts.model.named_cards)?;
    let text = format!("the weights take {largest} of the card's {card}");
    let quotes = facts.quotes(&[Pattern::WeightsSize, Pattern::OutOfMemory]);
    // Cache and compute buffers rarely fit into the last tenth.
    (largest.scaled(10, 9) >= card).then(|| RuleFinding::new(Cause::ModelTooLarge, Fair, text, quotes))
}

/// One request above the size of the whole model is for the computation.
fn beyond_weights(facts: &Facts) -> Option<RuleFinding> {
    let refusal = facts.refusal().filter(|_| is_unnamed(facts))?;
    let (asked, weights) = (refusal.asked?, facts.weights()?);
    let text = format!("{asked} were requested at once, but all weights together take {weights}");
    // Names round the size of a model, by less than a half.
    (asked >= weights.scaled(3, 2))
        .then(|| RuleFinding::new(Cause::ComputeBufferTooLarge, Fair, text, [refusal.quote.clone()]))
}

fn large_context(facts: &Facts) -> Option<RuleFinding> {
    let faults = [Pattern::CardFault, Pattern::IllegalAccess, Pattern::DriverFault, Pattern::ProgramFault];
    // A crash with a driver's error has its reason there.
    let died = facts.says(Pattern::Died) && !facts.says_any(&faults);
    let speaks = is_unnamed(facts) && (facts.ran_out() || died);
    let tokens = facts.options.context_tokens.filter(|tokens| *tokens >= 65_536 && speaks)?;
    let at_work = facts.refusal().is_some_and(|refusal| refusal.at_run_time);
    // The cache was already placed when more was refused.
    let placed = facts.refusal().is_some_and(|refusal| refusal.stage > LoadStage::Context);
    let weight = if at_work || placed || facts.torch.is_some() { Weak } else { Fair };
    let text = format!("the context has {tokens} tokens");
    Some(RuleFinding::new(Cause::KvCacheTooLarge, weight, text, facts.quotes(&[Pattern::ContextTokens])))
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
