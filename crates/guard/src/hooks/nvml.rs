//! Hooks of NVML, which report memory within the budget.
//!
//! They also list the card's processes where NVML cannot (Jetson, MIG, sandboxes). PyTorch 2.1 to 2.10 needs
//! that list when it builds an out-of-memory message.

use core::ffi::{CStr, c_char, c_uint, c_void};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use plimsoll_wire::options::Uuid;
use plimsoll_wire::page::CARDS;
use plimsoll_wire::tree::SLOTS;

use crate::driver::{self, CuResult, NvmlProcess, SUCCESS};
use crate::driver_guard::current_card;
use crate::hooks::hooks;
use crate::hooks::info::{BudgetLimit, limit};
use crate::process;
use crate::state::{CardIndex, card, ledger, uuid};

type NvmlDevice = *mut c_void;

const INSUFFICIENT_SIZE: CuResult = 7;
const NOT_SUPPORTED: CuResult = 3;

/// True while the last `nvmlInit_v2` of the program has failed.
static INIT_FAILED: AtomicBool = AtomicBool::new(false);

// DECISION: a stand-in device handle is returned only while NVML is not initialised, because NVML then
// refuses calls before it reads a handle.
/// Stand-ins for devices of an NVML that is not initialised: the address is the handle, the position the
/// card.
static STAND_INS: [u64; CARDS] = [0; CARDS];

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct NvmlMemory {
    total: u64,
    free: u64,
    used: u64,
}

impl NvmlMemory {
    fn within(&mut self, limit: BudgetLimit) {
        (self.total, self.free) = (limit.total(self.total), limit.free(self.free));
        self.used = self.total.saturating_sub(self.free);
    }
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct NvmlMemoryV2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

impl NvmlMemoryV2 {
    fn within(&mut self, limit: BudgetLimit) {
        (self.total, self.free) = (limit.total(self.total), limit.free(self.free));
        self.reserved = self.reserved.min(self.total - self.free);
        self.used = self.total - self.free - self.reserved;
    }
}

hooks! {
    in NVML;

    fn nvmlInit_v2 = "" since 0 () calls real {
        // Success in any case: PyTorch asserts it, and the device functions below report what is missing.
        INIT_FAILED.store(real() != SUCCESS, Relaxed);
        SUCCESS
    }

    fn nvmlDeviceGetHandleByPciBusId_v2 = "" since 0
        (bus: *const c_char, device: *mut NvmlDevice) calls real
    {
        let result = real(bus, device);
        if result == SUCCESS || bus.is_null() || device.is_null() {
            return result;
        }
        // Programs also ask for addresses that are no card (NCCL walks the PCI topology) and rely on the
        // error.
        let Some(index) = card_at(bus) else { return result };
        let found = if INIT_FAILED.load(Relaxed) { Some(stand_in(index)) } else { driver::nvml_device(uuid(card(index))) };
        match found {
            Some(found) => {
                *device = found;
                SUCCESS
            }
            None => result,
        }
    }

    fn nvmlDeviceGetComputeRunningProcesses = "" since 0
        (device: NvmlDevice, count: *mut c_uint, processes: *mut NvmlProcess) calls real
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
        list(index.or_else(current_card), count, processes)
    }

    fn nvmlDeviceGetMemoryInfo = "" since 0 (device: NvmlDevice, memory: *mut NvmlMemory) calls real {
        let result = real(device, memory);
        if result == SUCCESS && let Some((limit, memory)) = limit(card_of(device)).zip(memory.as_mut()) {
            memory.within(limit);
        }
        result
    }

    fn nvmlDeviceGetMemoryInfo_v2 = "" since 0 (device: NvmlDevice, memory: *mut NvmlMemoryV2) calls real {
        let result = real(device, memory);
        if result == SUCCESS && let Some((limit, memory)) = limit(card_of(device)).zip(memory.as_mut()) {
            memory.within(limit);
        }
        result
    }
}

/// The card at this address of the PCI bus, by the driver.
///
/// # Safety
/// `bus` is a C string.
unsafe fn card_at(bus: *const c_char) -> Option<CardIndex> {
    let mut device = -1;
    // SAFETY: a C string, as the caller promises, and a place of ours.
    let result = unsafe { driver::cuDeviceGetByPCIBusId(&raw mut device, bus) };
    (result == SUCCESS).then(|| CardIndex::of(device)).flatten()
}

fn stand_in(index: CardIndex) -> NvmlDevice {
    core::ptr::from_ref(&STAND_INS[index.place()]).cast_mut().cast()
}

/// The card of an NVML handle.
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

/// Lists this process and its siblings on a card.
///
/// # Safety
/// `count` can be read and written; `processes` is null or has room for `*count` entries.
unsafe fn list(index: Option<CardIndex>, count: *mut c_uint, processes: *mut NvmlProcess) -> CuResult {
    let mut listed = [NvmlProcess::NONE; SLOTS];
    let mut length = 0;
    let mut add = |process: NvmlProcess| {
        if let Some(place) = listed.get_mut(length) {
            *place = process;
            length += 1;
        }
    };
    if let Some(index) = index {
        add(NvmlProcess {
            pid: c_uint::try_from(process::id()).unwrap_or(0),
            used: card(index).allocated.load(Relaxed),
        });
        ledger::others(index).for_each(|(pid, used)| add(NvmlProcess { pid, used }));
    }
    // SAFETY: as the caller promises.
    let room = unsafe { count.replace(c_uint::try_from(length).unwrap_or(0)) };
    let room = usize::try_from(room).unwrap_or(0);
    // NVML's own protocol: the caller asks with room for nothing first, and gets the number.
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
    fn free_and_used_memory_never_exceed_the_total() {
        let limit = BudgetLimit::new(1000, 300);
        let mut memory = NvmlMemory { total: 5000, free: 4000, used: 1000 };
        memory.within(limit);
        assert_eq!((memory.total, memory.free, memory.used), (1000, 300, 700));
        let mut memory = NvmlMemoryV2 { version: 2, total: 5000, reserved: 900, free: 100, used: 4000 };
        memory.within(limit);
        assert_eq!((memory.total, memory.reserved, memory.free, memory.used), (1000, 900, 100, 0));
    }
}
