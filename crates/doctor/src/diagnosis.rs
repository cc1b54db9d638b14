//! Result of diagnosing a log or a report: one cause with its confidence, alternatives, evidence and
//! remedies.
//!
//! The rules' findings are added up for each cause. If no cause is likely enough, the cause is `other`.

use std::collections::BTreeMap;

use plimsoll_base::{Hint, Order, Reason};
use serde::Serialize;

use super::candidate::{self, DiagnosisCandidate, MOST_INDIRECT, TELLING, percent};
use super::cause::{Cause, SubCause};
use super::classifier::{ClassifierMatch, TextClassifier};
use super::ensemble::combine;
use super::facts::{Facts, LoadStage, Quote};
use super::healthy::{is_bare, is_healthy, is_of_machine};
use super::pattern::Pattern;
use super::remedy;
use super::rules::{self, EvidenceWeight, RuleFinding, RuleHit};

// DECISION: findings are added as log odds for each cause, and `none of these` has a fixed weight.
/// The weight of `none of these`, in nats.
const NONE: f64 = 1.5;
/// A verdict below this is called a guess.
const LIKELY: f64 = 0.4;
/// Nothing is certain.
const MOST_SURE: f64 = 0.99;
const MOST_ALSO: usize = 3;
const MOST_QUOTES: usize = 8;

/// The most likely cause with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "schema", rename = "plimsoll.diagnosis/1")]
pub struct Diagnosis {
    pub cause: Cause,
    pub sub_cause: Option<SubCause>,
    #[serde(serialize_with = "candidate::in_thousandths")]
    pub confidence: f64,
    pub evidence: Vec<Quote>,
    /// Other causes, the likeliest first.
    pub also: Vec<DiagnosisCandidate>,
    pub hints: Vec<Hint>,
    pub reason: Reason,
}

impl Diagnosis {
    /// The verdict and its remedies without the lines, for a tree that has the lines; `None` if no cause
    /// is named.
    pub fn brief(&self) -> Option<Reason> {
        let verdict =
            DiagnosisCandidate { cause: self.cause, sub_cause: self.sub_cause, confidence: self.confidence };
        let hints = self.hints.iter().map(|hint| Reason::new("hint", format!("hint: {hint}")));
        let named = self.confidence >= LIKELY && self.cause != Cause::NotOom;
        named.then(|| summary(&verdict).because_all(hints))
    }
}

/// Weighs the facts by rules and by the text classifier.
pub fn diagnose(facts: &Facts) -> Diagnosis {
    judged(facts, true)
}

/// Weighs the facts by rules alone.
pub(super) fn by_rules(facts: &Facts) -> Diagnosis {
    judged(facts, false)
}

fn judged(facts: &Facts, reads_text: bool) -> Diagnosis {
    let speaks = |hit: &RuleHit| !is_of_prose(&hit.finding, facts);
    let mut found: Vec<RuleHit> =
        rules::hits(facts).filter(|hit| speaks(hit) && !facts.rules_out(hit.finding.cause)).collect();
    // Rules run on every call: there are some 80, and each is a few comparisons.
    let mut candidates = weigh(found.iter().map(|hit| &hit.finding));
    let by_text = classified(facts, &candidates)
        .filter(|_| reads_text)
        .filter(|text| combine(&mut candidates, text, facts));
    let named = candidates
        .first()
        .copied()
        .filter(|first| first.cause != Cause::Other || first.sub_cause.is_some() && by_text.is_none())
        .filter(|first| first.confidence >= TELLING || by_text.is_some());
    let rest = rules::unexplained(facts).filter(|rest| named.is_none() && speaks(rest));
    let named = named.or_else(|| weigh(rest.iter().map(|rest| &rest.finding)).first().copied());
    found.extend(rest);
    // `other` by a rule names a mechanism, such as a refused reservation of addresses. Without a named cause
    // it only says that nothing is known, so its confidence is zero.
    let verdict =
        named.unwrap_or(DiagnosisCandidate { cause: Cause::Other, sub_cause: None, confidence: 0.0 });
    // A hundredth is below what the output prints as a whole percent.
    let others = candidates.iter().filter(|other| other.cause != verdict.cause && other.confidence >= 0.01);
    let also: Vec<DiagnosisCandidate> = others.copied().take(MOST_ALSO).collect();
    let speaking = found.iter().filter(|hit| named.is_some() && hit.finding.cause == verdict.cause);
    let by_rule = speaking.flat_map(|hit| hit.finding.quotes.clone());
    let by_text = by_text.filter(|_| named.is_some()).map(|text| ClassifierMatch::of(&text, verdict.cause));
    let by_word = by_text.iter().flat_map(|text| text.quotes.clone());
    Diagnosis {
        cause: verdict.named(),
        sub_cause: verdict.sub_cause,
        confidence: verdict.confidence,
        evidence: first_unique_quotes(by_rule.chain(by_word)),
        hints: remedy::hints(verdict.cause, verdict.sub_cause, facts),
        reason: reason(&verdict, &also, &found, by_text.as_ref())
            .because_all(later_start(&verdict, &found, facts)),
        also,
    }
}

/// True for a finding that rests on the sentences of a document alone.
fn is_of_prose(finding: &RuleFinding, facts: &Facts) -> bool {
    !finding.quotes.is_empty() && finding.quotes.iter().all(|quote| facts.is_prose(quote))
}

/// The classifier's opinion, where the log is a report. Guard's page is beyond doubt. A healthy server's log
/// without a finding is no report, and neither is that of a machine or of a program without a failure.
fn classified<'a>(facts: &'a Facts, candidates: &[DiagnosisCandidate]) -> Option<TextClassifier<'a>> {
    let at_work = candidates.is_empty() && facts.progress.stage == LoadStage::Serving && !facts.ran_out();
    let is_healthy = is_of_machine(&facts.report) || candidates.is_empty() && is_healthy(&facts.report);
    let is_report = facts.guard.is_none() && !at_work && !is_healthy && !is_bare(facts);
    is_report.then(|| TextClassifier::of(&facts.report, facts)).flatten()
}

fn first_unique_quotes(quotes: impl Iterator<Item = Quote>) -> Vec<Quote> {
    let mut first: Vec<Quote> = Vec::new();
    for quote in quotes {
        if first.len() < MOST_QUOTES && !first.contains(&quote) {
            first.push(quote);
        }
    }
    first
}

/// Adds the weights of each cause and shares out the whole, the likeliest first.
fn weigh<'a>(found: impl Iterator<Item = &'a RuleFinding>) -> Vec<DiagnosisCandidate> {
    let mut tallies: BTreeMap<Cause, CauseTally> = BTreeMap::new();
    for finding in found {
        tallies.entry(finding.cause).or_default().add(finding);
    }
    // Softmax over the sums, with `none of these` as one more class.
    let whole = libm::exp(NONE) + tallies.values().map(|tally| libm::exp(tally.sum)).sum::<f64>();
    let mut candidates: Vec<DiagnosisCandidate> = tallies
        .into_iter()
        .map(|(cause, tally)| DiagnosisCandidate {
            cause,
            sub_cause: tally.sub_cause,
            confidence: (libm::exp(tally.sum) / whole).min(tally.most()),
        })
        .collect();
    // The map iterates in the order of the causes, so equal confidences keep a fixed order.
    candidates.order_by(|a, b| b.confidence.total_cmp(&a.confidence));
    candidates
}

/// Sum of the findings for one cause.
#[derive(Default)]
struct CauseTally {
    sum: f64,
    /// One of the findings is a proof: several that usually hold make none.
    is_proven: bool,
    strongest: f64,
    sub_cause: Option<SubCause>,
}

impl CauseTally {
    fn add(&mut self, finding: &RuleFinding) {
        let weight = finding.weight.nats();
        self.sum += weight;
        self.is_proven |= !finding.is_indirect && weight >= EvidenceWeight::Strong.nats();
        // The strongest finding names the mechanism.
        if weight > self.strongest || self.sub_cause.is_none() {
            self.strongest = weight;
            self.sub_cause = finding.sub_cause.or(self.sub_cause);
        }
    }

    fn most(&self) -> f64 {
        if self.is_proven { MOST_SURE } else { MOST_INDIRECT }
    }
}

fn reason(
    verdict: &DiagnosisCandidate,
    also: &[DiagnosisCandidate],
    found: &[RuleHit],
    by_text: Option<&ClassifierMatch>,
) -> Reason {
    let speaking = found.iter().filter(|hit| hit.finding.cause == verdict.cause);
    let reasons = speaking.map(|RuleHit { name, source, finding }| {
        // The JSON has all quotes under `evidence`; the tree is for reading.
        let quotes = first_unique_quotes(finding.quotes.iter().cloned()).into_iter().take(3);
        Reason::new("rule", finding.text.clone())
            .fact("rule", *name)
            .fact("source", *source)
            .because_all(quotes.map(|quote| Reason::new("line", quote.placed())))
    });
    let others = also.iter().map(|other| {
        let text = format!(
            "another possible cause is {}: {} (confidence {})",
            other.named(),
            other.words(),
            percent(other.confidence)
        );
        Reason::new("also", text).fact("cause", other.named().code())
    });
    summary(verdict)
        .because_all(reasons)
        .because_all(by_text.map(ClassifierMatch::reason))
        .because_all(others)
}

/// A load after the last line of the evidence that came to serve requests: the failure is past.
fn later_start(verdict: &DiagnosisCandidate, found: &[RuleHit], facts: &Facts) -> Option<Reason> {
    let speaking = found.iter().filter(|hit| hit.finding.cause == verdict.cause);
    let last = speaking.flat_map(|hit| &hit.finding.quotes).max_by_key(|quote| quote.line)?;
    let load = &facts.seen(Pattern::NewAttempt)?.last;
    let serves = &facts.seen(Pattern::Serves)?.last;
    let is_later = |one: &Quote, other: &Quote| one.origin == other.origin && one.line > other.line;
    let text = "a later start in this log succeeded, so this failure is past";
    (is_later(load, last) && is_later(serves, load))
        .then(|| Reason::new("later_start", text).because(Reason::new("line", serves.placed())))
}

fn summary(verdict: &DiagnosisCandidate) -> Reason {
    let reason = Reason::new("diagnosis", headline(verdict))
        .fact("cause", verdict.named().code())
        .fact("confidence", percent(verdict.confidence));
    match verdict.sub_cause {
        Some(sub_cause) => reason.fact("sub_cause", sub_cause.code()),
        None => reason,
    }
}

fn headline(verdict: &DiagnosisCandidate) -> String {
    // The bounds are those of `brief`, so that a verdict in a death's reason never reads `perhaps`.
    let how = match verdict.confidence {
        sure if sure >= 0.8 => "",
        likely if likely >= LIKELY => ", most likely",
        guess if guess > 0.0 => ", perhaps",
        _ => return Cause::Other.words().to_owned(),
    };
    let (cause, words) = (verdict.named(), verdict.words());
    format!("{cause}{how}: {words} ({})", percent(verdict.confidence))
}
