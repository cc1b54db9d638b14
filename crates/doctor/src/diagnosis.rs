//! The verdict over evidence: one cause, how sure, what else it may be, what proves it, what helps.
//!
//! DECISION: rules speak, this only adds. Weights of one cause are added as odds are; `none of these` has a fixed weight of its own, so that little
//! evidence gives little confidence. Below [`TELLING`] the cause is `other` and the likeliest stands under `also`: a guess is
//! not dressed as a verdict. Where rules see little, what the words are like decides ([`Likeness`]).

use std::collections::BTreeMap;

use plimsoll_base::{Hint, Reason};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::cause::{Cause, SubCause};
use super::evidence::{Evidence, Quote, Stage};
use super::likeness::{Alike, Likeness};
use super::opinions::heard;
use super::remedy;
use super::rule::{self, Finding, Weight};

pub const SCHEMA: &str = "plimsoll.diagnosis/1";
/// The weight of `none of these`, in nats.
const NONE: f64 = 1.5;
/// A cause below this is not named, and below [`LIKELY`] it is called a guess.
pub(super) const TELLING: f64 = 0.28;
const LIKELY: f64 = 0.4;
/// Nothing is certain.
const MOST_SURE: f64 = 0.99;
/// What people say is a reading of theirs, and no proof.
pub(super) const MOST_TOLD: f64 = 0.79;
const MOST_ALSO: usize = 3;
const MOST_QUOTES: usize = 8;

/// A cause that was considered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub cause: Cause,
    pub sub_cause: Option<SubCause>,
    pub confidence: f64,
}

/// What is the matter, as far as the evidence goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    pub cause: Cause,
    pub sub_cause: Option<SubCause>,
    pub confidence: f64,
    pub evidence: Vec<Quote>,
    /// What else it may be, the likeliest first.
    pub also: Vec<Candidate>,
    pub hints: Vec<Hint>,
    pub reason: Reason,
}

impl Diagnosis {
    /// The verdict and its remedies without the lines, for a tree that has them; `None` where nothing is named.
    pub fn brief(&self) -> Option<Reason> {
        let verdict = Candidate {
            cause: self.cause,
            sub_cause: self.sub_cause,
            confidence: self.confidence,
        };
        let hints = self
            .hints
            .iter()
            .map(|hint| Reason::new("hint", format!("hint: {hint}")));
        let named = self.confidence >= LIKELY && self.cause != Cause::NotOom;
        named.then(|| summary(&verdict).because_all(hints))
    }
}

/// Weighs the evidence, and what the report's words are like.
pub fn diagnose(evidence: &Evidence) -> Diagnosis {
    judged(evidence, true)
}

/// Weighs the evidence by rules alone.
pub(super) fn by_rules(evidence: &Evidence) -> Diagnosis {
    judged(evidence, false)
}

fn judged(evidence: &Evidence, hears_words: bool) -> Diagnosis {
    let found: Vec<(&str, &str, Finding)> = rule::all()
        .filter_map(|rule| Some((rule.name, rule.source, (rule.test)(evidence)?)))
        .collect();
    let mut candidates = weigh(found.iter().map(|(_, _, finding)| finding));
    // a refusal on guard's page is beyond doubt, and a log of a server at work of which no rule speaks is like any other
    let is_at_work = candidates.is_empty() && evidence.stage == Stage::Serving;
    let hears_words = hears_words && evidence.guard.is_none() && !is_at_work;
    let likeness = hears_words.then(|| Likeness::of(&evidence.report)).flatten();
    let by_words = likeness.filter(|likeness| heard(&mut candidates, likeness, evidence));
    let named = candidates
        .first()
        .copied()
        .filter(|first| first.cause != Cause::Other || by_words.is_none())
        .filter(|first| first.confidence >= TELLING || by_words.is_some());
    let verdict = named.unwrap_or(Candidate {
        cause: Cause::Other,
        sub_cause: None,
        confidence: 0.0,
    });
    let by_words = by_words.filter(|_| named.is_some());
    let also = candidates
        .iter()
        .filter(|other| other.cause != verdict.cause)
        .copied();
    let also: Vec<Candidate> = also
        .filter(|other| other.confidence >= 0.01)
        .take(MOST_ALSO)
        .collect();
    let speaking = found
        .iter()
        .filter(|(_, _, finding)| named.is_some() && finding.cause == verdict.cause);
    let by_rule = speaking.flat_map(|(_, _, finding)| finding.quotes.clone());
    let alike = by_words.map(|likeness| Alike::of(&likeness, verdict.cause));
    let by_word = alike.iter().flat_map(|alike| alike.quotes.clone());
    Diagnosis {
        cause: verdict.cause,
        sub_cause: verdict.sub_cause,
        confidence: verdict.confidence,
        evidence: some(by_rule.chain(by_word)),
        hints: remedy::hints(verdict.cause, verdict.sub_cause, evidence),
        reason: reason(&verdict, &also, &found, alike.as_ref()),
        also,
    }
}

/// The first of them, each once.
fn some(quotes: impl Iterator<Item = Quote>) -> Vec<Quote> {
    let mut first: Vec<Quote> = Vec::new();
    for quote in quotes {
        if first.len() < MOST_QUOTES && !first.contains(&quote) {
            first.push(quote);
        }
    }
    first
}

/// Adds the weights of each cause and shares out the whole, the likeliest first.
fn weigh<'a>(found: impl Iterator<Item = &'a Finding>) -> Vec<Candidate> {
    let mut tallies: BTreeMap<Cause, Tally> = BTreeMap::new();
    for finding in found {
        tallies.entry(finding.cause).or_default().add(finding);
    }
    let whole = NONE.exp() + tallies.values().map(|tally| tally.sum.exp()).sum::<f64>();
    let mut candidates: Vec<Candidate> = tallies
        .into_iter()
        .map(|(cause, tally)| Candidate {
            cause,
            sub_cause: tally.sub_cause,
            confidence: (tally.sum.exp() / whole).min(tally.most()),
        })
        .collect();
    candidates.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    candidates
}

/// What speaks for one cause.
#[derive(Default)]
struct Tally {
    sum: f64,
    /// Of it, by what programs printed and by numbers.
    shown: f64,
    strongest: f64,
    sub_cause: Option<SubCause>,
}

impl Tally {
    fn add(&mut self, finding: &Finding) {
        let weight = finding.weight.nats();
        self.sum += weight;
        self.shown += if finding.is_told { 0.0 } else { weight };
        if weight > self.strongest || self.sub_cause.is_none() {
            self.strongest = weight;
            self.sub_cause = finding.sub_cause.or(self.sub_cause);
        }
    }

    fn most(&self) -> f64 {
        if self.shown >= Weight::Strong.nats() {
            MOST_SURE
        } else {
            MOST_TOLD
        }
    }
}

fn reason(
    verdict: &Candidate,
    also: &[Candidate],
    found: &[(&str, &str, Finding)],
    alike: Option<&Alike>,
) -> Reason {
    let speaking = found
        .iter()
        .filter(|(_, _, finding)| finding.cause == verdict.cause);
    let reasons = speaking.map(|(name, source, finding)| {
        let quotes = finding
            .quotes
            .iter()
            .take(3)
            .map(|quote| Reason::new("line", quote.text.clone()));
        Reason::new("rule", finding.text.clone())
            .fact("rule", *name)
            .fact("source", *source)
            .because_all(quotes)
    });
    let others = also.iter().map(|other| {
        let text = format!(
            "it may also be {}: {} ({})",
            other.cause,
            words(other),
            percent(other.confidence)
        );
        Reason::new("also", text).fact("cause", other.cause.code())
    });
    summary(verdict)
        .because_all(reasons)
        .because_all(alike.map(Alike::reason))
        .because_all(others)
}

fn summary(verdict: &Candidate) -> Reason {
    let reason = Reason::new("diagnosis", headline(verdict))
        .fact("cause", verdict.cause.code())
        .fact("confidence", percent(verdict.confidence));
    match verdict.sub_cause {
        Some(sub_cause) => reason.fact("sub_cause", sub_cause.code()),
        None => reason,
    }
}

fn headline(verdict: &Candidate) -> String {
    let how = match verdict.confidence {
        sure if sure >= 0.8 => "",
        likely if likely >= LIKELY => ", most likely",
        guess if guess > 0.0 => ", perhaps",
        _ => return Cause::Other.words().to_owned(),
    };
    let (cause, words) = (verdict.cause, words(verdict));
    format!("{cause}{how}: {words} ({})", percent(verdict.confidence))
}

fn words(candidate: &Candidate) -> &'static str {
    match candidate.sub_cause {
        Some(sub_cause) => sub_cause.words(),
        None => candidate.cause.words(),
    }
}

pub(super) fn percent(confidence: f64) -> String {
    format!("{:.0} %", confidence * 100.0)
}

impl Serialize for Candidate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut candidate = serializer.serialize_struct("Candidate", 3)?;
        candidate.serialize_field("cause", &self.cause)?;
        candidate.serialize_field("sub_cause", &self.sub_cause)?;
        candidate.serialize_field("confidence", &rounded(self.confidence))?;
        candidate.end()
    }
}

impl Serialize for Diagnosis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut diagnosis = serializer.serialize_struct("Diagnosis", 8)?;
        diagnosis.serialize_field("schema", SCHEMA)?;
        diagnosis.serialize_field("cause", &self.cause)?;
        diagnosis.serialize_field("sub_cause", &self.sub_cause)?;
        diagnosis.serialize_field("confidence", &rounded(self.confidence))?;
        diagnosis.serialize_field("evidence", &self.evidence)?;
        diagnosis.serialize_field("also", &self.also)?;
        diagnosis.serialize_field("hints", &self.hints)?;
        diagnosis.serialize_field("reason", &self.reason)?;
        diagnosis.end()
    }
}

fn rounded(confidence: f64) -> f64 {
    (confidence * 1000.0).round() / 1000.0
}
