//! NVML: what it says of memory is within the budget, and PyTorch's three questions are answered even where it cannot.
//!
//! While PyTorch (2.1 to 2.10) words an out-of-memory error it asks NVML for the card's processes, and asserts that the answer is
//! success; on Jetson, under MIG in containers and in sandboxes it is not, and the user sees INTERNAL ASSERT FAILED instead of
//! `torch.cuda.OutOfMemoryError`. The three functions of that question succeed here when the real ones fail, and list what
//! guard knows itself: this process, and its neighbours of the same tree on the card. A healthy NVML answers unchanged.

use core::ffi::{CStr, c_char, c_uint, c_void};

use core::sync::atomic::Ordering::Relaxed;

use plimsoll_wire::options::Uuid;
use plimsoll_wire::page::CARDS;
use plimsoll_wire::tree::SLOTS;

use crate::account::{CardIndex, card, current, tree, uuid};
use crate::arm;
use crate::driver::{self, CuResult, SUCCESS};
use crate::hooks::hooks;
use crate::hooks::info::{Limit, limit};

type NvmlDevice = *mut c_void;

const INSUFFICIENT_SIZE: CuResult = 7;
const NOT_SUPPORTED: CuResult = 3;

/// What stands in for a device that NVML does not give: its address is the handle, its place the card. The last one is for a card
/// that is not known.
static STAND_INS: [u64; CARDS + 1] = [0; CARDS + 1];

/// `nvmlProcessInfo_v1_t`, which the function without a suffix fills.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) pid: c_uint,
    pub(crate) used: u64,
}

impl Process {
    pub(crate) const NONE: Self = Self { pid: 0, used: 0 };
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

impl Memory {
    fn within(&mut self, limit: Limit) {
        (self.total, self.free) = (limit.total(self.total), limit.free(self.free));
        self.used = self.total.saturating_sub(self.free);
    }
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Memory2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

impl Memory2 {
    fn within(&mut self, limit: Limit) {
        (self.total, self.free) = (limit.total(self.total), limit.free(self.free));
        self.reserved = self.reserved.min(self.total - self.free);
        self.used = self.total - self.free - self.reserved;
    }
}

hooks! {
    in NVML;

    fn nvmlInit_v2 = "" since 0 () calls real {
        // Uninitialised, it gives no device, and a stand-in takes the device's place.
        let _ = real();
        SUCCESS
    }

    fn nvmlDeviceGetHandleByPciBusId_v2 = "" since 0
        (bus: *const c_char, device: *mut NvmlDevice) calls real
    {
        let result = real(bus, device);
        if result == SUCCESS || bus.is_null() || device.is_null() {
            return result;
        }
        *device = stand_in(bus);
        SUCCESS
    }

    fn nvmlDeviceGetComputeRunningProcesses = "" since 0
        (device: NvmlDevice, count: *mut c_uint, processes: *mut Process) calls real
    {
        let place = STAND_INS.iter().position(|place| core::ptr::from_ref(place).addr() == device.addr());
        let result = if place.is_some() { NOT_SUPPORTED } else { real(device, count, processes) };
        if matches!(result, SUCCESS | INSUFFICIENT_SIZE) || count.is_null() {
            return result;
        }
        let index = match place {
            Some(place) => i32::try_from(place).ok().and_then(CardIndex::of),
            None => card_of(device),
        };
        list(index.or_else(current), count, processes)
    }

    fn nvmlDeviceGetMemoryInfo = "" since 0 (device: NvmlDevice, memory: *mut Memory) calls real {
        let result = real(device, memory);
        if result == SUCCESS && let Some((limit, memory)) = limit(card_of(device)).zip(memory.as_mut()) {
            memory.within(limit);
        }
        result
    }

    fn nvmlDeviceGetMemoryInfo_v2 = "" since 0 (device: NvmlDevice, memory: *mut Memory2) calls real {
        let result = real(device, memory);
        if result == SUCCESS && let Some((limit, memory)) = limit(card_of(device)).zip(memory.as_mut()) {
            memory.within(limit);
        }
        result
    }
}

/// A handle for the card at this address of the PCI bus.
///
/// # Safety
/// `bus` is a C string.
unsafe fn stand_in(bus: *const c_char) -> NvmlDevice {
    let mut device = -1;
    // SAFETY: a C string, as the caller promises, and a place of ours.
    unsafe { driver::cuDeviceGetByPCIBusId(&raw mut device, bus) };
    let place = CardIndex::of(device).map_or(CARDS, |index| usize::from(index.number()));
    let stand_in = STAND_INS.get(place).unwrap_or(&STAND_INS[CARDS]);
    core::ptr::from_ref(stand_in).cast_mut().cast()
}

/// The card that NVML means by a handle.
fn card_of(device: NvmlDevice) -> Option<CardIndex> {
    let mut text = [0_u8; 96];
    // SAFETY: room for so many characters.
    let result = unsafe { driver::nvmlDeviceGetUUID(device, text.as_mut_ptr().cast(), 96) };
    if result != SUCCESS {
        return None;
    }
    let text = CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?;
    let Uuid(wanted) = Uuid::read(text)?;
    CardIndex::all().find(|index| uuid(card(*index)) == wanted)
}

/// Lists this process and its neighbours.
///
/// # Safety
/// `count` can be read and written; `processes` is null or has room for `*count` entries.
unsafe fn list(index: Option<CardIndex>, count: *mut c_uint, processes: *mut Process) -> CuResult {
    let mut listed = [Process::NONE; SLOTS];
    let mut length = 0;
    let mut add = |process: Process| {
        if let Some(place) = listed.get_mut(length) {
            *place = process;
            length += 1;
        }
    };
    if let Some(index) = index {
        add(Process {
            pid: c_uint::try_from(arm::process()).unwrap_or(0),
            used: card(index).allocated.load(Relaxed),
        });
        tree::others(index).for_each(|(pid, used)| add(Process { pid, used }));
    }
    // SAFETY: as the caller promises.
    let room = unsafe { count.replace(c_uint::try_from(length).unwrap_or(0)) };
    let room = usize::try_from(room).unwrap_or(0);
    if length > room || (processes.is_null() && length > 0) {
        return INSUFFICIENT_SIZE;
    }
    for (place, process) in listed.iter().take(length).enumerate() {
        // SAFETY: there is room for `length` entries.
        unsafe { processes.add(place).write(*process) };
    }
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_never_said_to_be_more_than_all_of_it() {
        let limit = Limit::new(1000, 300);
        let mut memory = Memory {
            total: 5000,
            free: 4000,
            used: 1000,
        };
        memory.within(limit);
        assert_eq!((memory.total, memory.free, memory.used), (1000, 300, 700));
        let mut memory = Memory2 {
            version: 2,
            total: 5000,
            reserved: 900,
            free: 100,
            used: 4000,
        };
        memory.within(limit);
        assert_eq!(
            (memory.total, memory.reserved, memory.free, memory.used),
            (1000, 900, 100, 0)
        );
    }
}
