//! Looks at the machine and its files, and changes nothing.
//!
//! Cards come through NVML, the host's memory through `/proc` and cgroups.
//!
//! Nothing here opens a CUDA context, so looking costs no byte of a card's memory. A missing library means no
//! cards, never an error; what a driver does not tell stays unknown and is noted in words.
//!
//! The driver's libraries stay out of the daemon: `nvmlInit` itself maps libcuda (seen with driver 580.159.04
//! on an H200), and a call into a sick driver may never return. So the daemon asks a small process, `plimsoll
//! look`, through a [`Sampler`]; only short-lived commands call [`look`] themselves.
// The foreign calls are in `nvml-wrapper` and `rustix`.
#![forbid(unsafe_code)]

pub mod contexts;
pub mod folder;
pub mod guard;
pub mod headers;
mod host;
pub mod library;
mod lookout;
mod nvml;
pub mod process;
mod resident;
mod sampler;
mod sensors;
pub mod sysroot;
mod unified;
mod visible;

use plimsoll_base::{Bytes, Card, CardId};
use serde::{Deserialize, Serialize};

pub use host::{HOST_CARD, HostMemory};
pub use lookout::answer_questions;
pub use resident::{family, resident};
pub use sampler::{Sampler, StartSamplerError};
pub use sensors::Sensors;

/// The machine at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// In the order of the PCI bus, as an engine counts them under `CUDA_DEVICE_ORDER=PCI_BUS_ID`; only those
    /// that the daemon itself may see.
    pub cards: Vec<Card>,
    /// The host's memory as a card, for engines that compute on the CPU.
    pub host: Option<Card>,
    /// True where the cards share the host's memory (Jetson, GB10): a byte on a card is a byte less for the
    /// host.
    pub unified: bool,
    /// The version of NVIDIA's driver, where it tells.
    pub driver: Option<String>,
    /// Readings that failed, and their reasons, for people.
    pub notes: Vec<String>,
}

/// Free memory of each card now, and the holders of the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    pub free: Vec<(CardId, Bytes)>,
    pub holders: Vec<Holder>,
}

/// A process with memory on a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub card: CardId,
    /// In the driver's eyes, which inside a container may not be ours.
    pub pid: u32,
    /// `None` where the driver does not say.
    pub used: Option<Bytes>,
    /// From `/proc/PID/comm`, where that can be read.
    pub name: Option<String>,
}

/// Looks once. Takes milliseconds, and on the first call of a process the time to load the driver's library.
pub fn look() -> Machine {
    // Closed again at once: a library that stays loaded keeps its descriptors on the driver's devices.
    nvml::NvmlSource::open().machine()
}

/// Reads once the free memory of each card and the holders of the rest.
pub fn read() -> Reading {
    nvml::NvmlSource::open().reading()
}

/// The cards that a process with this `CUDA_VISIBLE_DEVICES` sees.
pub fn visible(cards: Vec<Card>, value: Option<&str>) -> Vec<Card> {
    visible::keep_visible(cards, value)
}
