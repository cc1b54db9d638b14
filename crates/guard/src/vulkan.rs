//! Layer of Vulkan's loader, `VK_LAYER_PLIMSOLL_guard`, which counts and limits the memory of Vulkan
//! programs.
//!
//! It is the same library as the one for CUDA, with the same page, ledger and ladder. The loader finds it by
//! a manifest and calls [`vkNegotiateLoaderLayerInterfaceVersion`].
//!
//! - `chain`: how the loader links layers; `table`: known instances and devices.
//! - `instance`, `device`: their creation and end; `cards`: physical devices as cards.
//! - `figures`: answers to memory queries; `heaps`: their arithmetic.
//! - `memory`: allocations; `shared`: those that are exported and imported.
//! - `requests`: what each thread is about to allocate.
//!
//! Functions that are not hooked are the next layer's own, so commands cost nothing.
//!
//! DECISION: types of Vulkan come from `ash` without its loader, as in the phantom: they are generated from
//! the Vulkan registry, and a type that is not used adds nothing to the library.

mod cards;
mod chain;
mod device;
mod figures;
mod heaps;
mod instance;
mod memory;
mod requests;
mod shared;
mod table;

use core::ffi::{CStr, c_char, c_void};

use ash::vk;

use self::chain::NegotiateLayerInterface;
use self::table::{find_device, find_instance};

/// The loader's interface for layers that needs no further export (`LoaderLayerInterface.md`).
const INTERFACE: u32 = 2;

/// # Safety
/// `negotiation` is null, or the structure that the loader fills and reads (`vk_layer.h`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "system" fn vkNegotiateLoaderLayerInterfaceVersion(
    negotiation: *mut NegotiateLayerInterface,
) -> vk::Result {
    // SAFETY: as the caller promises.
    let Some(negotiation) = (unsafe { negotiation.as_mut() }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    if !negotiation.is_known() || negotiation.version < INTERFACE {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    }
    negotiation.version = INTERFACE;
    negotiation.instance_functions = Some(vkGetInstanceProcAddr);
    negotiation.device_functions = Some(vkGetDeviceProcAddr);
    negotiation.physical_device_functions = None;
    vk::Result::SUCCESS
}

/// The layer's function of this name.
///
/// # Safety
/// A C string, and an instance that this layer has created, or null.
unsafe extern "system" fn vkGetInstanceProcAddr(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(name) };
    if let Some(global) = global_hook(text) {
        return function(global);
    }
    let known = find_instance(instance)?;
    // SAFETY: the next layer's function, with what the caller passed.
    let next = unsafe { (known.functions)(instance, name) }?;
    let ours = instance_hook(text).or_else(|| device_hook(text));
    ours.map_or(Some(next), function)
}

/// The layer's function of this name for a device.
///
/// # Safety
/// A C string and a device.
unsafe extern "system" fn vkGetDeviceProcAddr(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    let known = find_device(device)?;
    // SAFETY: the next layer's function, with what the caller passed. One that it lacks is not hooked.
    let next = unsafe { (known.functions)(device, name) }?;
    // SAFETY: the caller's promise.
    device_hook(unsafe { CStr::from_ptr(name) }).map_or(Some(next), function)
}

fn function(found: *const c_void) -> vk::PFN_vkVoidFunction {
    // SAFETY: the address of a function; the caller knows its type by its name.
    unsafe { core::mem::transmute::<*const c_void, vk::PFN_vkVoidFunction>(found) }
}

/// Declares a lookup of hooks by the names that they have in Vulkan.
macro_rules! lookup {
    ($(#[$about:meta])* fn $lookup:ident; $($($name:literal)|+ => $hook:path,)*) => {
        $(#[$about])*
        fn $lookup(name: &CStr) -> Option<*const c_void> {
            Some(match name.to_bytes() {
                $($($name)|+ => $hook as *const c_void,)*
                _ => return None,
            })
        }
    };
}

lookup! {
    /// Functions that need no instance.
    fn global_hook;
    b"vkGetInstanceProcAddr" => vkGetInstanceProcAddr,
    b"vkCreateInstance" => instance::create,
}

lookup! {
    fn instance_hook;
    b"vkDestroyInstance" => instance::destroy,
    b"vkEnumeratePhysicalDevices" => cards::enumerate,
    b"vkEnumeratePhysicalDeviceGroups" | b"vkEnumeratePhysicalDeviceGroupsKHR" => cards::enumerate_groups,
    b"vkGetPhysicalDeviceMemoryProperties" => figures::memory_properties,
    b"vkGetPhysicalDeviceMemoryProperties2" | b"vkGetPhysicalDeviceMemoryProperties2KHR"
        => figures::memory_properties_2,
    b"vkCreateDevice" => device::create,
}

lookup! {
    fn device_hook;
    b"vkGetDeviceProcAddr" => vkGetDeviceProcAddr,
    b"vkDestroyDevice" => device::destroy,
    b"vkAllocateMemory" => memory::allocate,
    b"vkFreeMemory" => memory::free,
    b"vkGetMemoryFdKHR" => memory::export,
    b"vkGetBufferMemoryRequirements" => memory::requirements,
    b"vkGetBufferMemoryRequirements2" | b"vkGetBufferMemoryRequirements2KHR" => memory::requirements_2,
}
