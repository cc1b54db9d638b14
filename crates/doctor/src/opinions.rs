//! Two opinions, of the rules and of the words, and which of them counts.
//!
//! DECISION: rules that are half sure keep the verdict, and those that rest on the sizes of a refusal keep it from [`TELLING`] on: of sizes words say
//! nothing. Else the words decide. The numbers were chosen on 195 reports that neither had seen (`bench/RESULTS.md`): where rules were less than half
//! sure and words said another cause, words were right 27 times of 36 and rules 4.

use super::diagnosis::{Candidate, MOST_TOLD, TELLING};
use super::evidence::Evidence;
use super::likeness::Likeness;

/// What rules give less than this is left to the words, if a cause has as much of these as [`ALIKE`].
const RULED: f64 = 0.5;
const ALIKE: f64 = 0.2;
/// A cause that the words give less than this is not beyond doubt, unless rules give it more than [`PROVEN`] or it rests on the sizes of a refusal:
/// of these words say nothing.
const DOUBTED: f64 = 0.35;
const PROVEN: f64 = 0.97;

/// Puts what the words say beside what rules say. True where the words decide.
pub(super) fn heard(candidates: &mut Vec<Candidate>, likeness: &Likeness<'_>, evidence: &Evidence) -> bool {
    let (cause, share) = likeness.most();
    let sized = |of: &Candidate| of.cause.is_of_sizes() && evidence.is_sized();
    if let Some(first) = candidates.first_mut()
        && (first.confidence >= RULED || sized(first) && first.confidence >= TELLING)
    {
        let proven = first.confidence >= PROVEN || sized(first);
        if !proven && likeness.share(first.cause) < DOUBTED {
            first.confidence = first.confidence.min(MOST_TOLD);
        }
        return false;
    }
    if share < ALIKE {
        return false;
    }
    let ruled = candidates.iter().position(|candidate| candidate.cause == cause);
    let ruled = ruled.map(|at| candidates.remove(at));
    let confidence = ruled.map_or(share, |ruled| ruled.confidence.max(share));
    for other in candidates.iter_mut() {
        other.confidence = other.confidence.min(1.0 - share);
    }
    candidates.insert(
        0,
        Candidate {
            cause,
            sub_cause: ruled.and_then(|ruled| ruled.sub_cause),
            confidence: confidence.min(MOST_TOLD),
        },
    );
    true
}
