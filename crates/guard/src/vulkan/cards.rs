//! Physical devices of Vulkan as cards of the page.

use alloc::vec::Vec;

use ash::vk;

use super::instance::Instance;
use super::table::find_instance;
use crate::arm::{self, FoundCard};
use crate::settings;
use crate::state::CardIndex;

/// NVIDIA's vendor number on the PCI bus.
const NVIDIA: u32 = 0x10de;

/// A physical device, and the card that it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhysicalCard {
    pub(super) handle: vk::PhysicalDevice,
    /// None for one that is not guarded.
    pub(super) index: Option<CardIndex>,
    /// Its memory is the host's, so that every heap counts.
    pub(super) integrated: bool,
}

/// `vkEnumeratePhysicalDevices`, after whose first success guard arms itself.
///
/// # Safety
/// As of Vulkan.
pub(super) unsafe extern "system" fn enumerate(
    instance: vk::Instance,
    count: *mut u32,
    room: *mut vk::PhysicalDevice,
) -> vk::Result {
    let Some(known) = find_instance(instance) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    meet(&known);
    // SAFETY: the caller's promise.
    unsafe { (known.enumerate)(instance, count, room) }
}

/// The card of a physical device.
pub(super) fn card_of(instance: &Instance, physical: vk::PhysicalDevice) -> Option<PhysicalCard> {
    instance.cards.hold().iter().find(|card| card.handle == physical).copied()
}

/// Enters the physical devices of an instance as cards, at the first call.
fn meet(instance: &Instance) {
    // DECISION: not when the instance is created, because the loader completes it only afterwards. A program
    // gets its physical devices here in any case.
    if !settings::wanted() {
        return;
    }
    let mut cards = instance.cards.hold();
    if !cards.is_empty() {
        return;
    }
    let all: Vec<_> = list(instance).into_iter().map(|handle| (handle, describe(instance, handle))).collect();
    let found: Vec<FoundCard> = all.iter().map(|(_, (found, _))| *found).collect();
    for ((handle, (_, integrated)), index) in all.into_iter().zip(arm::enter(&found)) {
        cards.push(PhysicalCard { handle, index, integrated });
    }
}

fn list(instance: &Instance) -> Vec<vk::PhysicalDevice> {
    let mut count = 0;
    let mut all = Vec::new();
    // SAFETY: the places are ours, with as much room as they say.
    unsafe {
        let _ = (instance.enumerate)(instance.handle, &raw mut count, core::ptr::null_mut());
        all.resize(usize::try_from(count).unwrap_or(0), vk::PhysicalDevice::null());
        if (instance.enumerate)(instance.handle, &raw mut count, all.as_mut_ptr()).as_raw() < 0 {
            return Vec::new();
        }
    }
    all.truncate(usize::try_from(count).unwrap_or(0));
    all
}

/// Identity and size of a physical device, and whether its memory is the host's.
fn describe(instance: &Instance, physical: vk::PhysicalDevice) -> (FoundCard, bool) {
    const UNKNOWN: u32 = u32::MAX;
    let mut bus = vk::PhysicalDevicePCIBusInfoPropertiesEXT { pci_domain: UNKNOWN, ..Default::default() };
    let mut id = vk::PhysicalDeviceIDProperties::default();
    let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut bus).push_next(&mut id);
    // SAFETY: the places are ours. A driver leaves a structure that it does not know.
    unsafe {
        match instance.properties_2 {
            Some(properties) => properties(physical, &raw mut all),
            None => (instance.properties)(physical, &raw mut all.properties),
        }
    }
    let kind = all.properties.device_type;
    let vendor = all.properties.vendor_id;
    // DECISION: NVIDIA's driver has the same UUID for CUDA and Vulkan. Other vendors' cards are known by
    // their place on the PCI bus, which all their interfaces tell; RADV's UUID is made of it as well.
    let uuid = if vendor == NVIDIA || bus.pci_domain == UNKNOWN {
        id.device_uuid
    } else {
        identity([bus.pci_domain, bus.pci_bus, bus.pci_device, bus.pci_function])
    };
    let integrated = kind == vk::PhysicalDeviceType::INTEGRATED_GPU;
    (FoundCard { uuid, total: total(instance, physical, integrated) }, integrated)
}

/// A place on the PCI bus as sixteen bytes.
fn identity(place: [u32; 4]) -> [u8; 16] {
    let mut uuid = [0; 16];
    for (four, number) in uuid.chunks_exact_mut(4).zip(place) {
        four.copy_from_slice(&number.to_le_bytes());
    }
    uuid
}

fn total(instance: &Instance, physical: vk::PhysicalDevice, integrated: bool) -> u64 {
    let mut memory = vk::PhysicalDeviceMemoryProperties::default();
    // SAFETY: the place is ours.
    unsafe { (instance.memory)(physical, &raw mut memory) };
    super::heaps::total(&memory, integrated)
}
