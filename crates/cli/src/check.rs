//! Compares planned with measured memory, and defines the margins within which they agree.
//!
//! A running engine should hold at least its planned memory after the load, and at most its planned memory
//! with a full context.

use plimsoll_base::{Bytes, CardId};
use plimsoll_planner::{CardPlan, Terms};
use serde::Serialize;

/// Tolerated difference on a card: a minimum, and thousandths of the peak.
pub(crate) const CARD_MARGIN: (Bytes, u64) = (Bytes::mib(48), 15);
/// Tolerated difference in resident memory, which includes the program and its libraries: 29 MiB for
/// llama.cpp b11549 in Python.
pub(crate) const HOST_MARGIN: (Bytes, u64) = (Bytes::mib(96), 50);

/// Comparison for one engine (`plimsoll.check/1`).
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) schema: &'static str,
    pub(crate) models: [Checked; 1],
    pub(crate) ok: bool,
}

/// Figures of one engine.
#[derive(Debug, Serialize)]
pub(crate) struct Checked {
    pub(crate) model: String,
    pub(crate) pid: u32,
    pub(crate) cards: Vec<Row>,
    /// Figures that the engine reports, with the planned ones.
    #[serde(rename = "said")]
    pub(crate) stated: Vec<ReportedFigure>,
}

/// Comparison for one card of one engine.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) id: CardId,
    pub(crate) terms: Terms,
    /// Planned use once loaded.
    pub(crate) loaded: Bytes,
    pub(crate) peak: Bytes,
    pub(crate) measured: Option<Bytes>,
    /// Bytes above the peak; negative: bytes below the planned use once loaded.
    pub(crate) difference: i64,
    pub(crate) margin: Bytes,
    pub(crate) ok: bool,
    /// Resident memory, which includes the program and its libraries.
    #[serde(skip)]
    pub(crate) of_host: bool,
}

/// A value that is planned and also reported by the engine.
#[derive(Debug, Serialize)]
pub(crate) struct ReportedFigure {
    pub(crate) name: &'static str,
    pub(crate) planned: u64,
    pub(crate) engine: u64,
}

impl Row {
    pub(crate) fn new(id: CardId, planned: &CardPlan, measured: Option<Bytes>, margin: Bytes) -> Self {
        let CardPlan { loaded, peak, .. } = *planned;
        let difference = measured.map_or(0, |measured| difference(loaded, peak, measured));
        Self {
            id,
            terms: planned.terms.clone(),
            loaded,
            peak,
            measured,
            difference,
            margin,
            ok: Bytes::new(difference.unsigned_abs()) <= margin,
            of_host: false,
        }
    }
}

/// Bytes above the peak; negative: bytes below the planned use once loaded.
fn difference(loaded: Bytes, peak: Bytes, measured: Bytes) -> i64 {
    // Signed in the JSON: the sign tells a plan that is too small from one that is too large.
    let signed = |bytes: Bytes| i64::try_from(bytes.get()).unwrap_or(i64::MAX);
    // An engine anywhere between loaded and peak is as planned, so at most one of these two is not zero.
    signed(measured.saturating_sub(peak)) - signed(loaded.saturating_sub(measured))
}

/// The requested margin, else the default one.
pub(crate) fn margin(requested: Option<Bytes>, (least, thousandths): (Bytes, u64), peak: Bytes) -> Bytes {
    // A fixed minimum covers what does not scale with the model, such as modules that the driver loads
    // lazily.
    requested.unwrap_or_else(|| least.max(peak.scaled(thousandths, 1000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_between_loaded_and_full_is_as_planned() {
        for (measured, expected) in [(1000, 0), (1200, 0), (960, -40), (1248, 48), (1249, 49), (940, -60)] {
            let found = difference(Bytes::mib(1000), Bytes::mib(1200), Bytes::mib(measured));
            assert_eq!(found >> 20, expected, "{measured}");
        }
    }
}
