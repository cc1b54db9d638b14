//! Simulates Vulkan buffers, their memory, and its mappings.
//!
//! Memory that the host may map is real; memory of the card is only an address range.

use alloc::collections::BTreeMap;
use core::ffi::c_void;
use core::ptr::with_exposed_provenance_mut;

use ash::vk;

use super::answers::{DISCRETE, each};
use super::{Dispatchable, address, card};
use crate::machine::machine;
use crate::memory::Kind;
use crate::system::Lock;

/// Sizes of the buffers, by handle.
static BUFFERS: Lock<BTreeMap<u64, u64>> = Lock::new(BTreeMap::new());

vulkan! {
    fn vkCreateBuffer(
        _device: u64, params: *const vk::BufferCreateInfo<'static>, _allocator: *const c_void, created: *mut u64,
    ) -> vk::Result {
        created.write(super::work::handle());
        BUFFERS.hold().insert(*created, (*params).size);
        vk::Result::SUCCESS
    }

    fn vkDestroyBuffer(_device: u64, buffer: u64) { BUFFERS.hold().remove(&buffer); }

    fn vkGetBufferMemoryRequirements(device: u64, buffer: u64, stated: *mut vk::MemoryRequirements) {
        let Some(card) = card(Dispatchable::card_of(device)) else { return };
        let size = BUFFERS.hold().get(&buffer).copied().unwrap_or(0);
        let memory_type_bits = if card.integrated { 1 } else { (1 << DISCRETE.len()) - 1 };
        let size = size.checked_next_multiple_of(card.vulkan.round).unwrap_or(size);
        let alignment = card.vulkan.round.max(16);
        stated.write(vk::MemoryRequirements { size, alignment, memory_type_bits });
    }

    fn vkGetBufferMemoryRequirements2(
        device: u64, requested: *const vk::BufferMemoryRequirementsInfo2<'static>,
        stated: *mut vk::MemoryRequirements2<'static>,
    ) {
        let buffer = vk::Handle::as_raw((*requested).buffer);
        vkGetBufferMemoryRequirements(device, buffer, &raw mut (*stated).memory_requirements);
    }

    fn vkAllocateMemory(
        device: u64, params: *const vk::MemoryAllocateInfo<'static>, _allocator: *const c_void, created: *mut u64,
    ) -> vk::Result {
        let number = Dispatchable::card_of(device);
        let (Some(card), Ok(bytes)) = (card(number), usize::try_from((*params).allocation_size)) else {
            return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
        };
        if let Some(imported) = imported(params) {
            created.write(address(imported));
            return vk::Result::SUCCESS;
        }
        let kind = match (*params).memory_type_index {
            _ if card.integrated => Kind::VulkanMapped,
            0 => Kind::Vulkan,
            2 => Kind::VulkanMapped,
            _ => Kind::Host,
        };
        let place = machine().memory.take(kind, number, bytes);
        if place.is_null() {
            return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
        }
        created.write(address(place.expose_provenance()));
        vk::Result::SUCCESS
    }

    fn vkFreeMemory(_device: u64, memory: u64) {
        machine().memory.give(with_exposed_provenance_mut(usize::try_from(memory).unwrap_or(0)));
    }

    /// An engine maps only memory of a type that the host reaches.
    fn vkMapMemory(
        _device: u64, memory: u64, offset: u64, _size: u64, _flags: u32, place: *mut *mut c_void,
    ) -> vk::Result {
        let Some(at) = memory.checked_add(offset).and_then(|at| usize::try_from(at).ok()) else {
            return vk::Result::ERROR_MEMORY_MAP_FAILED;
        };
        place.write(with_exposed_provenance_mut(at));
        vk::Result::SUCCESS
    }

    /// The first type of a card that uses the host's memory, and the host's types of another.
    fn vkGetMemoryHostPointerPropertiesEXT(
        _device: u64, _kind: u32, _pointer: *const c_void, stated: *mut vk::MemoryHostPointerPropertiesEXT<'static>,
    ) -> vk::Result {
        (*stated).memory_type_bits = 0b1011;
        vk::Result::SUCCESS
    }
}

/// The program's own memory, where it is made known to the card: nothing is taken for it.
///
/// # Safety
/// As of Vulkan.
unsafe fn imported(params: *const vk::MemoryAllocateInfo<'static>) -> Option<usize> {
    let mut found = None;
    // SAFETY: the caller's promise.
    unsafe {
        each((*params).p_next.cast_mut(), |kind, at| {
            if kind == vk::StructureType::IMPORT_MEMORY_HOST_POINTER_INFO_EXT {
                let params = &*at.cast::<vk::ImportMemoryHostPointerInfoEXT<'static>>();
                found = Some(params.p_host_pointer.expose_provenance());
            }
        });
    }
    found
}
