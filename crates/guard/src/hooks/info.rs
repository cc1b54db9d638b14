//! Hooks of memory queries, which report total and free memory within the budget.
//!
//! So a program that chooses its size by free memory (llama.cpp's `-fit`, vLLM) stays within the budget.

use core::ffi::c_int;

use plimsoll_wire::page::UNLIMITED;

use crate::account::pools;
use crate::driver::{Attribute, DeviceOrdinal, SUCCESS};
use crate::driver_guard::current_card;
use crate::hooks::hooks;
use crate::hooks::memory::bytes;
use crate::settings;
use crate::state::{CardIndex, ledger};

hooks! {
    in CUDA;

    fn cuMemGetInfo_v2 | hipMemGetInfo = "cuMemGetInfo" since 3020 (free: *mut usize, total: *mut usize) calls real {
        let result = real(free, total);
        if result == SUCCESS && let Some(limit) = limit(current_card()) {
            lower(free, |free| limit.free(free));
            lower(total, |total| limit.total(total));
        }
        result
    }

    fn cuDeviceTotalMem_v2 | hipDeviceTotalMem = "cuDeviceTotalMem" since 3020 (total: *mut usize, device: DeviceOrdinal) calls real {
        let result = real(total, device);
        if result == SUCCESS && let Some(limit) = limit(CardIndex::of(device)) {
            lower(total, |total| limit.total(total));
        }
        result
    }

    fn cuDeviceGetAttribute | hipDeviceGetAttribute = "cuDeviceGetAttribute" since 2000
        (value: *mut c_int, attribute: c_int, device: DeviceOrdinal) calls real
    {
        let result = real(value, attribute, device);
        let is_vmm = Attribute::VirtualMemoryManagement.number() == Some(attribute);
        if result == SUCCESS && is_vmm && settings::options().hide_vmm {
            *value = 0;
        }
        result
    }
}

/// Replaces a size by a smaller one.
///
/// # Safety
/// `place` is null or a size that the driver has written.
pub(crate) unsafe fn lower(place: *mut usize, smaller: impl Fn(u64) -> u64) {
    // SAFETY: as the caller promises.
    if let Some(size) = unsafe { place.as_mut() } {
        *size = usize::try_from(smaller(bytes(*size))).unwrap_or(*size);
    }
}

/// Budget of a card, for the answers to memory queries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetLimit {
    budget: u64,
    headroom: u64,
}

impl BudgetLimit {
    #[cfg(test)]
    pub(crate) fn new(budget: u64, headroom: u64) -> Self {
        Self { budget, headroom }
    }

    pub(crate) fn free(self, real: u64) -> u64 {
        real.min(self.headroom)
    }

    pub(crate) fn total(self, real: u64) -> u64 {
        real.min(self.budget)
    }
}

/// The limit of a card that has a budget, with its pools counted as they are now.
pub(crate) fn limit(index: Option<CardIndex>) -> Option<BudgetLimit> {
    let index = index?;
    let budget = ledger::budget(index);
    if budget == UNLIMITED {
        return None;
    }
    pools::refresh(index);
    let headroom = ledger::headroom(index);
    Some(BudgetLimit { budget, headroom })
}
