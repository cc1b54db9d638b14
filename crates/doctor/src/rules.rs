//! Finds evidence for each cause in the numbers and the known lines of a log.
//!
//! Each rule is a small unit that does not depend on other rules.

use super::cause::{Cause, SubCause};
use super::facts::{Facts, Quote};

/// The rules of an area: functions of this name, each with the source of its knowledge.
macro_rules! rules {
    ($($name:ident: $source:expr;)*) => {
        pub(super) const RULES: &[super::DiagnosisRule] = &[
            $(super::DiagnosisRule { name: stringify!($name), source: $source, test: $name },)*
        ];
    };
}

mod benign;
mod card;
mod fault;
mod guard;
mod host;
mod leak;
mod lines;
mod neighbour;
mod pieces;
mod pinned;
mod placement;
mod room;
mod torch;
mod unified;
mod vllm;

// DECISION: weights are added per cause as log odds (in nats). One decisive rule gives a confidence of 0.99.
/// Strength of a finding, in nats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum EvidenceWeight {
    /// Hardly anything else prints or adds up to this.
    Decisive,
    /// Usually so.
    Strong,
    /// More likely than not.
    Fair,
    /// Worth a word.
    Weak,
    /// Alone, it makes the cause a guess; with another of its kind, it decides nothing.
    Hint,
}

impl EvidenceWeight {
    fn named(name: &str) -> Option<Self> {
        let all = [Self::Decisive, Self::Strong, Self::Fair, Self::Weak, Self::Hint];
        all.into_iter().find(|weight| format!("{weight:?}") == name)
    }

    pub(super) const fn nats(self) -> f64 {
        match self {
            // exp(7) against exp(1.5) for `none of these` is 0.996, and 4.5 nats give 0.95, 2.6 nats 0.75,
            // 1.2 nats 0.43 and 0.7 nats 0.31. `diagnosis.rs: TELLING` lies just below the last.
            Self::Decisive => 7.0,
            Self::Strong => 4.5,
            Self::Fair => 2.6,
            Self::Weak => 1.2,
            Self::Hint => 0.7,
        }
    }
}

/// Result of a rule that matches.
#[derive(Clone, Debug)]
pub(super) struct RuleFinding {
    pub(super) cause: Cause,
    pub(super) sub_cause: Option<SubCause>,
    pub(super) weight: EvidenceWeight,
    /// The finding in a sentence, with its numbers.
    pub(super) text: String,
    pub(super) quotes: Vec<Quote>,
    /// The finding rests on names or on a log's silence, not on a printed refusal: it alone is never sure.
    pub(super) is_indirect: bool,
}

impl RuleFinding {
    pub(super) fn new(
        cause: Cause,
        weight: EvidenceWeight,
        text: impl Into<String>,
        quotes: impl IntoIterator<Item = Quote>,
    ) -> Self {
        Self {
            cause,
            sub_cause: None,
            weight,
            text: text.into(),
            quotes: quotes.into_iter().collect(),
            is_indirect: false,
        }
    }

    /// Another possible meaning of the same lines leaves the cause likely, and no more.
    pub(super) fn proven_if(mut self, is_shown: bool) -> Self {
        self.is_indirect |= !is_shown;
        self
    }

    pub(super) fn by(mut self, sub_cause: impl Into<Option<SubCause>>) -> Self {
        self.sub_cause = sub_cause.into();
        self
    }
}

/// A rule and the source that justifies it.
struct DiagnosisRule {
    name: &'static str,
    source: &'static str,
    test: fn(&Facts) -> Option<RuleFinding>,
}

/// Finding of a rule in a log.
pub(super) struct RuleHit {
    pub(super) name: &'static str,
    pub(super) source: &'static str,
    pub(super) finding: RuleFinding,
}

impl DiagnosisRule {
    fn hit(&self, facts: &Facts) -> Option<RuleHit> {
        Some(RuleHit { name: self.name, source: self.source, finding: (self.test)(facts)? })
    }
}

/// Finding where no other rule names a cause.
pub(super) fn unexplained(facts: &Facts) -> Option<RuleHit> {
    let source = "CUDACHECK of NCCL, Metal and Level Zero print the error without a size";
    DiagnosisRule { name: "unexplained", source, test: room::unexplained }.hit(facts)
}

/// Findings of all rules, by area.
pub(super) fn hits(facts: &Facts) -> impl Iterator<Item = RuleHit> {
    // The order is that of the reasons in the output, not of their weight.
    let areas = [
        room::RULES,
        card::RULES,
        torch::RULES,
        pieces::RULES,
        vllm::RULES,
        unified::RULES,
        pinned::RULES,
        neighbour::RULES,
        placement::RULES,
        fault::RULES,
        guard::RULES,
        leak::RULES,
        host::RULES,
        benign::RULES,
    ];
    areas.into_iter().flatten().filter_map(|rule| rule.hit(facts)).chain(lines::hits(facts))
}
