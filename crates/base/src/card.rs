//! A card as seen by whoever looked.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Bytes;

/// Names a card among those of one machine: its UUID where it has one, else the name it was given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CardId(Arc<str>);

impl CardId {
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for CardId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for CardId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::new(&text))
    }
}

/// What kind of memory a card's is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CardKind {
    /// An NVIDIA card with memory of its own.
    Cuda,
    /// The host's memory, for engines that compute on the CPU.
    Host,
}

/// A card: what it is, what it has, and what is free on it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    pub id: CardId,
    pub kind: CardKind,
    /// For people: `NVIDIA H200`.
    pub name: String,
    /// `GPU-…`; what `CUDA_VISIBLE_DEVICES` gets. None for a card that the user only described.
    pub uuid: Option<String>,
    pub total: Bytes,
    /// Free by the driver's word when it was last read; equals `total` for a budget of the user's own.
    pub free: Bytes,
    /// Compute capability, e.g. (9, 0).
    pub compute_capability: Option<(u32, u32)>,
    /// True where the engine gets its pool from plain cudaMalloc (Tegra, or a build without VMM).
    pub legacy_pool: bool,
    /// Who counts what is taken of it.
    #[serde(default)]
    pub counting: Counting,
}

/// Who counts what a process takes of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Counting {
    /// The driver: all of it, as `nvidia-smi` shows it.
    #[default]
    Driver,
    /// Guard, which holds a budget: what the program asks for, and the context as it is opened. What the driver loads later, kernels
    /// above all, nobody asks for.
    Guard,
}

impl Card {
    /// The card as a program sees it that guard holds to a budget; memory of the host, which guard does not hold, as it is.
    pub fn guarded(self, budget: Bytes) -> Self {
        let room = budget.min(self.free);
        match self.kind {
            CardKind::Host => self,
            CardKind::Cuda => Self {
                total: room,
                free: room,
                counting: Counting::Guard,
                ..self
            },
        }
    }

    /// True if a configuration that says `name` means this card.
    pub fn answers_to(&self, name: &str) -> bool {
        self.id.as_str() == name || self.uuid.as_deref() == Some(name) || self.name == name
    }
}

/// A card and how much of it may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardLimit {
    pub card: Card,
    /// The user's own limit on all claims together.
    pub budget: Option<Bytes>,
    /// Left untouched for others.
    pub reserve: Bytes,
}
