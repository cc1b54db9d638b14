//! Holds one cause that a diagnosis considers, with the diagnosis's confidence in it.

use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::cause::{Cause, SubCause};

/// A cause below this confidence is not named.
pub(super) const TELLING: f64 = 0.28;
/// Upper bound for a cause that the log does not prove: it rests on words, names or experience.
pub(super) const MOST_INDIRECT: f64 = 0.7;

/// A possible cause with its confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiagnosisCandidate {
    pub cause: Cause,
    pub sub_cause: Option<SubCause>,
    pub confidence: f64,
}

impl DiagnosisCandidate {
    /// The cause under its published code, which its mechanism decides.
    pub(super) fn named(&self) -> Cause {
        use SubCause::{CommitLimit, GroupLimit, HostKilled, HostMemory, Killed, OldDriver};
        match (self.cause, self.sub_cause) {
            (Cause::NotOom, Some(HostKilled | GroupLimit | Killed))
            | (Cause::Other, Some(HostMemory | CommitLimit)) => Cause::HostOom,
            (Cause::DriverOrHw, Some(OldDriver)) => Cause::NotOom,
            (cause, _) => cause,
        }
    }

    /// The mechanism in words, else the cause.
    pub(super) fn words(&self) -> &'static str {
        self.sub_cause.map_or_else(|| self.cause.words(), SubCause::words)
    }
}

pub(super) fn percent(confidence: f64) -> String {
    format!("{:.0} %", confidence * 100.0)
}

impl Serialize for DiagnosisCandidate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut candidate = serializer.serialize_struct("Candidate", 3)?;
        candidate.serialize_field("cause", &self.named())?;
        candidate.serialize_field("sub_cause", &self.sub_cause)?;
        candidate.serialize_field("confidence", &rounded(self.confidence))?;
        candidate.end()
    }
}

fn rounded(confidence: f64) -> f64 {
    (confidence * 1000.0).round() / 1000.0
}

pub(super) fn in_thousandths<S: Serializer>(confidence: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(rounded(*confidence))
}
