//! Simulates Vulkan without a card: as a driver for Vulkan's loader, or as the loader itself if none is
//! installed.
//!
//! - `device`: cards, their queues and extensions; `answers`: their properties, features and memory types.
//! - `memory`: buffers and the memory behind them.
//! - `work`: commands and waiting, which succeed at once and compute nothing.

/// Functions by their names in Vulkan, and the lookup over the names. Functions that end in `KHR` have no
/// such ending here. Their pointers are valid for their types.
macro_rules! vulkan {
    ($($(#[$about:meta])* fn $name:ident($($given:tt: $type:ty),* $(,)?) $(-> $answer:ty)? $body:block)*) => {
        pub(in crate::vulkan) fn function(name: &str) -> Option<*const c_void> {
            Some(match name {
                $(stringify!($name) => $name as *const c_void,)*
                _ => return None,
            })
        }

        $(
            $(#[$about])*
            /// # Safety
            /// As of Vulkan.
            #[allow(non_snake_case, unused_unsafe, reason = "Vulkan's name; some need no promise")]
            pub(in crate::vulkan) unsafe extern "system" fn $name($($given: $type),*) $(-> $answer)? {
                // SAFETY: the caller's promise.
                unsafe { $body }
            }
        )*
    };
}

mod answers;
mod device;
mod memory;
mod work;

use alloc::boxed::Box;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::AtomicUsize;

use ash::vk;

use crate::cards::Card;
use crate::machine::machine;

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
    let name = name.strip_suffix("KHR").unwrap_or(name);
    let found = match name {
        "vkGetInstanceProcAddr" | "vkGetDeviceProcAddr" => named as *const c_void,
        _ => {
            let tables = [answers::function, device::function, memory::function, work::function, work::usual];
            tables.into_iter().find_map(|table| table(name))?
        }
    };
    // SAFETY: the address of a function; the caller knows its type by its name.
    unsafe { core::mem::transmute::<*const c_void, vk::PFN_vkVoidFunction>(found) }
}

/// The lookup as it is handed out. An exported name would be the loader's function of the same name, so the
/// exported ones call this one: the compiler replaces a function by another one with the same body.
///
/// # Safety
/// A C string.
#[inline(never)]
unsafe extern "system" fn named(_of: u64, name: *const c_char) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller's promise.
    unsafe { function(name) }
}

// `extern "system"` is the C interface on every machine that this is built for.
crate::exported! {
    /// The last name is for Vulkan's loader.
    fn vkGetInstanceProcAddr as vkGetDeviceProcAddr as vk_icdGetInstanceProcAddr(
        of: u64, name: *const c_char,
    ) -> vk::PFN_vkVoidFunction {
        named(of, name)
    }

    /// The functions of a card for Vulkan's loader, which would take one that is newer than itself for a
    /// device's.
    fn vk_icdGetPhysicalDeviceProcAddr(_instance: u64, name: *const c_char) -> vk::PFN_vkVoidFunction {
        let of_card = CStr::from_ptr(name).to_bytes().starts_with(b"vkGetPhysicalDevice");
        if of_card { function(name) } else { None }
    }

    /// The loader's interface, of which 5 is the last that needs nothing more (`LoaderDriverInterface.md`).
    fn vk_icdNegotiateLoaderICDInterfaceVersion(version: *mut u32) -> vk::Result {
        if let Some(version) = version.as_mut() {
            *version = (*version).min(5);
        }
        vk::Result::SUCCESS
    }

    /// Linked with by ggml-vulkan, beside the functions that it asks for by name.
    fn vkGetPhysicalDeviceFeatures2(card: u64, features: *mut vk::PhysicalDeviceFeatures2<'static>) {
        answers::vkGetPhysicalDeviceFeatures2(card, features);
    }

    /// Linked with by ggml-vulkan. Nothing is copied.
    fn vkCmdCopyBuffer() {}
}

/// An object that commands are sent to: a card, device, queue or command buffer. The loader writes the
/// address of its own table over the first word.
#[repr(C)]
#[derive(Debug)]
struct Dispatchable {
    loader: AtomicUsize,
    card: usize,
}

impl Dispatchable {
    /// Vulkan's loader refuses an object without it (`vk_icd.h: ICD_LOADER_MAGIC`).
    const MAGIC: usize = 0x01CD_C0DE;

    /// A new object of a card, which lives as long as the process.
    fn make(card: usize) -> u64 {
        let object = Box::leak(Box::new(Self { loader: AtomicUsize::new(Self::MAGIC), card }));
        address(core::ptr::from_ref(object).expose_provenance())
    }

    /// The number of the card that an object belongs to.
    ///
    /// # Safety
    /// `object` came from [`make`](Self::make), or is 0.
    unsafe fn card_of(object: u64) -> usize {
        let place = core::ptr::with_exposed_provenance::<Self>(usize::try_from(object).unwrap_or(0));
        // SAFETY: the caller's promise: such objects are never freed.
        unsafe { place.as_ref() }.map_or(0, |object| object.card)
    }
}

fn address(place: usize) -> u64 {
    u64::try_from(place).unwrap_or(0)
}

fn card(number: usize) -> Option<&'static Card> {
    machine().cards.get(number)
}
