//! Hooks of the creation and destruction of Vulkan instances, which keep the next layer's functions of each
//! instance.

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
            None => {
                // Nobody else would end an instance that the program does not get.
                let destroy = functions(*created, c"vkDestroyInstance".as_ptr());
                if let Some(destroy) = cast::<vk::PFN_vkDestroyInstance>(destroy) {
                    destroy(*created, allocator);
                }
                created.write(vk::Instance::null());
                vk::Result::ERROR_INITIALIZATION_FAILED
            }
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

#[cfg(test)]
mod tests {
    use core::ffi::c_char;
    use core::ptr::null;
    use core::sync::atomic::AtomicUsize;
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::vulkan::chain::with_link;

    static LIVE: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "system" fn make(_: *const (), _: *const (), created: *mut vk::Instance) -> vk::Result {
        LIVE.fetch_add(1, Relaxed);
        // SAFETY: the place is the caller's.
        unsafe { created.write(vk::Handle::from_raw(7)) };
        vk::Result::SUCCESS
    }

    unsafe extern "system" fn end(_: vk::Instance, _: *const ()) {
        LIVE.fetch_sub(1, Relaxed);
    }

    /// A driver that can do no more than make an instance and end it.
    unsafe extern "system" fn functions(_: vk::Instance, name: *const c_char) -> vk::PFN_vkVoidFunction {
        // SAFETY: a C string.
        let found = match unsafe { CStr::from_ptr(name) }.to_bytes() {
            b"vkCreateInstance" => make as *const (),
            b"vkDestroyInstance" => end as *const (),
            _ => return None,
        };
        // SAFETY: the address of a function; the caller knows its type by its name.
        unsafe { core::mem::transmute::<*const (), vk::PFN_vkVoidFunction>(found) }
    }

    #[test]
    fn an_instance_of_a_driver_without_a_needed_function_is_ended() {
        let result = with_link(functions, |chain| {
            let params = vk::InstanceCreateInfo { p_next: chain, ..Default::default() };
            let mut created = vk::Instance::null();
            // SAFETY: parameters of Vulkan with the loader's link.
            let result = unsafe { create(&raw const params, null(), &raw mut created) };
            (result, created)
        });
        assert_eq!(result, (vk::Result::ERROR_INITIALIZATION_FAILED, vk::Instance::null()));
        assert_eq!(LIVE.load(Relaxed), 0);
    }
}
