//! Matches Vulkan's physical devices with the cards in the process's page (shared-memory file), and hides
//! devices from the program.

use alloc::vec::Vec;

use ash::vk;
use plimsoll_wire::options::Uuid;

use super::instance::Instance;
use super::table::find_instance;
use crate::arm::{self, FoundCard, armed};
use crate::say::say;
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
    /// False for one that the program must not see.
    is_shown: bool,
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
    unsafe {
        if !hides(&known) {
            return (known.enumerate)(instance, count, room);
        }
        let shown: Vec<_> =
            known.cards.hold().iter().filter(|card| card.is_shown).map(|card| card.handle).collect();
        fill(&shown, count, room, |shown, place| place.write(*shown))
    }
}

/// `vkEnumeratePhysicalDeviceGroups`.
///
/// # Safety
/// As of Vulkan.
pub(super) unsafe extern "system" fn enumerate_groups(
    instance: vk::Instance,
    count: *mut u32,
    room: *mut vk::PhysicalDeviceGroupProperties<'static>,
) -> vk::Result {
    let Some(known) = find_instance(instance) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    let Some(real) = known.enumerate_groups else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    meet(&known);
    // SAFETY: the caller's promise; the places of the list are ours.
    unsafe {
        if !hides(&known) {
            return real(instance, count, room);
        }
        let mut all: Vec<vk::PhysicalDeviceGroupProperties<'static>> = Vec::new();
        let result = list(&mut all, |count, room| real(instance, count, room));
        if result.as_raw() < 0 {
            return result;
        }
        all.iter_mut().for_each(|group| keep_shown(&known, group));
        all.retain(|group| group.physical_device_count > 0);
        // The program's structures keep their chains.
        fill(&all, count, room, |group, place| {
            (*place).physical_device_count = group.physical_device_count;
            (*place).physical_devices = group.physical_devices;
            (*place).subset_allocation = group.subset_allocation;
        })
    }
}

/// Removes devices that are not shown from a group.
fn keep_shown(instance: &Instance, group: &mut vk::PhysicalDeviceGroupProperties<'_>) {
    let count = usize::try_from(group.physical_device_count).unwrap_or(0);
    let is_shown = |handle: &vk::PhysicalDevice| card_of(instance, *handle).is_some_and(|card| card.is_shown);
    let shown: Vec<_> = group.physical_devices.iter().take(count).copied().filter(is_shown).collect();
    group.physical_devices[..shown.len()].copy_from_slice(&shown);
    group.physical_device_count = u32::try_from(shown.len()).unwrap_or(0);
}

/// True if some device of the instance is not shown.
fn hides(instance: &Instance) -> bool {
    armed() && instance.cards.hold().iter().any(|card| !card.is_shown)
}

/// Answers a list in Vulkan's way: its length where there is no room, else as much as there is room for.
///
/// # Safety
/// `count` is a number, and `room` is null or has room for so many.
unsafe fn fill<T, P>(all: &[T], count: *mut u32, room: *mut P, write: impl Fn(&T, *mut P)) -> vk::Result {
    let length = u32::try_from(all.len()).unwrap_or(u32::MAX);
    // As the loader answers where no driver has a device. Mesa's layer device_select crashes on an empty
    // list.
    if length == 0 {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    }
    // SAFETY: the caller's promise.
    unsafe {
        if room.is_null() {
            count.write(length);
            return vk::Result::SUCCESS;
        }
        let given = (*count).min(length);
        for (at, item) in all.iter().take(usize::try_from(given).unwrap_or(0)).enumerate() {
            write(item, room.add(at));
        }
        count.write(given);
        if given < length { vk::Result::INCOMPLETE } else { vk::Result::SUCCESS }
    }
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
    let mut handles = Vec::new();
    let list = list(&mut handles, |count, room| {
        // SAFETY: the places are ours, with as much room as they say.
        unsafe { (instance.enumerate)(instance.handle, count, room) }
    });
    if list.as_raw() < 0 {
        return;
    }
    let all: Vec<_> = handles.into_iter().map(|handle| (handle, describe(instance, handle))).collect();
    let found: Vec<FoundCard> = all.iter().map(|(_, (found, _))| *found).collect();
    let entered = arm::enter(&found);
    let options = settings::options();
    for ((handle, (found, integrated)), index) in all.into_iter().zip(entered) {
        let is_shown = !options.hide_others || options.plans(&found.uuid);
        cards.push(PhysicalCard { handle, index, integrated, is_shown });
    }
    if !cards.is_empty() && !cards.iter().any(|card| card.is_shown) {
        say!("Vulkan has {} devices, of which none is a card that this program was given", cards.len());
    }
}

/// Everything in a list of Vulkan's.
fn list<T: Clone + Default>(
    all: &mut Vec<T>,
    mut real: impl FnMut(*mut u32, *mut T) -> vk::Result,
) -> vk::Result {
    let mut count = 0;
    let result = real(&raw mut count, core::ptr::null_mut());
    if result.as_raw() < 0 {
        return result;
    }
    all.resize(usize::try_from(count).unwrap_or(0), T::default());
    let result = real(&raw mut count, all.as_mut_ptr());
    all.truncate(usize::try_from(count).unwrap_or(0));
    result
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
        Uuid::of_place([bus.pci_domain, bus.pci_bus, bus.pci_device, bus.pci_function]).0
    };
    let integrated = kind == vk::PhysicalDeviceType::INTEGRATED_GPU;
    (FoundCard { uuid, total: total(instance, physical, integrated) }, integrated)
}

fn total(instance: &Instance, physical: vk::PhysicalDevice, integrated: bool) -> u64 {
    let mut memory = vk::PhysicalDeviceMemoryProperties::default();
    // SAFETY: the place is ours.
    unsafe { (instance.memory)(physical, &raw mut memory) };
    super::heaps::total(&memory, integrated)
}
