//! Reads a machine's memory and GPUs: NVIDIA's through NVML, AMD's and Intel's through the kernel.
//!
//! No CUDA context is opened, so a reading takes no GPU memory. The daemon reads the cards through a helper
//! process (`plimsoll look`), because `nvmlInit` loads libcuda (seen with driver 580.159.04).
// The other foreign calls are in `nvml-wrapper` and `rustix`; `running` has one ioctl and one of Windows.
#![deny(unsafe_code)]
#![cfg_attr(windows, allow(dead_code, reason = "the daemon, which is not there on Windows, uses it"))]

mod host;
mod kernel;
mod linux;
#[cfg(unix)]
mod lookout;
mod placeable;
mod running;
#[cfg(unix)]
mod sampler;
mod sources;
mod unified;
mod visible;

use plimsoll_base::{Bytes, Card, CardId};
use serde::{Deserialize, Serialize};

pub use host::HostMemory;
use kernel::KernelSurvey;
pub use kernel::{Board, KernelCard, MemoryPool, RoomLimit};
pub use linux::{OpenSysrootError, Sysroot};
#[cfg(unix)]
pub use lookout::answer_questions;
pub use plimsoll_base::HOST_CARD;
#[cfg(unix)]
pub use sampler::{Sampler, StartSamplerError};

/// State of a machine at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// In the order of the PCI bus, as an engine counts them under `CUDA_DEVICE_ORDER=PCI_BUS_ID`; only those
    /// that the daemon itself may see.
    pub cards: Vec<Card>,
    /// GPUs of AMD and Intel, and of a captured machine NVIDIA's.
    #[serde(default)]
    pub kernel_cards: Vec<KernelCard>,
    /// The host's memory as a card, for engines that compute on the CPU.
    pub host: Option<Card>,
    /// True if the cards share the host's memory (Jetson, GB10): a byte on a card is a byte less for the
    /// host.
    pub unified: bool,
    /// Version of NVIDIA's driver, if known.
    pub driver: Option<String>,
    /// Readings that failed, and their reasons, for people.
    pub notes: Vec<String>,
}

/// Free memory of each card now, and the processes that hold the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    pub free: Vec<(CardId, Bytes)>,
    pub holders: Vec<Holder>,
    /// GPUs of AMD and Intel, with all that is known of them now.
    #[serde(default)]
    pub kernel_cards: Vec<KernelCard>,
}

/// A process that holds memory of a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub card: CardId,
    /// Process number as the driver reports it, which may differ inside a container.
    pub pid: u32,
    /// `None` if the driver does not report it.
    pub used: Option<Bytes>,
    /// Host memory that the process takes for a card with memory of its own, where that is known: what did
    /// not fit, and buffers for transfers.
    #[serde(default)]
    pub outside: Option<Bytes>,
    /// The part of it that the driver moved off the card, or put there in place of the card; `None` where it
    /// does not say.
    #[serde(default)]
    pub evicted: Option<Bytes>,
    /// From `/proc/PID/comm`, where that can be read.
    pub name: Option<String>,
}

/// Looks once. Takes milliseconds, and on the first call of a process the time to load the driver's library.
pub fn look() -> Machine {
    // Closed again at once: a library that stays loaded keeps its descriptors on the driver's devices.
    sources::CardSources::open().machine()
}

/// Reads once the free memory of each card and the holders of the rest.
pub fn read() -> Reading {
    sources::CardSources::open().reading()
}

/// Release of the kernel that describes AMD's and Intel's cards: `6.17.0`.
pub fn kernel_release() -> Option<String> {
    sources::kernel_release()
}

/// The machine itself, or one whose files were captured; of the latter all cards are known by files alone.
pub fn look_at(tree: &Sysroot) -> Machine {
    if tree.is_live() {
        return look();
    }
    let survey = KernelSurvey::of_cards(tree);
    let host = HostMemory::of(tree).map(HostMemory::card);
    Machine { host, kernel_cards: survey.cards, notes: survey.notes, ..Machine::of_host() }
}

/// The same of the machine itself, or of one whose files were captured.
pub fn read_at(tree: &Sysroot) -> Reading {
    if tree.is_live() {
        return read();
    }
    let mut reading = Reading::default();
    reading.add_survey(KernelSurvey::of(tree));
    reading
}

/// The cards that a process with this `CUDA_VISIBLE_DEVICES` sees.
pub fn visible(cards: Vec<Card>, value: Option<&str>) -> Vec<Card> {
    visible::keep_visible(cards, value)
}
