//! Defines the structures with which Vulkan's loader links layers (`vk_layer.h`), and searches Vulkan's
//! chains of structures.

use core::ffi::{c_char, c_int, c_void};

use ash::vk;

pub(super) type InstanceFunctions =
    unsafe extern "system" fn(vk::Instance, *const c_char) -> vk::PFN_vkVoidFunction;
pub(super) type DeviceFunctions =
    unsafe extern "system" fn(vk::Device, *const c_char) -> vk::PFN_vkVoidFunction;

/// `VkNegotiateLayerInterface`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct NegotiateLayerInterface {
    kind: c_int,
    next: *mut c_void,
    pub(super) version: u32,
    pub(super) instance_functions: Option<InstanceFunctions>,
    pub(super) device_functions: Option<DeviceFunctions>,
    pub(super) physical_device_functions: Option<InstanceFunctions>,
}

impl NegotiateLayerInterface {
    pub(super) fn is_known(&self) -> bool {
        /// LAYER_NEGOTIATE_INTERFACE_STRUCT.
        const KIND: c_int = 1;
        self.kind == KIND
    }
}

/// `VkLayerInstanceLink` and `VkLayerDeviceLink`: the functions of the next layer.
#[repr(C)]
#[derive(Debug)]
pub(super) struct LayerLink<Second> {
    next: *mut Self,
    pub(super) functions: InstanceFunctions,
    pub(super) second: Second,
}

pub(super) type InstanceLink = LayerLink<Option<InstanceFunctions>>;
pub(super) type DeviceLink = LayerLink<DeviceFunctions>;

/// `VkLayerInstanceCreateInfo` and `VkLayerDeviceCreateInfo`.
#[repr(C)]
struct LayerCreateInfo<Second> {
    kind: vk::StructureType,
    next: *const c_void,
    function: c_int,
    link: *mut LayerLink<Second>,
}

/// Takes the next layer's link out of the chain of a creation, so that the next layer finds its own.
///
/// # Safety
/// A chain of structures in which those of this kind are the loader's.
pub(super) unsafe fn take_link<Second>(
    chain: *const c_void,
    kind: vk::StructureType,
) -> Option<&'static LayerLink<Second>> {
    /// VK_LAYER_LINK_INFO.
    const LINK: c_int = 0;
    // SAFETY: the caller's promise. The loader lets layers write to its structure.
    unsafe {
        let is_link = |at: *const c_void| (*at.cast::<LayerCreateInfo<Second>>()).function == LINK;
        let info = find(chain, |of, at| of == kind && is_link(at))?;
        let info = &mut *info.cast::<LayerCreateInfo<Second>>().cast_mut();
        let link = info.link.as_ref()?;
        info.link = link.next;
        Some(link)
    }
}

/// The first structure of a chain for which `fits` is true.
///
/// # Safety
/// A chain of structures of Vulkan, or null.
pub(super) unsafe fn find(
    mut next: *const c_void,
    fits: impl Fn(vk::StructureType, *const c_void) -> bool,
) -> Option<*const c_void> {
    // SAFETY: the caller's promise; each begins with its kind and the address of the next.
    while let Some(head) = unsafe { next.cast::<vk::BaseInStructure<'static>>().as_ref() } {
        if fits(head.s_type, next) {
            return Some(next);
        }
        next = head.p_next.cast();
    }
    None
}

/// The structure of this type in a chain.
///
/// # Safety
/// A chain of structures of Vulkan that lives as long as the reference, or null.
pub(super) unsafe fn structure<'a, T: vk::TaggedStructure>(chain: *const c_void) -> Option<&'a T> {
    // SAFETY: the caller's promise; a structure of this kind is a `T`.
    unsafe { find(chain, |kind, _| kind == T::STRUCTURE_TYPE).and_then(|found| found.cast::<T>().as_ref()) }
}

/// Calls `act` with the chain of an instance's creation, whose next layer has these functions.
#[cfg(test)]
pub(super) fn with_link<T>(functions: InstanceFunctions, act: impl FnOnce(*const c_void) -> T) -> T {
    let mut link = LayerLink { next: core::ptr::null_mut(), functions, second: None::<InstanceFunctions> };
    let info = LayerCreateInfo {
        kind: vk::StructureType::LOADER_INSTANCE_CREATE_INFO,
        next: core::ptr::null(),
        function: 0,
        link: &raw mut link,
    };
    act((&raw const info).cast())
}
