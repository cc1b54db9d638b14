//! Vulkan without a card: a driver for Vulkan's loader, and the loader itself for a machine without one.
//!
//! - `device`: cards, their properties, features, memory types and extensions.
//! - `object`: cards, devices, queues and command buffers.
//! - `memory`: buffers and the memory behind them.
//! - `work`: commands and waiting, which succeed at once and compute nothing.

mod device;
mod memory;
mod object;
mod work;

use core::ffi::{CStr, c_char, c_void};

use ash::vk;

/// The function with this name; null for one that no engine calls.
///
/// # Safety
/// A C string.
unsafe fn function(name: *const c_char) -> vk::PFN_vkVoidFunction {
    // DECISION: an engine's Vulkan backend takes nearly every function from `vkGetInstanceProcAddr`. So one
    // table of names serves the preloaded library (`libvulkan.so.1`) and the driver behind a real loader
    // (`vk_icdGetInstanceProcAddr`).

    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("");
    let found = match name {
        "vkGetInstanceProcAddr" => vkGetInstanceProcAddr as *const c_void,
        "vkGetDeviceProcAddr" => vkGetDeviceProcAddr as *const c_void,
        _ => device::function(name).or_else(|| memory::function(name)).or_else(|| work::function(name))?,
    };
    // SAFETY: the address of a function; the caller knows its type by its name.
    unsafe { core::mem::transmute::<*const c_void, vk::PFN_vkVoidFunction>(found) }
}

/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "system" fn vkGetInstanceProcAddr(
    _instance: u64,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller's promise.
    unsafe { function(name) }
}

/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "system" fn vkGetDeviceProcAddr(
    _device: u64,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller's promise.
    unsafe { function(name) }
}

/// The table of names for Vulkan's loader.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "system" fn vk_icdGetInstanceProcAddr(
    _instance: u64,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller's promise.
    unsafe { function(name) }
}

/// The functions of a card for Vulkan's loader, which would take one that is newer than itself for a device's.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "system" fn vk_icdGetPhysicalDeviceProcAddr(
    _instance: u64,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller's promise.
    let of_card = unsafe { CStr::from_ptr(name) }.to_bytes().starts_with(b"vkGetPhysicalDevice");
    // SAFETY: the caller's promise.
    if of_card { unsafe { function(name) } } else { None }
}

/// The loader's interface, of which 5 is the last that needs nothing more (`LoaderDriverInterface.md`).
///
/// # Safety
/// The address of a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "system" fn vk_icdNegotiateLoaderICDInterfaceVersion(
    version: *mut u32,
) -> vk::Result {
    // SAFETY: the caller's promise.
    if let Some(version) = unsafe { version.as_mut() } {
        *version = (*version).min(5);
    }
    vk::Result::SUCCESS
}

/// Linked with by ggml-vulkan, beside the functions that it asks for by name.
///
/// # Safety
/// As of Vulkan.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "system" fn vkGetPhysicalDeviceFeatures2(
    card: u64,
    features: *mut vk::PhysicalDeviceFeatures2<'static>,
) {
    // SAFETY: the caller's promise.
    unsafe { device::features2(card, features) }
}

/// Linked with by ggml-vulkan. Nothing is copied.
#[unsafe(no_mangle)]
pub(crate) extern "system" fn vkCmdCopyBuffer() {}
