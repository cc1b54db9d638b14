//! What the program may know of its cards: no more than its tree's budget, and of what is free no more than the tree has left.
//!
//! A program that sizes itself by free memory (llama.cpp's fit, PyTorch's fraction, vLLM's utilisation) then fits by itself.

use core::ffi::{c_int, c_uint};

use plimsoll_wire::page::UNLIMITED;

use crate::account::{CardIndex, current, pools, tree};
use crate::arm;
use crate::driver::{Device, SUCCESS};
use crate::hooks::hooks;
use crate::hooks::memory::bytes;

/// CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED.
const VIRTUAL_MEMORY: c_int = 102;

hooks! {
    in CUDA;

    fn cuMemGetInfo_v2 = "cuMemGetInfo" since 3020 (free: *mut usize, total: *mut usize) calls real {
        let result = real(free, total);
        if result == SUCCESS && let Some(limit) = limit(current()) {
            if let Some(free) = free.as_mut() {
                *free = limit.free(bytes(*free)).try_into().unwrap_or(*free);
            }
            if let Some(total) = total.as_mut() {
                *total = limit.total(bytes(*total)).try_into().unwrap_or(*total);
            }
        }
        result
    }

    // The ABI of CUDA 3.1.
    fn cuMemGetInfo = "cuMemGetInfo" since 2000 (free: *mut c_uint, total: *mut c_uint) calls real {
        let result = real(free, total);
        if result == SUCCESS && let Some(limit) = limit(current()) {
            if let Some(free) = free.as_mut() {
                *free = limit.free(u64::from(*free)).try_into().unwrap_or(*free);
            }
            if let Some(total) = total.as_mut() {
                *total = limit.total(u64::from(*total)).try_into().unwrap_or(*total);
            }
        }
        result
    }

    fn cuDeviceTotalMem_v2 = "cuDeviceTotalMem" since 3020 (total: *mut usize, device: Device) calls real {
        let result = real(total, device);
        if result == SUCCESS
            && let Some(limit) = limit(CardIndex::of(device))
            && let Some(total) = total.as_mut()
        {
            *total = limit.total(bytes(*total)).try_into().unwrap_or(*total);
        }
        result
    }

    fn cuDeviceTotalMem = "cuDeviceTotalMem" since 2000 (total: *mut c_uint, device: Device) calls real {
        let result = real(total, device);
        if result == SUCCESS
            && let Some(limit) = limit(CardIndex::of(device))
            && let Some(total) = total.as_mut()
        {
            *total = limit.total(u64::from(*total)).try_into().unwrap_or(*total);
        }
        result
    }

    fn cuDeviceGetAttribute = "cuDeviceGetAttribute" since 2000
        (value: *mut c_int, attribute: c_int, device: Device) calls real
    {
        let result = real(value, attribute, device);
        if result == SUCCESS && attribute == VIRTUAL_MEMORY && arm::options().hide_vmm {
            *value = 0;
        }
        result
    }
}

/// A card with a budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    budget: u64,
    headroom: u64,
}

impl Limit {
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

/// The limit of a card, its pools counted as they are now.
pub(crate) fn limit(index: Option<CardIndex>) -> Option<Limit> {
    let index = index?;
    let budget = tree::budget(index);
    if budget == UNLIMITED {
        return None;
    }
    pools::refresh(index);
    let headroom = tree::headroom(index);
    Some(Limit { budget, headroom })
}
