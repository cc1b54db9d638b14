//! Creation and end of instances, and the next layer's functions of an instance.

use alloc::vec::Vec;
use core::ffi::CStr;
use core::mem::transmute_copy;

use ash::vk;
use plimsoll_nostd::lock::Lock;

use super::cards::PhysicalCard;
use super::chain::{InstanceFunctions, InstanceLink, take_link};
use super::table::{add_instance, find_instance, remove_instance};

/// An instance, with the next layer's functions.
pub(super) struct Instance {
    pub(super) handle: vk::Instance,
    pub(super) functions: InstanceFunctions,
    pub(super) enumerate: vk::PFN_vkEnumeratePhysicalDevices,
    pub(super) enumerate_groups: Option<vk::PFN_vkEnumeratePhysicalDeviceGroups>,
    pub(super) properties: vk::PFN_vkGetPhysicalDeviceProperties,
    pub(super) properties_2: Option<vk::PFN_vkGetPhysicalDeviceProperties2>,
    pub(super) memory: vk::PFN_vkGetPhysicalDeviceMemoryProperties,
    pub(super) memory_2: Option<vk::PFN_vkGetPhysicalDeviceMemoryProperties2>,
    destroy: vk::PFN_vkDestroyInstance,
    /// Its physical devices, once the program has listed them.
    pub(super) cards: Lock<Vec<PhysicalCard>>,
}

impl Instance {
    /// # Safety
    /// `handle` is an instance of the layer that `functions` belongs to.
    unsafe fn new(handle: vk::Instance, functions: InstanceFunctions) -> Option<Self> {
        // SAFETY: the caller's promise; each function is cast to the type that Vulkan gives its name.
        unsafe {
            let named = |name: &CStr| functions(handle, name.as_ptr());
            let either = |name, khr| named(name).or_else(|| named(khr));
            Some(Self {
                handle,
                functions,
                enumerate: cast(named(c"vkEnumeratePhysicalDevices"))?,
                enumerate_groups: cast(either(
                    c"vkEnumeratePhysicalDeviceGroups",
                    c"vkEnumeratePhysicalDeviceGroupsKHR",
                )),
                properties: cast(named(c"vkGetPhysicalDeviceProperties"))?,
                properties_2: cast(either(
                    c"vkGetPhysicalDeviceProperties2",
                    c"vkGetPhysicalDeviceProperties2KHR",
                )),
                memory: cast(named(c"vkGetPhysicalDeviceMemoryProperties"))?,
                memory_2: cast(either(
                    c"vkGetPhysicalDeviceMemoryProperties2",
                    c"vkGetPhysicalDeviceMemoryProperties2KHR",
                )),
                destroy: cast(named(c"vkDestroyInstance"))?,
                cards: Lock::new(Vec::new()),
            })
        }
    }
}

/// A function that may be missing, as its own type.
///
/// # Safety
/// `T` is the type of the function.
pub(super) unsafe fn cast<T>(function: vk::PFN_vkVoidFunction) -> Option<T> {
    // SAFETY: the caller's promise; function pointers have one size.
    function.map(|function| unsafe { transmute_copy(&function) })
}

/// `vkCreateInstance`.
///
/// # Safety
/// As of Vulkan, called by its loader.
pub(super) unsafe extern "system" fn create(
    params: *const vk::InstanceCreateInfo<'static>,
    allocator: *const vk::AllocationCallbacks<'static>,
    created: *mut vk::Instance,
) -> vk::Result {
    // SAFETY: the caller's promise; the next layer gets what we got, with its own link.
    unsafe {
        let kind = vk::StructureType::LOADER_INSTANCE_CREATE_INFO;
        let Some(link): Option<&InstanceLink> = take_link((*params).p_next, kind) else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let functions = link.functions;
        let create = functions(vk::Instance::null(), c"vkCreateInstance".as_ptr());
        let Some(create) = cast::<vk::PFN_vkCreateInstance>(create) else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let result = create(params, allocator, created);
        if result != vk::Result::SUCCESS {
            return result;
        }
        match Instance::new(*created, functions) {
            Some(instance) => {
                add_instance(instance);
                result
            }
            None => vk::Result::ERROR_INITIALIZATION_FAILED,
        }
    }
}

/// `vkDestroyInstance`.
///
/// # Safety
/// As of Vulkan.
pub(super) unsafe extern "system" fn destroy(
    instance: vk::Instance,
    allocator: *const vk::AllocationCallbacks<'static>,
) {
    if let Some(known) = find_instance(instance) {
        remove_instance(instance);
        // SAFETY: the caller's promise.
        unsafe { (known.destroy)(instance, allocator) }
    }
}
