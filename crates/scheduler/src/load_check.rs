//! Compares the memory that an engine was granted with the memory that its load took.

use plimsoll_base::{Bytes, CardId};
use serde::Serialize;

/// Difference between a run's claim on a card and the memory that its load took there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoadCheck {
    pub card: CardId,
    pub claim: Bytes,
    /// Decrease of the card's free memory from the start of the load to its end.
    pub taken: Bytes,
    /// Memory that the driver or guard attributes to the run, if any.
    pub measured: Option<Bytes>,
    pub difference: Bytes,
    pub cause: Discrepancy,
}

/// Kind of a difference between the claim and the memory taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Discrepancy {
    /// The claim covers growth that has not happened yet.
    Growth,
    /// The run itself took more than its claim: its CUDA context, and kernels that the driver loaded, are
    /// larger than planned.
    Context,
    /// Other processes took memory during the load.
    Foreign,
    /// The driver attributes no memory to the run, so its part of the decrease is unknown.
    Unknown,
}

impl LoadCheck {
    /// Compares one card. `taken` excludes memory that other runs took or released during the load.
    pub(crate) fn new(card: CardId, claim: Bytes, taken: Bytes, measured: Option<Bytes>) -> Self {
        // Some containers hide processes from NVML, which then attributes nothing to any of them.
        let measured = measured.filter(|bytes| !bytes.is_zero());
        let (difference, cause) = match measured {
            Some(own) if own > claim => (own.saturating_sub(claim), Discrepancy::Context),
            Some(own) if taken > claim => (taken.saturating_sub(own), Discrepancy::Foreign),
            None if taken > claim => (taken.saturating_sub(claim), Discrepancy::Unknown),
            _ => (claim.saturating_sub(taken), Discrepancy::Growth),
        };
        Self { card, claim, taken, measured, difference, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_has_a_name() {
        let cases = [
            (8, Some(6), 6, 2, Discrepancy::Growth),
            (8, Some(9), 9, 1, Discrepancy::Context),
            (8, Some(7), 20, 13, Discrepancy::Foreign),
            (8, None, 20, 12, Discrepancy::Unknown),
            (8, Some(0), 20, 12, Discrepancy::Unknown),
            (8, None, 5, 3, Discrepancy::Growth),
        ];
        for (claim, measured, taken, difference, cause) in cases {
            let gib = Bytes::gib;
            let check = LoadCheck::new(CardId::new("a"), gib(claim), gib(taken), measured.map(gib));
            assert_eq!((check.difference, check.cause), (gib(difference), cause), "{check:?}");
        }
    }
}
