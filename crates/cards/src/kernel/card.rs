//! Describes a GPU by what its kernel driver states: names, PCI address, and memory.

use std::fmt;

use plimsoll_base::{Bytes, Card, CardId, CardKind, CardMaker, CardNames, Counting};
use serde::{Deserialize, Serialize};

/// A GPU that no vendor's library was asked about. What the driver does not state is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCard {
    /// The UUID if it is unique in the machine, else the PCI address, else the name of its folder.
    pub id: CardId,
    pub name: String,
    /// As ROCm's runtime writes it in `ROCR_VISIBLE_DEVICES`: `GPU-` and 16 hexadecimal digits.
    pub uuid: Option<String>,
    /// Address on the PCI bus: `0000:03:00.0`.
    pub address: Option<String>,
    /// Vendor and device: `1002:744c`.
    pub pci: Option<String>,
    /// The kernel's driver: `amdgpu`, `xe`, `i915`, `radeon`.
    pub driver: Option<String>,
    /// Number by which AMD's runtime counts it; `None` where the driver for compute does not have it.
    #[serde(default)]
    pub rocr: Option<usize>,
    /// Number by which Intel's runtime counts it in the order of the PCI bus.
    #[serde(default)]
    pub level_zero: Option<usize>,
    /// Minor number of its render node `/dev/dri/renderD…`.
    pub render_minor: Option<u32>,
    /// The instruction set as compilers name it: `gfx1100`.
    pub architecture: Option<String>,
    pub board: Option<Board>,
    /// Memory that models can take, free and not, with the limit that decides it.
    pub total: Option<Bytes>,
    pub used: Option<Bytes>,
    pub free: Option<Bytes>,
    pub limit: Option<RoomLimit>,
    /// Memory of the card; of an APU, the part that the firmware carved out of the host's.
    pub vram: MemoryPool,
    /// The part of it that the processor can address.
    pub visible: MemoryPool,
    /// Host memory that the card can address.
    pub gtt: MemoryPool,
    /// Figures that are missing, each with the reason, and traps of this board with this kernel.
    pub notes: Vec<String>,
}

impl KernelCard {
    /// The maker by the PCI vendor; `None` where that is not known.
    pub fn maker(&self) -> Option<CardMaker> {
        let (vendor, _) = self.pci.as_deref()?.split_once(':')?;
        CardMaker::of_vendor(u16::from_str_radix(vendor, 16).ok()?)
    }

    pub fn names(&self) -> CardNames {
        CardNames {
            id: self.id.to_string(),
            name: self.name.clone(),
            uuid: self.uuid.clone(),
            address: self.address.clone(),
            maker: self.maker().unwrap_or_default(),
        }
    }

    /// Its name in `ROCR_VISIBLE_DEVICES`: the UUID, or the number of one that has none.
    pub fn rocr_name(&self) -> Option<String> {
        let number = self.rocr?;
        Some(self.uuid.clone().unwrap_or_else(|| number.to_string()))
    }

    /// The card as models are placed on it, and as screens show it; `None` where a figure is unknown.
    pub fn shown(&self) -> Option<Card> {
        Some(Card {
            id: self.id.clone(),
            // Of the kinds of memory there is one for GPUs.
            kind: CardKind::Cuda,
            name: self.name.clone(),
            uuid: self.uuid.clone(),
            maker: self.maker().unwrap_or_default(),
            address: self.address.clone(),
            total: self.total?,
            free: self.free?,
            compute_capability: None,
            legacy_pool: false,
            shares_host: self.board == Some(Board::Shared),
            counting: Counting::Driver,
        })
    }
}

/// Where a GPU's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Board {
    /// On the card.
    Own,
    /// In the host's memory (an APU or an integrated GPU).
    Shared,
}

/// Size of a memory and the part in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPool {
    pub total: Option<Bytes>,
    pub used: Option<Bytes>,
}

impl MemoryPool {
    /// More used than there is is no reading.
    pub(super) fn new(total: Option<Bytes>, used: Option<Bytes>) -> Self {
        let used = used.filter(|used| total.is_none_or(|total| *used <= total));
        Self { total, used }
    }

    pub(super) fn free(self) -> Option<Bytes> {
        Some(self.total?.saturating_sub(self.used?))
    }
}

/// What bounds the free memory of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoomLimit {
    /// The card's own memory.
    Vram,
    /// An APU's two pools together.
    VramAndGtt,
    /// The most that the kernel gives to all GPUs together.
    TtmPagesLimit,
    /// What the host can give without swapping.
    MemAvailable,
    /// The memory that the firmware set aside, which is there however little the host has.
    CarveOut,
}

impl fmt::Display for RoomLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vram => "its own memory",
            Self::VramAndGtt => "VRAM and GTT together",
            Self::TtmPagesLimit => "ttm.pages_limit",
            Self::MemAvailable => "the host's available memory (MemAvailable)",
            Self::CarveOut => "the memory that the firmware sets aside for it",
        })
    }
}
