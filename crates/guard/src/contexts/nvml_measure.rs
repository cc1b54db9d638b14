//! Measures the first CUDA context on a card, from NVML's figures before and after its creation.

use core::ffi::{c_uint, c_void};

use crate::driver::{self, NvmlProcess, SUCCESS, loader};
use crate::process;
use crate::state::{CardIndex, card, uuid};

/// More than any context takes: a larger difference includes another process's allocation.
const LARGEST: u64 = 1 << 30;
/// Processes on one card among which our own is looked for.
const MANY: usize = 128;

/// Used memory of a card before a context is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryBefore {
    device: *mut c_void,
    used: u64,
}

impl MemoryBefore {
    /// Reads NVML; None if it fails.
    pub(crate) fn look(index: CardIndex) -> Option<Self> {
        if loader::load(c"libnvidia-ml.so.1").is_null() {
            return None;
        }
        // SAFETY: NVML counts how often it is started; our count stays.
        if unsafe { driver::nvmlInit_v2() } != SUCCESS {
            return None;
        }
        let device = driver::nvml_device(uuid(card(index)))?;
        Some(Self { device, used: used(device)? })
    }

    /// Bytes that the context has taken: all of the process's, which has nothing else on the card yet.
    pub(crate) fn difference(self) -> Option<u64> {
        let taken = || Some(used(self.device)?.saturating_sub(self.used));
        own(self.device).or_else(taken).filter(|bytes| *bytes <= LARGEST)
    }
}

fn used(device: *mut c_void) -> Option<u64> {
    // `nvmlMemory_t`: total, free, used.
    let mut memory = [0_u64; 3];
    // SAFETY: room for the structure.
    let result = unsafe { driver::nvmlDeviceGetMemoryInfo(device, &raw mut memory) };
    (result == SUCCESS).then_some(memory[2])
}

/// The entry of this process. Inside a container NVML lists numbers of the host's namespace, and none of
/// ours.
fn own(device: *mut c_void) -> Option<u64> {
    let mut processes = [NvmlProcess::NONE; MANY];
    let mut count = c_uint::try_from(MANY).ok()?;
    // SAFETY: room for so many entries.
    let result = unsafe {
        driver::nvmlDeviceGetComputeRunningProcesses(device, &raw mut count, processes.as_mut_ptr())
    };
    let listed = processes.iter().take(usize::try_from(count).ok()?);
    let own = listed
        .filter(|process| Ok(process.pid) == u32::try_from(process::id()))
        .map(|process| process.used)
        // NVML_VALUE_NOT_AVAILABLE.
        .find(|used| *used != u64::MAX);
    own.filter(|_| result == SUCCESS)
}
