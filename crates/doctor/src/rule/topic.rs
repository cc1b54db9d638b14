//! What a report is about, where nothing says what it is: ideas that stand together in it.
//!
//! DECISION: a topic weighs less than the fixed weight of `none of these`. Alone it is called a guess, and two that disagree name nothing.

use super::Weight::Hint;
use super::{Finding, Rule};
use crate::cause::Cause;
use crate::evidence::{Evidence, Idea, Quote};
use crate::saying::Saying;

const WORDS: &str = "the report's own words";

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "about_others",
        source: WORDS,
        test: about_others,
    },
    Rule {
        name: "about_growth",
        source: WORDS,
        test: about_growth,
    },
    Rule {
        name: "about_pieces",
        source: WORDS,
        test: about_pieces,
    },
    Rule {
        name: "about_a_broken_card",
        source: WORDS,
        test: about_a_broken_card,
    },
    Rule {
        name: "about_slowness",
        source: WORDS,
        test: about_slowness,
    },
    Rule {
        name: "about_a_build",
        source: WORDS,
        test: about_a_build,
    },
    Rule {
        name: "about_use",
        source: WORDS,
        test: about_use,
    },
    Rule {
        name: "about_size",
        source: WORDS,
        test: about_size,
    },
];

fn hint(evidence: &Evidence, cause: Cause, ideas: &[Idea], text: &str) -> Option<Finding> {
    let quotes: Vec<Quote> = ideas
        .iter()
        .filter_map(|idea| evidence.ideas.get(idea).cloned())
        .collect();
    (quotes.len() == ideas.len()).then(|| Finding::new(cause, Hint, text, quotes).told())
}

fn about_others(evidence: &Evidence) -> Option<Finding> {
    let ideas = [Idea::Others, Idea::Holds];
    let stray = evidence.says_any(&[Saying::StrayContext, Saying::CardsSetApart]);
    let speaks = evidence.startup.is_none() && !evidence.is_unified() && !stray;
    hint(
        evidence,
        Cause::ForeignProcess,
        &ideas,
        "it is about others on the card",
    )
    .filter(|_| speaks)
}

fn about_growth(evidence: &Evidence) -> Option<Finding> {
    let ideas = [Idea::Grows, Idea::Rounds];
    hint(
        evidence,
        Cause::Leak,
        &ideas,
        "it is about memory that grows or stays, again and again",
    )
}

fn about_pieces(evidence: &Evidence) -> Option<Finding> {
    let ideas = [Idea::Pieces, Idea::Reserved];
    let text = "it is about memory that is free in pieces";
    let speaks = !evidence.is_unified() && evidence.torch.is_none();
    hint(evidence, Cause::FragmentationCachingAllocator, &ideas, text).filter(|_| speaks)
}

fn about_a_broken_card(evidence: &Evidence) -> Option<Finding> {
    let ideas = [Idea::Breaks, Idea::Machine];
    let text = "it is about a card or a machine that stops working";
    hint(evidence, Cause::DriverOrHw, &ideas, text).filter(|_| !evidence.ran_out())
}

fn about_slowness(evidence: &Evidence) -> Option<Finding> {
    let ideas = [Idea::Slows, Idea::Spills];
    let text = "it is about slowness, and memory beyond the card";
    hint(evidence, Cause::UnifiedMemoryThrash, &ideas, text).filter(|_| !evidence.was_refused())
}

fn about_a_build(evidence: &Evidence) -> Option<Finding> {
    let ideas = [Idea::Builds, Idea::Fails];
    let text = "it is about a build or a version that does not fit";
    let broken = evidence.is_about(&[Idea::Breaks, Idea::Machine]);
    hint(evidence, Cause::NotOom, &ideas, text).filter(|_| !evidence.ran_out() && !broken)
}

fn about_use(evidence: &Evidence) -> Option<Finding> {
    let ideas = [Idea::Asks, Idea::Uses];
    let text = "it asks why so much is in use, and nothing failed";
    let troubled = evidence.ran_out() || evidence.says_any(&[Saying::Died, Saying::Leaks]);
    hint(evidence, Cause::NotOom, &ideas, text).filter(|_| !troubled)
}

/// Of weights, tokens and computation, the one that alone is spoken of.
fn about_size(evidence: &Evidence) -> Option<Finding> {
    let sizes = [
        (Idea::Weights, Cause::ModelTooLarge, "the weights"),
        (Idea::Tokens, Cause::KvCacheTooLarge, "the context"),
        (Idea::Computes, Cause::ComputeBufferTooLarge, "the computation"),
    ];
    let mut spoken = sizes.iter().filter(|(idea, ..)| evidence.is_about(&[*idea]));
    let (idea, cause, what) = spoken.next()?;
    let alone = spoken.next().is_none() && evidence.ran_out() && !evidence.is_unified();
    hint(evidence, *cause, &[*idea], &format!("it is about {what}")).filter(|_| alone)
}
