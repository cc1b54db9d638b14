//! Hooks of Vulkan's memory queries, which report heaps within the budget.
//!
//! So a program that chooses its size by free memory (llama.cpp's `-fit`) stays within the budget.

use ash::vk;
use plimsoll_wire::page::UNLIMITED;

use super::cards::{PhysicalCard, card_of};
use super::heaps::{limit_budgets, limit_sizes};
use super::instance::Instance;
use super::table::find_instance;
use crate::arm::armed;
use crate::state::ledger;

/// `vkGetPhysicalDeviceMemoryProperties`.
///
/// # Safety
/// As of Vulkan.
pub(super) unsafe extern "system" fn memory_properties(
    physical: vk::PhysicalDevice,
    stated: *mut vk::PhysicalDeviceMemoryProperties,
) {
    let Some(instance) = find_instance(physical) else { return };
    // SAFETY: the caller's promise.
    unsafe {
        (instance.memory)(physical, stated);
        if let Some((card, budget)) = limited(&instance, physical) {
            limit_sizes(&mut *stated, card.integrated, budget);
        }
    }
}

/// `vkGetPhysicalDeviceMemoryProperties2`.
///
/// # Safety
/// As of Vulkan.
pub(super) unsafe extern "system" fn memory_properties_2(
    physical: vk::PhysicalDevice,
    stated: *mut vk::PhysicalDeviceMemoryProperties2<'static>,
) {
    let Some(instance) = find_instance(physical) else { return };
    // SAFETY: the caller's promise; the program's chain can be written.
    unsafe {
        if let Some(query) = instance.memory_2 {
            query(physical, stated);
        }
        let Some((card, budget)) = limited(&instance, physical) else { return };
        limit_sizes(&mut (*stated).memory_properties, card.integrated, budget);
        let Some(figures) = budget_figures((*stated).p_next) else { return };
        let headroom = card.index.map_or(UNLIMITED, ledger::headroom);
        let (budgets, usages) = (&mut figures.heap_budget, &mut figures.heap_usage);
        limit_budgets(&(*stated).memory_properties, card.integrated, budgets, usages, headroom);
    }
}

/// # Safety
/// A chain of structures that can be written.
unsafe fn budget_figures<'a>(
    chain: *mut core::ffi::c_void,
) -> Option<&'a mut vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'static>> {
    let wanted = vk::StructureType::PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
    // SAFETY: the caller's promise; a structure of this kind has this type.
    unsafe {
        let found = super::chain::find(chain, |kind, _| kind == wanted)?;
        found.cast_mut().cast::<vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'static>>().as_mut()
    }
}

/// The card of a physical device, and its budget if it has one.
fn limited(instance: &Instance, physical: vk::PhysicalDevice) -> Option<(PhysicalCard, u64)> {
    if !armed() {
        return None;
    }
    let card = card_of(instance, physical)?;
    let budget = ledger::budget(card.index?);
    (budget != UNLIMITED).then_some((card, budget))
}
