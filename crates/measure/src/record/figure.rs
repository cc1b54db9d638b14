//! Lists the numbers that a memory recording follows over time, such as a process's memory.

use std::fmt;

use plimsoll_base::Bytes;
use serde::{Deserialize, Serialize};

/// The kind of subject of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    Card,
    Process,
    /// A guarded process on a card.
    Guard,
    /// Free blocks of a zone, by order.
    Blocks,
    /// The machine, and groups of a later version.
    #[serde(other)]
    Machine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Bytes,
    Kib,
    /// A plain number, and units of another version.
    #[serde(other)]
    Count,
}

/// Priority of a figure: slow ones may be delayed when a recording would grow too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pace {
    Fast,
    Slow,
}

/// One number of one thing. Two are the same if all of it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Figure {
    pub group: Group,
    pub unit: Unit,
    /// A card's UUID, a process (`4711 python3`), a zone (`0 Normal`); empty for the machine.
    pub subject: String,
    /// `used`, `MemFree`, `order 9`.
    pub what: String,
}

impl Group {
    pub fn name(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Process => "process",
            Self::Guard => "guard",
            Self::Machine => "machine",
            Self::Blocks => "free blocks",
        }
    }
}

impl Unit {
    /// The value as memory, where it is.
    pub fn bytes(self, value: u64) -> Option<Bytes> {
        match self {
            Self::Bytes => Some(Bytes::new(value)),
            Self::Kib => Some(Bytes::kib(value)),
            _ => None,
        }
    }

    /// As people read it.
    pub fn text(self, value: u64) -> String {
        match self {
            Self::Bytes | Self::Kib => self.bytes(value).unwrap_or_default().to_string(),
            // Counts are small numbers of blocks or pages and need no unit.
            Self::Count => value.to_string(),
        }
    }
}

impl Figure {
    pub fn new(group: Group, unit: Unit, subject: impl Into<String>, what: impl Into<String>) -> Self {
        Self { group, unit, subject: subject.into(), what: what.into() }
    }
}

/// `process 4711 python3, resident`.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.subject.is_empty() {
            write!(f, "{} {}", self.group.name(), self.what)
        } else {
            write!(f, "{} {}, {}", self.group.name(), self.subject, self.what)
        }
    }
}
