//! Chooses between two diagnoses of a problem report: one by rules, one by the text classifier.
//!
//! The rules win if their confidence is high enough. If they used the sizes of a refused allocation, a lower
//! confidence is enough.

use super::candidate::{DiagnosisCandidate, MOST_INDIRECT, TELLING};
use super::classifier::TextClassifier;
use super::facts::Facts;

/// Rules below this leave the verdict to the classifier, if a cause has a share of [`SHARE`] in it.
const RULED: f64 = 0.5;
/// A guess below this is not worth following; the figures of the corpus are the same at 0.2.
const SHARE: f64 = 0.3;
/// Rules below this leave the verdict to the classifier, if another cause has a share of [`CLEAR`] in it: a
/// line that only usually means a cause.
const RULED_AGAINST: f64 = 0.8;
const CLEAR: f64 = 0.6;
/// A cause of the rules with a smaller share than this is not called sure. Exceptions are a confidence above
/// [`PROVEN`], and a cause that rests on the sizes of a refusal.
const DOUBTED: f64 = 0.35;
const PROVEN: f64 = 0.97;

/// Adds the classifier's opinion to the candidates of the rules. True if the classifier decides.
pub(super) fn combine(
    candidates: &mut Vec<DiagnosisCandidate>,
    text: &TextClassifier<'_>,
    facts: &Facts,
) -> bool {
    // DECISION: words say nothing about sizes, so a rule that used sizes needs only `TELLING`. The bounds
    // were chosen on 195 reports not used for training (`bench/RESULTS.md`), `CLEAR` on the training reports.
    let (cause, share) = text.most();
    let sized = |of: &DiagnosisCandidate| of.cause.is_of_sizes() && facts.is_sized();
    // Any size in the log makes a rule better than words, also for causes that other facts decide.
    let against = candidates.first().is_some_and(|first| first.cause != cause) && !facts.is_sized();
    let bound = if against && share >= CLEAR { RULED_AGAINST } else { RULED };
    if let Some(first) = candidates.first_mut()
        && (first.confidence >= bound || sized(first) && first.confidence >= TELLING)
    {
        let proven = first.confidence >= PROVEN || sized(first);
        if !proven && text.share(first.cause) < DOUBTED {
            first.confidence = first.confidence.min(MOST_INDIRECT);
        }
        return false;
    }
    if share < SHARE {
        return false;
    }
    let ruled = candidates.iter().position(|candidate| candidate.cause == cause);
    let ruled = ruled.map(|at| candidates.remove(at));
    let confidence = ruled.map_or(share, |ruled| ruled.confidence.max(share)).min(MOST_INDIRECT);
    // All confidences together stay a share of the whole, and no cause is likelier than the verdict.
    let (others, room) = (candidates.iter().map(|other| other.confidence).sum::<f64>(), 1.0 - confidence);
    let scale = if others > room { room / others } else { 1.0 };
    for other in candidates.iter_mut() {
        other.confidence = (other.confidence * scale).min(confidence);
    }
    candidates.insert(
        0,
        DiagnosisCandidate { cause, sub_cause: ruled.and_then(|ruled| ruled.sub_cause), confidence },
    );
    true
}

#[cfg(test)]
mod tests {
    use super::super::cause::Cause;
    use super::super::facts::LineOrigin;
    use super::*;

    #[test]
    fn no_cause_is_likelier_than_the_verdict_and_all_are_shares_of_a_whole() {
        let words = "gpu driver model cache batch server process memory device card";
        let report = [(LineOrigin::default(), words.to_owned())];
        let text = TextClassifier::of(&report, &Facts::default()).unwrap();
        assert!(text.most().1 < 0.45, "{:?}", text.most());
        let ruled = |cause, confidence| DiagnosisCandidate { cause, sub_cause: None, confidence };
        for known in [&[0.48, 0.48][..], &[0.49, 0.3, 0.2], &[0.45], &[]] {
            let causes = [Cause::PoolGrowth, Cause::DriverOrHw, Cause::Leak];
            let mut candidates: Vec<DiagnosisCandidate> =
                causes.into_iter().zip(known).map(|(cause, confidence)| ruled(cause, *confidence)).collect();
            assert!(combine(&mut candidates, &text, &Facts::default()));
            assert_eq!(candidates[0].cause, text.most().0);
            let whole: f64 = candidates.iter().map(|candidate| candidate.confidence).sum();
            assert!(whole <= 1.0 + 1e-9, "{candidates:?}");
            assert!(
                candidates.iter().all(|other| other.confidence <= candidates[0].confidence),
                "{candidates:?}"
            );
        }
    }
}
