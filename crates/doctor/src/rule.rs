//! Rules: from evidence to what it speaks for.
//!
//! DECISION: a rule is a small named unit: what must be seen, what it speaks for, how strongly, from which source it is known. Rules
//! do not know each other. Their weights are added per cause, as odds are (in nats), against one fixed weight for `none of these`;
//! the share of a cause in the whole is its confidence. So one decisive rule stands at 0.99, two that disagree stand at a
//! half each. What only people say of it never gets to 0.8, however often they say it: see `MOST_TOLD` in `diagnosis.rs`.

use super::cause::{Cause, SubCause};
use super::evidence::{Evidence, Quote};

mod benign;
mod card;
mod cure;
mod fault;
mod guard;
mod host;
mod leak;
mod managed;
mod neighbour;
mod pieces;
mod pinned;
mod placement;
mod told;
mod topic;
mod torch;
mod unified;
mod vllm;

/// How strongly a finding speaks, in nats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Weight {
    /// Hardly anything else prints or adds up to this.
    Decisive,
    /// Usually so.
    Strong,
    /// More likely than not.
    Fair,
    /// Worth a word.
    Weak,
    /// Alone it names a guess; beside another of its kind it names nothing.
    Hint,
}

impl Weight {
    pub(super) const fn nats(self) -> f64 {
        match self {
            Self::Decisive => 7.0,
            Self::Strong => 4.5,
            Self::Fair => 2.6,
            Self::Weak => 1.2,
            Self::Hint => 0.7,
        }
    }
}

/// What a rule found.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) cause: Cause,
    pub(super) sub_cause: Option<SubCause>,
    pub(super) weight: Weight,
    /// In a sentence, with the numbers.
    pub(super) text: String,
    pub(super) quotes: Vec<Quote>,
    /// Rests on what people say of it, not on what a program printed or on numbers.
    pub(super) is_told: bool,
}

impl Finding {
    pub(super) fn new(cause: Cause, weight: Weight, text: impl Into<String>, quotes: Vec<Quote>) -> Self {
        Self {
            cause,
            sub_cause: None,
            weight,
            text: text.into(),
            quotes,
            is_told: false,
        }
    }

    pub(super) fn told(mut self) -> Self {
        self.is_told = true;
        self
    }

    pub(super) fn by(mut self, sub_cause: impl Into<Option<SubCause>>) -> Self {
        self.sub_cause = sub_cause.into();
        self
    }
}

/// A rule and where its knowledge comes from.
pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) source: &'static str,
    pub(super) test: fn(&Evidence) -> Option<Finding>,
}

/// Every rule, by area.
pub(super) fn all() -> impl Iterator<Item = &'static Rule> {
    let areas: [&[Rule]; 17] = [
        card::RULES,
        told::RULES,
        cure::RULES,
        torch::RULES,
        pieces::RULES,
        vllm::RULES,
        unified::RULES,
        managed::RULES,
        pinned::RULES,
        neighbour::RULES,
        placement::RULES,
        fault::RULES,
        guard::RULES,
        leak::RULES,
        host::RULES,
        benign::RULES,
        topic::RULES,
    ];
    areas.into_iter().flatten()
}
