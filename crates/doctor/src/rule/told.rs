//! What is too large, by the report's own words alone: a word, not a proof, and only where nothing was placed that could be measured.

use super::Weight::{Fair, Strong, Weak};
use super::{Finding, Rule};
use crate::cause::Cause;
use crate::evidence::{Evidence, Purpose};
use crate::saying::Saying;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "told_of_depth",
        source: "ggml-cuda's pool grows with the depth of a request; a quantised cache is converted there before b9400",
        test: told_of_depth,
    },
    Rule {
        name: "told_of_pool",
        source: "the report's own words",
        test: told_of_pool,
    },
    Rule {
        name: "told_of_model",
        source: "the report's own words",
        test: told_of_model,
    },
    Rule {
        name: "told_of_cache",
        source: "the report's own words",
        test: told_of_cache,
    },
    Rule {
        name: "told_of_computation",
        source: "the report's own words",
        test: told_of_computation,
    },
];

/// The report says in words what is too large: a word, not a proof.
fn told(evidence: &Evidence, cause: Cause, words: &[Saying], text: &str) -> Option<Finding> {
    let quotes = evidence.quotes(words);
    let weight = if quotes.len() > 1 && evidence.ran_out() {
        Fair
    } else {
        Weak
    };
    let fails = evidence.ran_out() || quotes.len() > 1;
    let speaks = fails && !quotes.is_empty() && evidence.buffers.is_empty();
    speaks.then(|| Finding::new(cause, weight, text, quotes).told())
}

/// What grows with the context, and not with the number of requests, is the pool.
fn told_of_depth(evidence: &Evidence) -> Option<Finding> {
    let depth = evidence.quote(Saying::GrowsWithDepth)?;
    let fails = evidence.says_any(&[
        Saying::Leaks,
        Saying::Grows,
        Saying::OutOfMemory,
        Saying::RuntimeRefused,
    ]);
    let named = evidence
        .refusal()
        .is_some_and(|refusal| !matches!(refusal.purpose, Purpose::Unknown | Purpose::Address));
    let kept = evidence.says_any(&[Saying::NotReleased, Saying::Leaks]) && evidence.says(Saying::EachRound);
    let weight = if evidence.says_any(&[Saying::Leaks, Saying::Grows]) && !kept {
        Strong
    } else {
        Fair
    };
    // A framework of Python has no pool that grows by itself; what it keeps for each token is its cache.
    let cause = match evidence.says(Saying::PastKeys) {
        true => Cause::KvCacheTooLarge,
        false => Cause::PoolGrowth,
    };
    let text = "it is told to come with the depth of the request, after the load";
    let trains = evidence.says(Saying::Trains);
    let speaks = fails && !named && !trains && evidence.torch.is_none() && !evidence.is_unified();
    speaks.then(|| Finding::new(cause, weight, text, vec![depth]).told())
}

/// The pool is named by what it keeps, and no refusal says more.
fn told_of_pool(evidence: &Evidence) -> Option<Finding> {
    let told = evidence.quote(Saying::InPool)?;
    let keeps = evidence.says_any(&[Saying::NotReleased, Saying::Grows, Saying::Leaks]);
    let speaks = keeps && evidence.refusals.is_empty() && evidence.torch.is_none();
    let text = "what is told to grow or to stay is the pool of the run time";
    speaks.then(|| Finding::new(Cause::PoolGrowth, Fair, text, vec![told]).told())
}

fn told_of_model(evidence: &Evidence) -> Option<Finding> {
    let words = [Saying::ModelTooBig, Saying::ModelToCard];
    told(
        evidence,
        Cause::ModelTooLarge,
        &words,
        "the size of the model is named",
    )
}

fn told_of_cache(evidence: &Evidence) -> Option<Finding> {
    let words = [Saying::LongContext, Saying::CacheWord, Saying::PastKeys];
    told(
        evidence,
        Cause::KvCacheTooLarge,
        &words,
        "the context and its cache are named",
    )
}

fn told_of_computation(evidence: &Evidence) -> Option<Finding> {
    // Who takes less at once in vain has the reason elsewhere.
    let words: &[Saying] = match evidence.says(Saying::LessDidNotHelp) {
        true => &[Saying::Activations],
        false => &[Saying::Activations, Saying::BigBatch, Saying::Trains],
    };
    told(
        evidence,
        Cause::ComputeBufferTooLarge,
        words,
        "the computation is named",
    )
}
