//! Vulkan buffers, their memory, and its mappings.
//!
//! Memory that the host may map is real; memory of the card is only an address range.

use alloc::collections::BTreeMap;
use core::ffi::c_void;
use core::ptr::with_exposed_provenance_mut;

use ash::vk;
use plimsoll_nostd::lock::Lock;

use super::device::{DISCRETE, each};
use super::object::{Dispatchable, address, card};
use crate::machine::machine;
use crate::memory::Kind;

/// Sizes of the buffers, by handle.
static BUFFERS: Lock<BTreeMap<u64, u64>> = Lock::new(BTreeMap::new());

pub(super) fn function(name: &str) -> Option<*const c_void> {
    Some(match name {
        "vkCreateBuffer" => create_buffer as *const c_void,
        "vkDestroyBuffer" => destroy_buffer as *const c_void,
        "vkGetBufferMemoryRequirements" => requirements as *const c_void,
        "vkGetBufferMemoryRequirements2" | "vkGetBufferMemoryRequirements2KHR" => {
            requirements2 as *const c_void
        }
        "vkAllocateMemory" => allocate as *const c_void,
        "vkFreeMemory" => free as *const c_void,
        "vkMapMemory" => map as *const c_void,
        "vkGetMemoryHostPointerPropertiesEXT" => host_pointer as *const c_void,
        _ => return None,
    })
}

/// # Safety
/// As of Vulkan.
unsafe extern "system" fn create_buffer(
    _device: u64,
    wish: *const vk::BufferCreateInfo<'static>,
    _allocator: *const c_void,
    made: *mut u64,
) -> vk::Result {
    // SAFETY: the caller's promise.
    unsafe {
        made.write(super::work::handle());
        BUFFERS.hold().insert(*made, (*wish).size);
    }
    vk::Result::SUCCESS
}

extern "system" fn destroy_buffer(_device: u64, buffer: u64) {
    BUFFERS.hold().remove(&buffer);
}

/// # Safety
/// As of Vulkan.
unsafe extern "system" fn requirements(device: u64, buffer: u64, said: *mut vk::MemoryRequirements) {
    // SAFETY: the caller's promise.
    let Some(card) = card(unsafe { Dispatchable::card_of(device) }) else {
        return;
    };
    let size = BUFFERS.hold().get(&buffer).copied().unwrap_or(0);
    let types: u32 = if card.integrated { 1 } else { (1 << DISCRETE.len()) - 1 };
    let size = size.checked_next_multiple_of(card.vulkan.round).unwrap_or(size);
    let alignment = card.vulkan.round.max(16);
    // SAFETY: the caller's promise.
    unsafe { said.write(vk::MemoryRequirements { size, alignment, memory_type_bits: types }) };
}

/// # Safety
/// As of Vulkan.
unsafe extern "system" fn requirements2(
    device: u64,
    asked: *const vk::BufferMemoryRequirementsInfo2<'static>,
    said: *mut vk::MemoryRequirements2<'static>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        requirements(device, vk::Handle::as_raw((*asked).buffer), &raw mut (*said).memory_requirements);
    }
}

/// # Safety
/// As of Vulkan.
unsafe extern "system" fn allocate(
    device: u64,
    wish: *const vk::MemoryAllocateInfo<'static>,
    _allocator: *const c_void,
    made: *mut u64,
) -> vk::Result {
    // SAFETY: the caller's promise.
    let (number, size, kind) =
        unsafe { (Dispatchable::card_of(device), (*wish).allocation_size, (*wish).memory_type_index) };
    let (Some(card), Ok(bytes)) = (card(number), usize::try_from(size)) else {
        return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    };
    // SAFETY: the caller's promise.
    if let Some(imported) = unsafe { imported(wish) } {
        // SAFETY: the caller's promise.
        unsafe { made.write(address(imported)) };
        return vk::Result::SUCCESS;
    }
    let kind = match kind {
        _ if card.integrated => Kind::VulkanMapped,
        0 => Kind::Vulkan,
        2 => Kind::VulkanMapped,
        _ => Kind::Host,
    };
    let place = machine().memory.take(kind, number, bytes);
    if place.is_null() {
        return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    }
    // SAFETY: the caller's promise.
    unsafe { made.write(address(place.expose_provenance())) };
    vk::Result::SUCCESS
}

/// The program's own memory, where it is made known to the card: nothing is taken for it.
///
/// # Safety
/// As of Vulkan.
unsafe fn imported(wish: *const vk::MemoryAllocateInfo<'static>) -> Option<usize> {
    let mut found = None;
    // SAFETY: the caller's promise.
    unsafe {
        each((*wish).p_next.cast_mut(), |kind, at| {
            if kind == vk::StructureType::IMPORT_MEMORY_HOST_POINTER_INFO_EXT {
                let wish = &*at.cast::<vk::ImportMemoryHostPointerInfoEXT<'static>>();
                found = Some(wish.p_host_pointer.expose_provenance());
            }
        });
    }
    found
}

/// # Safety
/// As of Vulkan.
unsafe extern "system" fn host_pointer(
    _device: u64,
    _kind: u32,
    _pointer: *const c_void,
    said: *mut vk::MemoryHostPointerPropertiesEXT<'static>,
) -> vk::Result {
    // The first type of a card that uses the host's memory, and the host's types of another.
    // SAFETY: the caller's promise.
    unsafe { (*said).memory_type_bits = 0b1011 };
    vk::Result::SUCCESS
}

extern "system" fn free(_device: u64, memory: u64) {
    machine().memory.give(with_exposed_provenance_mut(usize::try_from(memory).unwrap_or(0)));
}

/// # Safety
/// As of Vulkan. An engine maps only memory of a type that the host reaches.
unsafe extern "system" fn map(
    _device: u64,
    memory: u64,
    offset: u64,
    _size: u64,
    _flags: u32,
    place: *mut *mut c_void,
) -> vk::Result {
    let Some(at) = memory.checked_add(offset).and_then(|at| usize::try_from(at).ok()) else {
        return vk::Result::ERROR_MEMORY_MAP_FAILED;
    };
    // SAFETY: the caller's promise.
    unsafe { place.write(with_exposed_provenance_mut(at)) };
    vk::Result::SUCCESS
}
