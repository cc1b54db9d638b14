//! Hooks of the creation and destruction of Vulkan devices, which keep the next layer's functions of each
//! device.

use alloc::vec::Vec;
use core::ffi::CStr;

use ash::vk;

use super::cards::card_of;
use super::chain::{DeviceFunctions, DeviceLink, structure, take_link};
use super::instance::{Instance, cast};
use super::memory::MemoryBlock;
use super::requests::ThreadRequests;
use super::table::{add_device, find_device, find_instance, remove_device};
use crate::state::CardIndex;
use crate::state::address_map::AddressMap;

/// A device, with the next layer's functions.
pub(super) struct Device {
    pub(super) functions: DeviceFunctions,
    pub(super) allocate: vk::PFN_vkAllocateMemory,
    pub(super) free: vk::PFN_vkFreeMemory,
    pub(super) requirements: vk::PFN_vkGetBufferMemoryRequirements,
    pub(super) requirements_2: Option<vk::PFN_vkGetBufferMemoryRequirements2>,
    pub(super) export: Option<vk::PFN_vkGetMemoryFdKHR>,
    destroy: vk::PFN_vkDestroyDevice,
    /// The cards that it runs on: several for a group. None is one that is not guarded.
    pub(super) cards: Vec<Option<CardIndex>>,
    pub(super) integrated: bool,
    /// Memory types and heaps, as the driver has them.
    pub(super) memory: vk::PhysicalDeviceMemoryProperties,
    pub(super) blocks: AddressMap<MemoryBlock>,
    pub(super) requests: ThreadRequests,
}

impl Device {
    /// # Safety
    /// `handle` is a device of the layer that `functions` belongs to, made on `physical` with these
    /// parameters.
    unsafe fn new(
        handle: vk::Device,
        functions: DeviceFunctions,
        instance: &Instance,
        physical: vk::PhysicalDevice,
        params: &vk::DeviceCreateInfo<'static>,
    ) -> Option<Self> {
        let mut memory = vk::PhysicalDeviceMemoryProperties::default();
        // SAFETY: the caller's promise; each function is cast to the type that Vulkan gives its name.
        unsafe {
            (instance.memory)(physical, &raw mut memory);
            let named = |name: &CStr| functions(handle, name.as_ptr());
            let requirements_2 = named(c"vkGetBufferMemoryRequirements2")
                .or_else(|| named(c"vkGetBufferMemoryRequirements2KHR"));
            Some(Self {
                functions,
                allocate: cast(named(c"vkAllocateMemory"))?,
                free: cast(named(c"vkFreeMemory"))?,
                requirements: cast(named(c"vkGetBufferMemoryRequirements"))?,
                requirements_2: cast(requirements_2),
                export: cast(named(c"vkGetMemoryFdKHR")),
                destroy: cast(named(c"vkDestroyDevice"))?,
                cards: group(physical, params)
                    .into_iter()
                    .map(|physical| card_of(instance, physical).and_then(|card| card.index))
                    .collect(),
                integrated: card_of(instance, physical).is_some_and(|card| card.integrated),
                memory,
                blocks: AddressMap::new(),
                requests: ThreadRequests::new(),
            })
        }
    }
}

/// The physical devices that a device is made of, in the order of their bits in its masks.
///
/// # Safety
/// Parameters of Vulkan.
unsafe fn group(
    physical: vk::PhysicalDevice,
    params: &vk::DeviceCreateInfo<'static>,
) -> Vec<vk::PhysicalDevice> {
    // SAFETY: the caller's promise: as many devices as the structure says.
    unsafe {
        let group = structure::<vk::DeviceGroupDeviceCreateInfo<'static>>(params.p_next);
        let listed = group.filter(|group| group.physical_device_count > 0);
        listed.map_or_else(
            || alloc::vec![physical],
            |group| {
                let count = usize::try_from(group.physical_device_count).unwrap_or(0);
                core::slice::from_raw_parts(group.p_physical_devices, count).to_vec()
            },
        )
    }
}

/// `vkCreateDevice`.
///
/// # Safety
/// As of Vulkan, called by its loader.
pub(super) unsafe extern "system" fn create(
    physical: vk::PhysicalDevice,
    params: *const vk::DeviceCreateInfo<'static>,
    allocator: *const vk::AllocationCallbacks<'static>,
    created: *mut vk::Device,
) -> vk::Result {
    const FAILED: vk::Result = vk::Result::ERROR_INITIALIZATION_FAILED;
    // SAFETY: the caller's promise; the next layer gets what we got, with its own link.
    unsafe {
        let kind = vk::StructureType::LOADER_DEVICE_CREATE_INFO;
        let link: Option<&DeviceLink> = take_link((*params).p_next, kind);
        let (Some(link), Some(instance)) = (link, find_instance(physical)) else { return FAILED };
        let (instance_functions, functions) = (link.functions, link.second);
        let create = instance_functions(instance.handle, c"vkCreateDevice".as_ptr());
        let Some(create) = cast::<vk::PFN_vkCreateDevice>(create) else { return FAILED };
        let result = create(physical, params, allocator, created);
        if result == vk::Result::SUCCESS {
            let Some(device) = Device::new(*created, functions, &instance, physical, &*params) else {
                let destroy = functions(*created, c"vkDestroyDevice".as_ptr());
                if let Some(destroy) = cast::<vk::PFN_vkDestroyDevice>(destroy) {
                    destroy(*created, allocator);
                }
                created.write(vk::Device::null());
                return FAILED;
            };
            add_device(*created, device);
        }
        result
    }
}

/// `vkDestroyDevice`, with which all its memory goes.
///
/// # Safety
/// As of Vulkan.
pub(super) unsafe extern "system" fn destroy(
    device: vk::Device,
    allocator: *const vk::AllocationCallbacks<'static>,
) {
    if let Some(known) = find_device(device) {
        remove_device(device);
        // SAFETY: the caller's promise.
        unsafe { (known.destroy)(device, allocator) };
        known.blocks.drain(|_| true, MemoryBlock::gone);
    }
}
