//! Diagnoses several logs together: one cause that explains them all, or else one cause for each.
//!
//! Several logs are read as logs of one failure. Logs of different programs may have no common cause.

use std::path::PathBuf;

use plimsoll_base::Reason;
use plimsoll_doctor::{Cause, Diagnosis};
use serde_json::{Value, json};

/// Confidence from which a log alone contradicts the verdict of all.
const SURE: f64 = 0.6;
/// Confidence from which a log alone proves its cause: words of a text never reach it.
const PROVEN: f64 = 0.8;
/// Confidence from which a cause is called likely.
const LIKELY: f64 = 0.4;

/// A log with its own diagnosis.
#[derive(Debug)]
pub(super) struct LogAlone {
    pub(super) path: PathBuf,
    pub(super) diagnosis: Diagnosis,
}

/// The verdict of the logs, and those that show something else alone.
#[derive(Debug)]
pub(super) struct LogVerdict {
    pub(super) diagnosis: Diagnosis,
    pub(super) alone: Vec<LogAlone>,
    /// No cause explains them all; `alone` has each log.
    pub(super) differ: bool,
}

impl LogVerdict {
    /// Weighs the diagnosis of all lines together against those of each log; `each` is empty for a single
    /// log.
    ///
    /// DECISION: proof in one log is never outvoted by the words of the joined text. A verdict over logs that
    /// prove different causes would be true of one of them at most.
    pub(super) fn of(joined: Diagnosis, each: Vec<LogAlone>) -> Self {
        if differ(&joined, &each) {
            return Self { diagnosis: no_common_cause(), alone: each, differ: true };
        }
        let diagnosis = each.iter().filter(|log| outweighs(&log.diagnosis, &joined));
        let diagnosis = diagnosis.max_by(|a, b| a.diagnosis.confidence.total_cmp(&b.diagnosis.confidence));
        let diagnosis = diagnosis.map_or(joined, |log| log.diagnosis.clone());
        let differs =
            |log: &LogAlone| log.diagnosis.confidence >= SURE && log.diagnosis.cause != diagnosis.cause;
        Self { alone: each.into_iter().filter(differs).collect(), diagnosis, differ: false }
    }

    /// True if a cause is named.
    pub(super) fn is_named(&self) -> bool {
        let alone = self.alone.iter().map(|log| &log.diagnosis);
        alone.chain([&self.diagnosis]).any(|diagnosis| diagnosis.confidence > 0.0)
    }
}

/// True if two logs prove different causes, of which none explains the other.
fn differ(joined: &Diagnosis, each: &[LogAlone]) -> bool {
    let proven: Vec<&Diagnosis> =
        each.iter().map(|log| &log.diagnosis).filter(|alone| alone.confidence >= PROVEN).collect();
    proven.iter().enumerate().any(|(at, one)| {
        proven[..at].iter().any(|other| {
            one.cause != other.cause && !explains(joined, one, other) && !explains(joined, other, one)
        })
    })
}

/// True if the cause of one log is the verdict of all, and the other log shows only that the card's memory
/// was not the problem. An example is a killed engine, and the kernel's log of the kill.
fn explains(joined: &Diagnosis, one: &Diagnosis, other: &Diagnosis) -> bool {
    let is_verdict = joined.confidence >= PROVEN && joined.cause == one.cause;
    is_verdict && other.cause == Cause::NotOom
}

/// True for a log whose verdict counts more than that of the joined text.
fn outweighs(alone: &Diagnosis, joined: &Diagnosis) -> bool {
    let is_proven = alone.confidence >= PROVEN && joined.confidence < PROVEN;
    let is_denied = joined.cause == Cause::NotOom && joined.confidence < PROVEN;
    let is_of_memory = !matches!(alone.cause, Cause::NotOom | Cause::Other | Cause::DriverOrHw);
    is_proven || is_denied && is_of_memory && alone.confidence >= LIKELY
}

fn no_common_cause() -> Diagnosis {
    Diagnosis {
        cause: Cause::Other,
        sub_cause: None,
        confidence: 0.0,
        evidence: Vec::new(),
        also: Vec::new(),
        hints: Vec::new(),
        reason: Reason::new("diagnosis", "these logs show different causes"),
    }
}

impl LogAlone {
    /// The cause in a line, beside the verdict of all.
    pub(super) fn in_short(&self) -> String {
        let (path, reason) = (self.path.display(), &self.diagnosis.reason.text);
        format!("{path} alone shows {reason}\nhint: plimsoll doctor {path}\n")
    }

    /// The whole answer.
    pub(super) fn in_full(&self) -> String {
        let hints = self.diagnosis.hints.iter().map(|hint| format!("hint: {hint}\n"));
        let head = format!("\n{}: {}\n", self.path.display(), self.diagnosis.reason);
        hints.fold(head, |text, hint| text + &hint)
    }

    pub(super) fn in_json(&self) -> Value {
        let Diagnosis { cause, sub_cause, confidence, hints, reason, .. } = &self.diagnosis;
        json!({
            "log": self.path, "cause": cause, "sub_cause": sub_cause, "confidence": confidence, "hints": hints, "reason": reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_doctor::SubCause;

    use super::*;

    fn shows(cause: Cause, confidence: f64) -> Diagnosis {
        Diagnosis { cause, confidence, ..no_common_cause() }
    }

    fn of(joined: Diagnosis, each: &[Diagnosis]) -> LogVerdict {
        let log = |diagnosis: &Diagnosis| LogAlone { path: "a.log".into(), diagnosis: diagnosis.clone() };
        LogVerdict::of(joined, each.iter().map(log).collect())
    }

    #[test]
    fn logs_that_prove_different_causes_have_no_common_one() {
        let (pool, pinned, driver) = (
            shows(Cause::PoolGrowth, 0.99),
            shows(Cause::HostPinnedLimit, 0.95),
            shows(Cause::DriverOrHw, 0.99),
        );
        for joined in [shows(Cause::NotOom, 0.46), pool.clone(), driver.clone()] {
            let verdict = of(joined, &[pool.clone(), pinned.clone(), driver.clone()]);
            assert!(verdict.differ && verdict.alone.len() == 3 && verdict.is_named());
            assert_eq!((verdict.diagnosis.cause, verdict.diagnosis.confidence), (Cause::Other, 0.0));
        }
    }

    #[test]
    fn proof_in_one_log_outweighs_an_estimate_from_words() {
        let (pool, words) = (shows(Cause::PoolGrowth, 0.99), shows(Cause::NotOom, 0.79));
        let verdict = of(words.clone(), &[pool.clone(), shows(Cause::Other, 0.0)]);
        assert_eq!((verdict.diagnosis.cause, verdict.alone.len()), (Cause::PoolGrowth, 0));
        // Nor is a likely one, where the words deny that memory ran out.
        let likely = shows(Cause::KvCacheTooLarge, 0.5);
        assert_eq!(of(words.clone(), &[likely.clone(), words.clone()]).diagnosis.cause, likely.cause);
        assert_eq!(of(words.clone(), &[shows(Cause::PoolGrowth, 0.3)]).diagnosis.cause, Cause::NotOom);
        // Proof by all lines together stays.
        let joined = shows(Cause::ForeignProcess, 0.9);
        let verdict = of(joined, &[shows(Cause::ModelTooLarge, 0.95), shows(Cause::Other, 0.0)]);
        assert_eq!((verdict.diagnosis.cause, verdict.alone.len()), (Cause::ForeignProcess, 1));
    }

    #[test]
    fn a_cause_that_explains_the_other_logs_is_the_verdict() {
        let killed = Diagnosis { sub_cause: Some(SubCause::Killed), ..shows(Cause::HostOom, 0.7) };
        let host = shows(Cause::HostOom, 0.99);
        let verdict = of(host.clone(), &[killed.clone(), host.clone()]);
        assert!(!verdict.differ && verdict.diagnosis.cause == Cause::HostOom);
        let verdict = of(killed.clone(), &[killed, host]);
        assert!(!verdict.differ);
        let (pool, retried) = (shows(Cause::PoolGrowth, 0.99), shows(Cause::NotOom, 0.9));
        assert!(!of(pool.clone(), &[pool.clone(), retried.clone()]).differ);
        assert!(of(shows(Cause::NotOom, 0.5), &[pool, retried]).differ);
    }

    #[test]
    fn a_single_log_keeps_its_verdict() {
        let verdict = of(shows(Cause::NotOom, 0.46), &[]);
        assert_eq!((verdict.diagnosis.cause, verdict.alone.len(), verdict.differ), (Cause::NotOom, 0, false));
        assert!(!of(shows(Cause::Other, 0.0), &[]).is_named());
    }
}
