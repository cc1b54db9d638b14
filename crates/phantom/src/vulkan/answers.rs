//! Answers Vulkan's queries about a card's properties, features and memory types.

use core::ffi::{c_char, c_void};
use core::mem::size_of;

use ash::vk::{self, MemoryHeapFlags as Heap, MemoryPropertyFlags as Flags, StructureType as Kind};

use super::{Dispatchable, card};
use crate::cards::Card;
use crate::machine::machine;

const LOCAL: u32 = Flags::DEVICE_LOCAL.as_raw();
const MAPPED: u32 = Flags::HOST_VISIBLE.as_raw() | Flags::HOST_COHERENT.as_raw();
const CACHED: u32 = MAPPED | Flags::HOST_CACHED.as_raw();

/// Memory types of a card with memory of its own, each with its heap: 0 the card's, 1 the host's.
pub(in crate::vulkan) const DISCRETE: [(u32, u32); 4] =
    [(LOCAL, 0), (MAPPED, 1), (LOCAL | MAPPED, 0), (CACHED, 1)];
/// The only type of a card that uses the host's memory.
const UNIFIED: [(u32, u32); 1] = [(LOCAL | CACHED, 0)];
/// Features and properties of VK_NV_cooperative_matrix2, which `ash` does not have yet.
const MATRIX_2_FEATURES: Kind = Kind::from_raw(1_000_593_000);
const MATRIX_2_PROPERTIES: Kind = Kind::from_raw(1_000_593_002);
/// Size of the heap of the host's memory: nothing is placed by it.
const HOST_HEAP: u64 = 1 << 40;

vulkan! {
    fn vkGetPhysicalDeviceProperties(physical: u64, place: *mut vk::PhysicalDeviceProperties) {
        let Some((number, card)) = of(physical) else { return };
        let limits = card.vulkan;
        let mut stated = vk::PhysicalDeviceProperties {
            api_version: vk::API_VERSION_1_3,
            vendor_id: limits.vendor,
            device_id: u32::try_from(number).unwrap_or(0),
            device_type: vk::PhysicalDeviceType::from_raw(i32::try_from(limits.kind).unwrap_or(0)),
            limits: vk::PhysicalDeviceLimits {
                max_storage_buffer_range: limits.range,
                min_storage_buffer_offset_alignment: limits.align,
                min_memory_map_alignment: usize::try_from(limits.map_align).unwrap_or(1),
                max_push_constants_size: 256,
                max_compute_shared_memory_size: 49_152,
                max_compute_work_group_count: [u32::MAX, 65_535, 65_535],
                max_compute_work_group_invocations: 1024,
                max_compute_work_group_size: [1024; 3],
                max_memory_allocation_count: u32::MAX,
                max_bound_descriptor_sets: 32,
                timestamp_period: 1.0,
                non_coherent_atom_size: 64,
                ..Default::default()
            },
            ..Default::default()
        };
        write_text(&mut stated.device_name, card.name.as_bytes());
        place.write(stated);
    }

    fn vkGetPhysicalDeviceProperties2(physical: u64, place: *mut vk::PhysicalDeviceProperties2<'static>) {
        let Some((number, card)) = of(physical) else { return };
        vkGetPhysicalDeviceProperties(physical, &raw mut (*place).properties);
        let bus = u32::try_from(number).unwrap_or(0) + 1;
        each((*place).p_next, |kind, at| extended(card, bus, kind, at));
    }

    /// The structure is made of nothing but words.
    fn vkGetPhysicalDeviceFeatures(_physical: u64, place: *mut vk::PhysicalDeviceFeatures) {
        all_true(place.cast(), size_of::<vk::PhysicalDeviceFeatures>() / size_of::<u32>());
    }

    fn vkGetPhysicalDeviceFeatures2(physical: u64, place: *mut vk::PhysicalDeviceFeatures2<'static>) {
        vkGetPhysicalDeviceFeatures(physical, &raw mut (*place).features);
        each((*place).p_next, |kind, at| {
            let words = match kind {
                Kind::PHYSICAL_DEVICE_VULKAN_1_1_FEATURES => 12,
                Kind::PHYSICAL_DEVICE_VULKAN_1_2_FEATURES => 47,
                Kind::PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES
                | Kind::PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR => 2,
                Kind::PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES
                | Kind::PHYSICAL_DEVICE_PIPELINE_ROBUSTNESS_FEATURES_EXT
                | Kind::PHYSICAL_DEVICE_MEMORY_PRIORITY_FEATURES_EXT
                | Kind::PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES => 1,
                MATRIX_2_FEATURES => 7,
                _ => return,
            };
            all_true(at.byte_add(size_of::<vk::BaseOutStructure<'_>>()), words);
        });
    }

    fn vkGetPhysicalDeviceMemoryProperties(physical: u64, place: *mut vk::PhysicalDeviceMemoryProperties) {
        let Some((_, card)) = of(physical) else { return };
        let types: &[(u32, u32)] = if card.integrated { &UNIFIED } else { &DISCRETE };
        let mut stated = vk::PhysicalDeviceMemoryProperties {
            memory_type_count: u32::try_from(types.len()).unwrap_or(0),
            memory_heap_count: if card.integrated { 1 } else { 2 },
            ..Default::default()
        };
        for (place, (flags, heap)) in stated.memory_types.iter_mut().zip(types) {
            *place = vk::MemoryType { property_flags: Flags::from_raw(*flags), heap_index: *heap };
        }
        // Several cards are one group, each with memory of its own.
        let group = if machine().cards.len() > 1 { Heap::MULTI_INSTANCE } else { Heap::empty() };
        stated.memory_heaps[0] = vk::MemoryHeap { size: card.total, flags: Heap::DEVICE_LOCAL | group };
        stated.memory_heaps[1].size = HOST_HEAP;
        place.write(stated);
    }

    fn vkGetPhysicalDeviceMemoryProperties2(
        physical: u64, place: *mut vk::PhysicalDeviceMemoryProperties2<'static>,
    ) {
        let Some((number, card)) = of(physical) else { return };
        vkGetPhysicalDeviceMemoryProperties(physical, &raw mut (*place).memory_properties);
        each((*place).p_next, |kind, at| {
            if kind == Kind::PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT {
                let stated = &mut *at.cast::<vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'static>>();
                // An engine subtracts usage from budget without a sign.
                (stated.heap_budget[0], stated.heap_usage[0]) = (machine().memory.free(number, card.free), 0);
                (stated.heap_budget[1], stated.heap_usage[1]) = (HOST_HEAP, 0);
            }
        });
    }
}

/// Answers in a structure of the properties' chain.
///
/// # Safety
/// The address of a structure of this kind.
unsafe fn extended(card: &Card, bus: u32, kind: Kind, at: *mut c_void) {
    let limits = card.vulkan;
    let operations = vk::SubgroupFeatureFlags::from_raw(0x6ff);
    let uuid = [u8::try_from(bus).unwrap_or(0); 16];
    macro_rules! answers {
        ($($kind:ident = $type:ident { $($field:ident: $value:expr),* $(,)? })*) => {
            match kind {
                $(Kind::$kind => {
                    // SAFETY: the caller's promise.
                    let stated = unsafe { &mut *at.cast::<vk::$type<'static>>() };
                    $(stated.$field = $value;)*
                })*
                // SAFETY: the caller's promise: three words follow.
                MATRIX_2_PROPERTIES => unsafe {
                    // Largest workgroup, largest dimension, and shared memory that the driver keeps for
                    // itself.
                    let words = at.byte_add(size_of::<vk::BaseOutStructure<'_>>());
                    words.cast::<[u32; 3]>().write([256, 1024, 8192]);
                },
                _ => {}
            }
        };
    }
    answers! {
        PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES = PhysicalDeviceMaintenance3Properties {
            max_memory_allocation_size: limits.allocation,
            max_per_set_descriptors: 1 << 20,
        }
        PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES = PhysicalDeviceMaintenance4Properties {
            max_buffer_size: limits.buffer,
        }
        PHYSICAL_DEVICE_SUBGROUP_PROPERTIES = PhysicalDeviceSubgroupProperties {
            subgroup_size: limits.subgroup,
            supported_stages: vk::ShaderStageFlags::ALL,
            supported_operations: operations,
        }
        PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES = PhysicalDeviceVulkan11Properties {
            subgroup_size: limits.subgroup,
            subgroup_supported_stages: vk::ShaderStageFlags::ALL,
            device_uuid: uuid,
            subgroup_supported_operations: operations,
            max_memory_allocation_size: limits.allocation,
        }
        PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES = PhysicalDeviceVulkan12Properties {
            shader_rounding_mode_rte_float16: 1,
            shader_denorm_preserve_float16: 1,
        }
        PHYSICAL_DEVICE_ID_PROPERTIES = PhysicalDeviceIDProperties { device_uuid: uuid }
        PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES = PhysicalDeviceSubgroupSizeControlProperties {
            min_subgroup_size: limits.subgroup.min(32),
            max_subgroup_size: limits.subgroup,
            max_compute_workgroup_subgroups: 1024,
            required_subgroup_size_stages: vk::ShaderStageFlags::COMPUTE,
        }
        PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES = PhysicalDeviceShaderIntegerDotProductProperties {
            integer_dot_product4x8_bit_packed_signed_accelerated: 1,
            integer_dot_product4x8_bit_packed_mixed_signedness_accelerated: 1,
        }
        PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD = PhysicalDeviceShaderCorePropertiesAMD {
            wavefronts_per_simd: 16,
        }
        PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD = PhysicalDeviceShaderCoreProperties2AMD {
            active_compute_unit_count: limits.cores,
        }
        PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV = PhysicalDeviceShaderSMBuiltinsPropertiesNV {
            shader_sm_count: card.processors,
            shader_warps_per_sm: card.limits().threads / 32,
        }
        PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT = PhysicalDeviceExternalMemoryHostPropertiesEXT {
            min_imported_host_pointer_alignment: 4096,
        }
        PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT = PhysicalDevicePCIBusInfoPropertiesEXT {
            pci_domain: 0,
            pci_bus: bus,
            pci_device: 0,
            pci_function: 0,
        }
    }
}

/// # Safety
/// A card's object, and a chain of structures of Vulkan.
unsafe fn of(physical: u64) -> Option<(usize, &'static Card)> {
    // SAFETY: the caller's promise.
    let number = unsafe { Dispatchable::card_of(physical) };
    Some((number, card(number)?))
}

/// Calls `fill` with each structure of a chain.
///
/// # Safety
/// A chain of structures of Vulkan, or null.
pub(in crate::vulkan) unsafe fn each(mut next: *mut c_void, mut fill: impl FnMut(Kind, *mut c_void)) {
    // SAFETY: the caller's promise; each begins with its type and the address of the next.
    while let Some(head) = unsafe { next.cast::<vk::BaseOutStructure<'static>>().as_ref() } {
        fill(head.s_type, next);
        next = head.p_next.cast();
    }
}

/// Writes text and a zero behind it; what is too long is cut.
pub(in crate::vulkan) fn write_text(place: &mut [c_char], text: &[u8]) {
    let most = place.len() - 1;
    for (place, byte) in place.iter_mut().zip(text.iter().take(most).chain(&[0])) {
        *place = c_char::from_ne_bytes([*byte]);
    }
}

/// Sets so many words.
///
/// # Safety
/// The address of as many words.
unsafe fn all_true(place: *mut c_void, words: usize) {
    for at in 0..words {
        // SAFETY: the caller's promise.
        unsafe { place.cast::<u32>().add(at).write(vk::TRUE) };
    }
}
