//! Looks at the machine and its files, and changes nothing.
//!
//! Cards come through NVML, the host's memory through `/proc` and cgroups.
//!
//! Nothing here opens a CUDA context or maps libcuda, so looking costs no byte of a card's memory. A missing
//! library means no cards, never an error; what a driver does not tell stays unknown and is noted in words.

pub mod headers;
mod host;
mod nvml;
mod resident;
mod sampler;
mod unified;
mod visible;

use plimsoll_core::bytes::Bytes;
use plimsoll_core::place::{Card, CardId};

pub use host::{HOST_CARD, HostMemory};
pub use resident::resident;
pub use sampler::{Sampler, StartSamplerError};

/// The machine at one moment.
#[derive(Clone, Debug)]
pub struct Machine {
    /// In the order of the PCI bus, as an engine counts them under `CUDA_DEVICE_ORDER=PCI_BUS_ID`; only those that
    /// the daemon itself may see.
    pub cards: Vec<Card>,
    /// The host's memory as a card, for engines that compute on the CPU.
    pub host: Option<Card>,
    /// True where the cards share the host's memory (Jetson, GB10): a byte on a card is a byte less for the host.
    pub unified: bool,
    /// What could not be seen, and why, for people.
    pub notes: Vec<String>,
}

/// What is free on each card now, and who holds the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub free: Vec<(CardId, Bytes)>,
    pub holders: Vec<Holder>,
}

/// A process with memory on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    nvml::Source::open().machine()
}
