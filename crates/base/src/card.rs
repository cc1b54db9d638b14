//! Describes the places where a model can be put: GPUs and the host's memory.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use plimsoll_wire::options::Uuid;

use crate::{Bytes, CardMaker};

/// Identifier of a card within one machine: its UUID if it has one, else the name given to it.
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

/// Kind of memory that a card stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CardKind {
    /// A GPU of any maker.
    Cuda,
    /// The host's memory, for engines that compute on the CPU.
    Host,
}

/// A GPU, or the host's memory, with its properties and its free memory now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    pub id: CardId,
    pub kind: CardKind,
    /// The product name: `NVIDIA H200`.
    pub name: String,
    /// UUID such as `GPU-…`, as used in `CUDA_VISIBLE_DEVICES`. `None` for a card that the user only
    /// described.
    pub uuid: Option<String>,
    #[serde(default, skip_serializing_if = "CardMaker::is_nvidia")]
    pub maker: CardMaker,
    /// Address on the PCI bus, `0000:03:00.0`, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    pub total: Bytes,
    /// Free memory at the last reading of the driver; equals `total` for a budget that the user gives.
    pub free: Bytes,
    /// Compute capability, e.g. (9, 0).
    pub compute_capability: Option<(u32, u32)>,
    /// True if the engine gets its pool from plain cudaMalloc (Tegra, or a build without VMM).
    // Tegra has no virtual memory management API, so ggml falls back to its legacy pool there.
    pub legacy_pool: bool,
    /// True if its memory is the host's (Jetson, DGX Spark, APUs): what the engine takes of either counts
    /// once, here.
    #[serde(default)]
    pub shares_host: bool,
    /// The accounting that its numbers come from.
    #[serde(default)]
    pub counting: Counting,
}

/// Way in which a process's memory on a card is counted: by the driver or by guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Counting {
    /// The driver: all of it, as `nvidia-smi` shows it.
    #[default]
    Driver,
    /// Guard, which enforces a budget: the program's own requests, and the context as it is opened. Memory
    /// that the driver allocates lazily, mostly for kernels, is not counted.
    Guard,
}

impl Card {
    /// The card as a guarded program sees it: total and free are the budget. Host memory is unchanged, since
    /// guard does not limit it.
    pub fn guarded(self, budget: Bytes) -> Self {
        // Memory that other processes hold is not available to the guarded program, whatever its budget.
        let room = budget.min(self.free);
        match self.kind {
            CardKind::Host => self,
            CardKind::Cuda => Self { total: room, free: room, counting: Counting::Guard, ..self },
        }
    }

    /// PCI vendor of a card of another maker than NVIDIA.
    pub fn pci_vendor(&self) -> Option<u32> {
        match self.maker {
            CardMaker::Nvidia | CardMaker::Apple => None,
            CardMaker::Amd => Some(0x1002),
            CardMaker::Intel => Some(0x8086),
        }
    }

    /// The identity of this card to guard, whose libraries see it by CUDA, HIP or Vulkan; `None` for a card
    /// that is only described.
    pub fn identity(&self) -> Option<Uuid> {
        match self.maker {
            CardMaker::Nvidia => Uuid::read(self.uuid.as_deref()?),
            CardMaker::Amd | CardMaker::Intel => Uuid::of_address(self.address.as_deref()?),
            CardMaker::Apple => None,
        }
    }

    /// True if the name in a configuration refers to this card.
    pub fn answers_to(&self, name: &str) -> bool {
        self.id.as_str() == name
            || self.name == name
            || [&self.uuid, &self.address].into_iter().any(|own| own.as_deref() == Some(name))
    }
}

/// The id of the host's memory as a card.
pub const HOST_CARD: &str = "host";

impl Card {
    /// The host's memory as a card of its own.
    pub fn of_host(total: Bytes, free: Bytes) -> Self {
        Self {
            id: CardId::new(HOST_CARD),
            kind: CardKind::Host,
            name: "host memory".to_owned(),
            uuid: None,
            total,
            free,
            compute_capability: None,
            legacy_pool: false,
            shares_host: false,
            counting: Counting::Driver,
            maker: CardMaker::Nvidia,
            address: None,
        }
    }
}

/// A card, and the part of it that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardLimit {
    pub card: Card,
    /// The user's own limit on all claims together.
    pub budget: Option<Bytes>,
    /// Bytes that no claim may use.
    pub reserve: Bytes,
}

/// Reserve on a card of this machine, for memory that a display server or a driver takes between two
/// readings.
const CARD_RESERVE: Bytes = Bytes::mib(256);
/// Left untouched of the host: the machine has to live.
const HOST_RESERVE: Bytes = Bytes::gib(1);

impl CardLimit {
    /// A card that exists as described: nothing is kept of it.
    pub fn described(card: Card) -> Self {
        Self { card, budget: None, reserve: Bytes::ZERO }
    }

    /// A card of this machine, but for a reserve; without one given, 256 MiB of a card, and of the host's
    /// memory 1 GiB or a tenth.
    pub fn of_machine(card: Card, reserve: Option<Bytes>) -> Self {
        let usual = match card.kind {
            CardKind::Host => HOST_RESERVE.min(card.total.scaled(1, 10)),
            CardKind::Cuda => CARD_RESERVE,
        };
        Self { budget: None, reserve: reserve.unwrap_or(usual), card }
    }
}

/// Bytes on one card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    pub card: CardId,
    pub bytes: Bytes,
}

impl Share {
    pub fn new(card: CardId, bytes: Bytes) -> Self {
        Self { card, bytes }
    }
}
