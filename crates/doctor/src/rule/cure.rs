//! What is told to have helped, and what the names say in numbers: the last resort where no program says what the memory was for.

use super::Weight::{Fair, Weak};
use super::card::asked;
use super::{Finding, Rule};
use crate::cause::Cause;
use crate::evidence::{Evidence, Place, Purpose, Refusal, Stage, is_arena};
use crate::saying::Saying;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "less_context_helped",
        source: "the report's own words",
        test: |evidence| {
            cured(
                evidence,
                Saying::CuredByContext,
                Cause::KvCacheTooLarge,
                "a smaller context",
            )
        },
    },
    Rule {
        name: "less_at_once_helped",
        source: "the report's own words",
        test: |evidence| {
            cured(
                evidence,
                Saying::CuredByBatch,
                Cause::ComputeBufferTooLarge,
                "less at once",
            )
        },
    },
    Rule {
        name: "less_model_helped",
        source: "the report's own words",
        test: |evidence| {
            cured(
                evidence,
                Saying::CuredByModel,
                Cause::ModelTooLarge,
                "less of the model on the card",
            )
        },
    },
    Rule {
        name: "weights_beyond_cards",
        source: "arithmetic: size of the model's file, or parameters times bits, against the cards",
        test: weights_beyond_cards,
    },
    Rule {
        name: "weights_fill_card",
        source: "arithmetic: the weights that were placed against the card",
        test: weights_fill_card,
    },
    Rule {
        name: "beyond_weights",
        source: "arithmetic: one request against all weights of the model that is named",
        test: beyond_weights,
    },
    Rule {
        name: "large_context",
        source: "arithmetic: the KV cache grows with the tokens of the context, 4096 to 32768 are usual",
        test: large_context,
    },
    Rule {
        name: "large_micro_batch",
        source: "llama-context.cpp: the buffers of the computation grow with -ub, 512 without it",
        test: large_micro_batch,
    },
    Rule {
        name: "first_that_is_loaded",
        source: "order of every engine: weights come first, and are the most",
        test: first_that_is_loaded,
    },
];

/// No program says what the memory was for.
fn is_unnamed(evidence: &Evidence) -> bool {
    let named = evidence
        .refusal()
        .is_some_and(|refusal| refusal.purpose != Purpose::Unknown);
    !named && evidence.frame.is_none() && evidence.startup.is_none() && !evidence.is_unified()
}

fn cured(evidence: &Evidence, saying: Saying, cause: Cause, what: &str) -> Option<Finding> {
    let told = evidence.quote(saying).filter(|_| is_unnamed(evidence))?;
    let weight = if evidence.ran_out() { Fair } else { Weak };
    Some(
        Finding::new(
            cause,
            weight,
            format!("{what} is told to have helped"),
            vec![told],
        )
        .told(),
    )
}

fn weights_beyond_cards(evidence: &Evidence) -> Option<Finding> {
    let (weights, cards) = evidence
        .weights_beyond_cards()
        .filter(|_| is_unnamed(evidence) && evidence.ran_out() && evidence.stage != Stage::Serving)
        .filter(|_| !evidence.says(Saying::GrowsWithDepth))?;
    let text = format!("weights of {weights} on {cards}");
    let quote = evidence.refusal().map(|refusal| refusal.quote.clone());
    let quote = quote.or_else(|| evidence.quote(Saying::OutOfMemory));
    Some(Finding::new(Cause::ModelTooLarge, Fair, text, quote.into_iter().collect()).told())
}

/// No line says which request was refused, but what was placed before it fills a card.
fn weights_fill_card(evidence: &Evidence) -> Option<Finding> {
    if evidence.refusal().is_some_and(|refusal| refusal.asked.is_some())
        || !is_unnamed(evidence)
        || !evidence.ran_out()
    {
        return None;
    }
    let weights = evidence
        .buffers
        .iter()
        .filter(|buffer| buffer.on_card && buffer.purpose == Purpose::Weights);
    let largest = weights.map(|buffer| buffer.size).max()?;
    let card = evidence.card().or(evidence.named_cards)?;
    let text = format!("{largest} of a card of {card} were taken by weights");
    (largest.scaled(10, 9) >= card && evidence.stage < Stage::Serving).then(|| {
        Finding::new(
            Cause::ModelTooLarge,
            Fair,
            text,
            evidence.quotes(&[Saying::WeightsSize, Saying::OutOfMemory]),
        )
    })
}

/// One request of more than the whole model is for the computation.
fn beyond_weights(evidence: &Evidence) -> Option<Finding> {
    let refusal = evidence.refusal().filter(|_| is_unnamed(evidence))?;
    let (asked, weights) = (refusal.asked?, evidence.weights()?);
    let text = format!("{asked} were asked at once, and all weights are {weights}");
    (asked >= weights.scaled(3, 2)).then(|| {
        Finding::new(
            Cause::ComputeBufferTooLarge,
            Fair,
            text,
            vec![refusal.quote.clone()],
        )
    })
}

fn large_context(evidence: &Evidence) -> Option<Finding> {
    let faults = [
        Saying::CardFault,
        Saying::IllegalAccess,
        Saying::DriverFault,
        Saying::ProgramFault,
    ];
    let died = evidence.says(Saying::Died) && !evidence.says_any(&faults);
    let died = is_unnamed(evidence) && (evidence.ran_out() || died);
    let tokens = evidence
        .context_tokens
        .filter(|tokens| *tokens >= 65_536 && died)?;
    let at_work = evidence.refusal().is_some_and(|refusal| refusal.at_run_time);
    // The cache stood when more was refused.
    let stood = evidence
        .refusal()
        .is_some_and(|refusal| refusal.stage > Stage::Context);
    let weight = if at_work || stood || evidence.torch.is_some() {
        Weak
    } else {
        Fair
    };
    let text = format!("a context of {tokens} tokens was asked for");
    Some(Finding::new(
        Cause::KvCacheTooLarge,
        weight,
        text,
        evidence.quotes(&[Saying::ContextTokens]),
    ))
}

/// The card refused, and nobody says what for.
fn unstaged(evidence: &Evidence) -> Option<&Refusal> {
    let refusal = evidence.refusal()?;
    let unnamed = refusal.purpose == Purpose::Unknown && refusal.place == Place::Card && !refusal.at_run_time;
    (unnamed && refusal.stage == Stage::Unknown && !evidence.is_unified()).then_some(refusal)
}

fn large_micro_batch(evidence: &Evidence) -> Option<Finding> {
    let refusal = unstaged(evidence)?;
    let tokens = evidence.micro_batch.filter(|tokens| *tokens >= 2048)?;
    let text = format!("{} with micro-batches of {tokens} tokens", asked(refusal));
    Some(Finding::new(
        Cause::ComputeBufferTooLarge,
        Fair,
        text,
        vec![refusal.quote.clone()],
    ))
}

fn first_that_is_loaded(evidence: &Evidence) -> Option<Finding> {
    let arena = |refusal: &Refusal| matches!((refusal.asked, evidence.card()), (Some(asked), Some(card)) if is_arena(asked, card));
    let refusal = unstaged(evidence).filter(|refusal| evidence.buffers.is_empty() && !arena(refusal))?;
    let text = format!(
        "{} before any other line says how far it had come",
        asked(refusal)
    );
    Some(Finding::new(
        Cause::ModelTooLarge,
        Weak,
        text,
        vec![refusal.quote.clone()],
    ))
}
