//! Names the source of a displayed number, such as a formula, a measurement or the driver.

use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};

/// Source of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Read from the model file's header.
    Header,
    /// A closed form that mirrors this place in the engine's source (`file:function @ build`).
    Formula(&'static str),
    /// Reported by the engine itself (its log, or its own planner).
    Engine(Cow<'static, str>),
    /// A measured table for this kind of card, driver and build; the text names the row.
    Calibration(Cow<'static, str>),
    /// Measured on this machine, from this process.
    Measured,
    /// Written down by the user.
    Declared,
    /// No source: shown as unknown, never as zero.
    Unknown,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("header"),
            Self::Formula(place) => write!(f, "formula {place}"),
            Self::Engine(what) => write!(f, "engine {what}"),
            Self::Calibration(row) => write!(f, "calibration {row}"),
            Self::Measured => f.write_str("measured"),
            Self::Declared => f.write_str("declared"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // One string in JSON too: its form is documented, and new sources need no new schema.
        serializer.collect_str(self)
    }
}
