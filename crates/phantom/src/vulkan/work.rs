//! Simulates Vulkan functions for objects, commands and waiting, which succeed at once and compute nothing.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ash::vk;

use super::Dispatchable;

/// Calls that leave no trace: what they would do is done.
#[rustfmt::skip]
const DONE: [&str; 22] = [
    "vkCmd", "vkDestroy", "vkFree", "vkReset", "vkUpdate", "vkBegin", "vkEnd", "vkQueue", "vkBind",
    "vkDeviceWait", "vkSet", "vkUnmap", "vkFlush", "vkInvalidate", "vkWait", "vkSignal", "vkGetFence",
    // The real loader wants these of every driver (`vulkan-loader: loader_icd_init_entries`).
    "vkGetPhysicalDeviceFormat", "vkGetPhysicalDeviceImage", "vkGetPhysicalDeviceSparse",
    "vkGetPhysicalDeviceExternal", "vkEnumerateDeviceLayer",
];
/// Objects that nothing is asked of.
#[rustfmt::skip]
const CREATED: [&str; 9] = [
    "vkCreateShaderModule", "vkCreatePipelineLayout", "vkCreatePipelineCache", "vkCreateDescriptor",
    "vkCreateCommandPool", "vkCreateEvent", "vkCreateFence", "vkCreateSemaphore", "vkCreateQueryPool",
];

/// The function for a name that begins as one of those.
pub(super) fn usual(name: &str) -> Option<*const c_void> {
    let begins = |names: &[&str]| names.iter().any(|start| name.starts_with(start));
    match name {
        _ if begins(&CREATED) => Some(make as *const c_void),
        _ if begins(&DONE) => Some(done as *const c_void),
        _ => None,
    }
}

/// A new handle.
pub(super) fn handle() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(16);
    NEXT.fetch_add(16, Relaxed)
}

extern "system" fn done() -> vk::Result {
    vk::Result::SUCCESS
}

/// # Safety
/// As of Vulkan.
unsafe extern "system" fn make(_: u64, _: *const c_void, _: *const c_void, created: *mut u64) -> vk::Result {
    // SAFETY: the caller's promise.
    unsafe { make_each(created, 1, handle) }
}

/// # Safety
/// Room for so many handles.
unsafe fn make_each(created: *mut u64, count: u32, mut handle: impl FnMut() -> u64) -> vk::Result {
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller's promise.
        unsafe { created.add(at).write(handle()) };
    }
    vk::Result::SUCCESS
}

vulkan! {
    fn vkGetEventStatus() -> vk::Result { vk::Result::EVENT_SET }

    fn vkCreateComputePipelines(
        _: u64, _: u64, count: u32, _: *const c_void, _: *const c_void, created: *mut u64,
    ) -> vk::Result {
        make_each(created, count, handle)
    }

    fn vkAllocateDescriptorSets(
        _: u64, params: *const vk::DescriptorSetAllocateInfo<'static>, created: *mut u64,
    ) -> vk::Result {
        make_each(created, (*params).descriptor_set_count, handle)
    }

    fn vkAllocateCommandBuffers(
        device: u64, params: *const vk::CommandBufferAllocateInfo<'static>, created: *mut u64,
    ) -> vk::Result {
        let card = Dispatchable::card_of(device);
        make_each(created, (*params).command_buffer_count, || Dispatchable::make(card))
    }

    /// Everything that a semaphore could count to has happened.
    fn vkGetSemaphoreCounterValue(_: u64, _: u64, value: *mut u64) -> vk::Result {
        value.write(u64::MAX);
        vk::Result::SUCCESS
    }

    /// Addresses for shaders, which do not run.
    fn vkGetBufferDeviceAddress(_: u64, requested: *const vk::BufferDeviceAddressInfo<'static>) -> u64 {
        vk::Handle::as_raw((*requested).buffer) << 32
    }

    fn vkGetQueryPoolResults(_: u64, _: u64, _: u32, _: u32, size: usize, data: *mut u8) -> vk::Result {
        data.write_bytes(0, size);
        vk::Result::SUCCESS
    }
}
