//! Reads NVIDIA's GPUs through NVML, which is loaded at the first use.
//!
//! A card in MIG mode is left out with a note.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use plimsoll_base::{Bytes, Card, CardId, CardKind, CardMaker, Counting, Order};
use plimsoll_wire::env as names;

use super::CardSource;
use crate::visible::keep_visible;
use crate::{Holder, Machine, Reading, Sysroot, running, unified};

/// An open NVML library, or the reason of its absence.
#[derive(Debug)]
pub(super) struct NvmlSource {
    library: Result<Nvml, String>,
}

// Old drivers lack `nvmlDeviceGetMemoryInfo_v2`, and Tegra and GB10 report no memory of their own.
/// Memory of a card, as reported by the driver.
enum Memory {
    Own { total: Bytes, free: Bytes },
    Unified,
    Unknown(String),
}

impl NvmlSource {
    /// Loads the library; `PLIMSOLL_NVML` names another one, or none if it is empty.
    pub(super) fn open() -> Self {
        let library = match std::env::var_os(names::NVML) {
            Some(path) if path.is_empty() => Err(format!(
                "the environment variable {} is empty, which \
                switches NVML off",
                names::NVML
            )),
            Some(path) => {
                Nvml::builder().lib_path(OsStr::new(&path)).init().map_err(|cause| reported(&cause))
            }
            None => Nvml::init().map_err(|cause| reported(&cause)),
        };
        Self { library }
    }
}

impl CardSource for NvmlSource {
    fn add_cards(&self, machine: &mut Machine) {
        match &self.library {
            Ok(nvml) => {
                machine.driver = nvml.sys_driver_version().ok();
                let cards = cards(nvml, machine);
                // NVML lists every card of the machine: the variable is CUDA's alone.
                let visible = std::env::var(names::CUDA_VISIBLE_DEVICES).ok();
                machine.cards.extend(keep_visible(cards, visible.as_deref()));
            }
            // A machine without a card has no NVML, so this is a note and no error.
            Err(cause) => machine.notes.push(format!("no NVIDIA card is visible: {cause}")),
        }
    }

    fn add_reading(&self, reading: &mut Reading) {
        if let Ok(nvml) = &self.library {
            for device in devices(nvml) {
                read_device(&device, reading);
            }
        }
    }
}

/// The cause without the name of the crate that found it.
fn reported(cause: &NvmlError) -> String {
    match cause {
        NvmlError::LibloadingError(cause) => cause.to_string(),
        cause => cause.to_string(),
    }
}

/// In the order of the PCI bus, which NVML's own numbering usually is and does not promise.
fn devices(nvml: &Nvml) -> Vec<Device<'_>> {
    let count = nvml.device_count().unwrap_or(0);
    let mut devices: Vec<_> = (0..count).filter_map(|index| nvml.device_by_index(index).ok()).collect();
    devices.order_by_cached_key(|device| device.pci_info().map(|pci| (pci.domain, pci.bus, pci.device)).ok());
    devices
}

/// Every card that can be read, and in `machine` what there is to say of the others.
fn cards(nvml: &Nvml, machine: &mut Machine) -> Vec<Card> {
    let mut cards = Vec::new();
    for device in devices(nvml) {
        let name = device.name().unwrap_or_else(|_| "NVIDIA card".to_owned());
        match card(&device, &name) {
            Ok((card, unified)) => {
                cards.push(card);
                machine.unified |= unified;
            }
            Err(why) => machine.notes.push(format!("{name} is left out: {why}")),
        }
    }
    cards
}

fn card(device: &Device<'_>, name: &str) -> Result<(Card, bool), String> {
    const MIG_ENABLED: u32 = 1;
    // An instance has its own UUID and memory, which the card's own figures do not describe.
    if device.mig_mode().is_ok_and(|mode| mode.current == MIG_ENABLED) {
        return Err("the card is in MIG mode, which is not supported; describe the MIG instance with --card"
            .to_owned());
    }
    let uuid = device.uuid().map_err(|cause| format!("the card's UUID cannot be read: {cause}"))?;
    let (total, free, unified) = match memory(device) {
        Memory::Own { total, free } => (total, free, false),
        Memory::Unified => {
            let (total, free) =
                unified::memory().ok_or("the card uses the host's memory, whose size cannot be read")?;
            (total, free, true)
        }
        Memory::Unknown(cause) => return Err(format!("the card's memory cannot be read: {cause}")),
    };
    let capability = device.cuda_compute_capability().ok();
    let card = Card {
        id: CardId::new(&uuid),
        kind: CardKind::Cuda,
        name: name.to_owned(),
        uuid: Some(uuid),
        total,
        free,
        compute_capability: capability.and_then(|capability| {
            Some((u32::try_from(capability.major).ok()?, u32::try_from(capability.minor).ok()?))
        }),
        legacy_pool: unified && Sysroot::live().is_tegra(),
        shares_host: unified,
        counting: Counting::Driver,
        maker: CardMaker::Nvidia,
        address: device.pci_info().ok().and_then(|pci| address(&pci.bus_id)),
    };
    Ok((card, unified))
}

/// The kernel's spelling of NVML's `00000000:0A:00.0`.
fn address(bus_id: &str) -> Option<String> {
    let (domain, rest) = bus_id.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    Some(format!("{domain:04x}:{}", rest.to_ascii_lowercase()))
}

fn memory(device: &Device<'_>) -> Memory {
    match device.memory_info() {
        Ok(info) if info.total > 0 => Memory::Own {
            total: Bytes::new(info.total),
            // Two counters of the driver, which are not read at one moment.
            free: Bytes::new(info.free.min(info.total)),
        },
        // No total, or no answer: the card takes the host's memory (Jetson, GB10).
        Ok(_) | Err(NvmlError::NotSupported) => Memory::Unified,
        // `nvmlDeviceGetMemoryInfo_v2`, which leaves out what the driver reserves.
        Err(NvmlError::FailedToLoadSymbol(_)) => {
            Memory::Unknown("this NVIDIA driver is older than release 510; update it".to_owned())
        }
        Err(cause) => Memory::Unknown(cause.to_string()),
    }
}

fn read_device(device: &Device<'_>, reading: &mut Reading) {
    // NVML's index may change at a reboot, so a card without a UUID cannot be followed.
    let Ok(uuid) = device.uuid() else { return };
    let card = CardId::new(&uuid);
    let free = match memory(device) {
        Memory::Own { free, .. } => Some(free),
        Memory::Unified => unified::memory().map(|(_, free)| free),
        Memory::Unknown(_) => None,
    };
    reading.free.extend(free.map(|free| (card.clone(), free)));
    reading.holders.extend(holders(device, &card));
}

/// Every process once, with the larger of its values in the two lists.
fn holders(device: &Device<'_>, card: &CardId) -> Vec<Holder> {
    let compute = device.running_compute_processes().unwrap_or_default();
    let graphics = device.running_graphics_processes().unwrap_or_default();
    let mut used: BTreeMap<u32, Option<Bytes>> = BTreeMap::new();
    // A process that computes and draws is in both lists.
    for process in compute.into_iter().chain(graphics) {
        let bytes = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(Bytes::new(bytes)),
            UsedGpuMemory::Unavailable => None,
        };
        let entry = used.entry(process.pid).or_default();
        *entry = (*entry).max(bytes);
    }
    used.into_iter()
        .map(|(pid, used)| Holder {
            card: card.clone(),
            pid,
            used,
            outside: None,
            evicted: None,
            // Inside a container the driver still counts by the host's numbers, so there may be no such
            // process here.
            name: running::process_name(pid),
        })
        .collect()
}
