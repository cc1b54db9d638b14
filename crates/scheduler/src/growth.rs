//! What a token of depth adds to a model's memory, as far as it was seen.
//!
//! An engine's claim stands from the start, but a run-time pool grows with the deepest sequence so far. Two looks at one run, after answers of
//! different depth, give a slope; it holds for the range between them and is shown with it. The first look comes after an answer,
//! so that what an engine loads lazily is not taken for growth. Depths that lie close together say nothing: memory comes
//! in pieces of 2 MiB and more.

use plimsoll_base::{Bytes, RunId};
use serde::Serialize;

/// Tokens that two looks must lie apart.
const APART: u64 = 256;

/// What was learned: so much a token between these depths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Growth {
    pub bytes_per_token: Bytes,
    /// Tokens of the shallowest and the deepest look.
    pub from: u64,
    pub to: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    tokens: u64,
    used: Bytes,
}

/// The looks at a model's run, and what they taught.
#[derive(Debug, Default)]
pub(super) struct Slope {
    run: Option<RunId>,
    first: Option<Look>,
    deepest: u64,
    learned: Option<Growth>,
}

impl Slope {
    /// Takes what the run used after an answer of this depth. What an earlier run taught stands until this one teaches more.
    pub(super) fn look(&mut self, run: RunId, tokens: u64, used: Bytes) {
        if self.run != Some(run) {
            (self.run, self.first, self.deepest) = (Some(run), None, 0);
        }
        if tokens < self.deepest.saturating_add(APART) {
            return;
        }
        self.deepest = tokens;
        let first = *self.first.get_or_insert(Look { tokens, used });
        let span = tokens - first.tokens;
        if let Some(each) = used.saturating_sub(first.used).get().checked_div(span) {
            self.learned = Some(Growth {
                bytes_per_token: Bytes::new(each),
                from: first.tokens,
                to: tokens,
            });
        }
    }

    pub(super) fn learned(&self) -> Option<Growth> {
        self.learned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slope(run: u64, looks: &[(u64, u64)], slope: &mut Slope) -> Option<Growth> {
        for (tokens, kib) in looks {
            slope.look(RunId(run), *tokens, Bytes::kib(*kib));
        }
        slope.learned()
    }

    #[test]
    fn it_is_unknown_until_two_looks_lie_apart_and_then_holds_for_their_range() {
        let mut state = Slope::default();
        assert_eq!(slope(1, &[(500, 1000)], &mut state), None);
        assert_eq!(
            slope(1, &[(600, 9999), (100, 9999)], &mut state),
            None,
            "too close, and shallower"
        );
        let growth = Growth {
            bytes_per_token: Bytes::kib(4),
            from: 500,
            to: 1500,
        };
        assert_eq!(slope(1, &[(1500, 5000)], &mut state), Some(growth));
        assert_eq!(
            slope(2, &[(9000, 7)], &mut state),
            Some(growth),
            "a new run has to teach first"
        );
    }

    #[test]
    fn memory_that_shrinks_is_no_growth() {
        let learned = slope(1, &[(500, 1000), (1000, 900)], &mut Slope::default()).unwrap();
        assert_eq!(learned.bytes_per_token, Bytes::ZERO);
    }
}
