//! Simulates Vulkan devices: their queues, extensions, and kinds of matrices.

use core::ffi::{c_char, c_void};
use core::ptr::null_mut;

use ash::vk;

use super::answers::write_text;
use super::{Dispatchable, card};
use crate::machine::machine;
use crate::report::say;
use crate::vulkan_limits::{AMD, NVIDIA};

const SUCCESS: vk::Result = vk::Result::SUCCESS;
const HALF: vk::ComponentTypeKHR = vk::ComponentTypeKHR::FLOAT16;
const SINGLE: vk::ComponentTypeKHR = vk::ComponentTypeKHR::FLOAT32;

vulkan! {
    fn vkEnumerateInstanceVersion(version: *mut u32) -> vk::Result {
        version.write(vk::API_VERSION_1_3);
        SUCCESS
    }

    fn vkCreateInstance(_: *const c_void, _: *const c_void, created: *mut u64) -> vk::Result {
        created.write(Dispatchable::make(0));
        SUCCESS
    }

    fn vkEnumerateInstanceExtensionProperties(_: *const c_char, count: *mut u32, _: *mut c_void) -> vk::Result {
        count.write(0);
        SUCCESS
    }

    fn vkEnumerateInstanceLayerProperties(count: *mut u32, _: *mut c_void) -> vk::Result {
        count.write(0);
        SUCCESS
    }

    fn vkEnumeratePhysicalDevices(_instance: u64, count: *mut u32, room: *mut u64) -> vk::Result {
        list(count, room, physical().into_iter())
    }

    /// One group of all cards.
    fn vkEnumeratePhysicalDeviceGroups(
        _instance: u64, count: *mut u32, room: *mut vk::PhysicalDeviceGroupProperties<'static>,
    ) -> vk::Result {
        let cards = physical();
        if let Some(group) = room.as_mut() {
            group.physical_device_count = u32::try_from(cards.len()).unwrap_or(0);
            for (place, card) in group.physical_devices.iter_mut().zip(&cards) {
                *place = vk::Handle::from_raw(*card);
            }
        }
        count.write(1);
        SUCCESS
    }

    fn vkEnumerateDeviceExtensionProperties(
        physical: u64, _layer: *const c_char, count: *mut u32, room: *mut vk::ExtensionProperties,
    ) -> vk::Result {
        let limits = card(Dispatchable::card_of(physical)).map(|card| card.vulkan).unwrap_or_default();
        let some = [
            (limits.matrix > 0, "VK_KHR_cooperative_matrix"),
            (limits.matrix > 1, "VK_NV_cooperative_matrix2"),
            (limits.dot, "VK_KHR_shader_integer_dot_product"),
            (limits.vendor == AMD, "VK_AMD_shader_core_properties"),
            (limits.vendor == AMD, "VK_AMD_shader_core_properties2"),
            (limits.vendor == NVIDIA, "VK_NV_shader_sm_builtins"),
        ];
        let some = some.into_iter().filter(|(has, _)| *has).map(|(_, name)| name);
        let all: alloc::vec::Vec<&str> = EXTENSIONS.into_iter().chain(some).collect();
        let all = all.into_iter().map(|name| {
            let mut extension = vk::ExtensionProperties { spec_version: 1, ..Default::default() };
            write_text(&mut extension.extension_name, name.as_bytes());
            extension
        });
        list(count, room, all)
    }

    fn vkCreateDevice(physical: u64, _: *const c_void, _: *const c_void, created: *mut u64) -> vk::Result {
        say!("Vulkan device");
        created.write(Dispatchable::make(Dispatchable::card_of(physical)));
        SUCCESS
    }

    fn vkGetDeviceQueue(device: u64, _family: u32, _index: u32, created: *mut u64) {
        vkGetDeviceQueue2(device, null_mut(), created);
    }

    fn vkGetDeviceQueue2(device: u64, _params: *const c_void, created: *mut u64) {
        created.write(Dispatchable::make(Dispatchable::card_of(device)));
    }

    fn vkGetPhysicalDeviceQueueFamilyProperties(_: u64, count: *mut u32, room: *mut vk::QueueFamilyProperties) {
        let _ = list(count, room, core::iter::once(FAMILY));
    }

    /// The structure keeps its chain.
    fn vkGetPhysicalDeviceQueueFamilyProperties2(
        _: u64, count: *mut u32, room: *mut vk::QueueFamilyProperties2<'static>,
    ) {
        if let Some(first) = room.as_mut() {
            first.queue_family_properties = FAMILY;
        }
        count.write(1);
    }

    /// Matrices of half precision, added up in single or in half.
    fn vkGetPhysicalDeviceCooperativeMatrixProperties(
        _: u64, count: *mut u32, room: *mut vk::CooperativeMatrixPropertiesKHR<'static>,
    ) -> vk::Result {
        let of = |sum| vk::CooperativeMatrixPropertiesKHR {
            m_size: 16,
            n_size: 16,
            k_size: 16,
            a_type: HALF,
            b_type: HALF,
            c_type: sum,
            result_type: sum,
            scope: vk::ScopeKHR::SUBGROUP,
            ..Default::default()
        };
        list(count, room, [SINGLE, HALF].map(of).into_iter())
    }

    /// Matrices of a whole workgroup, as NVIDIA's driver 580 lists them for half precision.
    fn vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV(
        _: u64, count: *mut u32, room: *mut FlexibleMatrix,
    ) -> vk::Result {
        let of = |(invocations, granularity, sum)| FlexibleMatrix {
            kind: vk::StructureType::from_raw(1_000_593_001),
            next: null_mut(),
            granularity,
            types: [HALF, HALF, sum, sum],
            saturating: vk::FALSE,
            scope: vk::ScopeKHR::WORKGROUP,
            invocations,
        };
        let (narrow, wide) = ([32, 16, 16], [32, 32, 16]);
        let all = [(128, narrow, HALF), (128, narrow, SINGLE), (256, wide, HALF), (256, wide, SINGLE)];
        list(count, room, all.map(of).into_iter())
    }
}

/// The cards, made at the first call.
fn physical() -> alloc::vec::Vec<u64> {
    let created = || (0..machine().cards.len()).map(Dispatchable::make).collect();
    machine().physical.hold().get_or_insert_with(created).clone()
}

/// Answers a list in Vulkan's way: its length where there is no room, else as much as there is room for.
///
/// # Safety
/// `count` is a number, and `room` is null or has room for so many.
unsafe fn list<T>(count: *mut u32, room: *mut T, all: impl ExactSizeIterator<Item = T>) -> vk::Result {
    let length = u32::try_from(all.len()).unwrap_or(0);
    // SAFETY: the caller's promise.
    let most = unsafe { if room.is_null() { length } else { (*count).min(length) } };
    if !room.is_null() {
        for (at, item) in all.take(usize::try_from(most).unwrap_or(0)).enumerate() {
            // SAFETY: the caller's promise.
            unsafe { room.add(at).write(item) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { count.write(most) };
    if most < length { vk::Result::INCOMPLETE } else { vk::Result::SUCCESS }
}

/// Extensions that an engine looks for. `answers` has what they report.
#[rustfmt::skip]
const EXTENSIONS: [&str; 14] = [
    "VK_KHR_16bit_storage", "VK_KHR_8bit_storage", "VK_KHR_shader_float16_int8", "VK_KHR_maintenance4",
    "VK_KHR_driver_properties", "VK_KHR_shader_float_controls", "VK_KHR_storage_buffer_storage_class",
    "VK_KHR_push_descriptor", "VK_EXT_subgroup_size_control", "VK_EXT_pipeline_robustness",
    "VK_EXT_memory_budget", "VK_EXT_memory_priority", "VK_EXT_pci_bus_info", "VK_EXT_external_memory_host",
];

/// One family does everything: graphics, compute and transfer.
const FAMILY: vk::QueueFamilyProperties = vk::QueueFamilyProperties {
    queue_flags: vk::QueueFlags::from_raw(0b111),
    queue_count: 1,
    timestamp_valid_bits: 64,
    min_image_transfer_granularity: vk::Extent3D { width: 1, height: 1, depth: 1 },
};

/// `VkCooperativeMatrixFlexibleDimensionsPropertiesNV`, which `ash` does not have yet.
#[repr(C)]
pub(super) struct FlexibleMatrix {
    kind: vk::StructureType,
    next: *mut c_void,
    /// Granularity of the dimensions M, N and K.
    granularity: [u32; 3],
    /// Of A, B, C and the result.
    types: [vk::ComponentTypeKHR; 4],
    saturating: u32,
    scope: vk::ScopeKHR,
    invocations: u32,
}
