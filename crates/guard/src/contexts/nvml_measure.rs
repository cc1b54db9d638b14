//! What the first context on a card takes, by NVML.

use core::ffi::{c_uint, c_void};
use core::fmt::Write;
use core::ptr::null_mut;

use plimsoll_wire::options::Uuid;

use crate::account::{CardIndex, card, uuid};
use crate::arm;
use crate::driver::{self, SUCCESS, loader};
use crate::hooks::nvml::Process;
use crate::text::Text;

/// More than any context takes: what exceeds it was somebody else's.
const LARGEST: u64 = 1 << 30;
/// Programs on one card that are looked through for ourselves.
const MANY: usize = 128;

/// The card as it was before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    device: *mut c_void,
    used: u64,
}

impl Before {
    /// None if NVML does not tell.
    pub(crate) fn look(index: CardIndex) -> Option<Self> {
        if loader::load(c"libnvidia-ml.so.1").is_null() {
            return None;
        }
        // SAFETY: NVML counts how often it is started; our count stays.
        if unsafe { driver::nvmlInit_v2() } != SUCCESS {
            return None;
        }
        let mut name = Text::new();
        write!(name, "{}", Uuid(uuid(card(index)))).ok()?;
        let mut device = null_mut();
        // SAFETY: a C string, and a place of ours.
        let found = unsafe { driver::nvmlDeviceGetHandleByUUID(name.as_c()?.as_ptr(), &raw mut device) };
        if found != SUCCESS {
            return None;
        }
        Some(Self {
            device,
            used: used(device)?,
        })
    }

    /// What the context has taken since: all that the process has, for it has nothing else yet.
    pub(crate) fn difference(self) -> Option<u64> {
        let taken = || Some(used(self.device)?.saturating_sub(self.used));
        own(self.device).or_else(taken).filter(|bytes| *bytes <= LARGEST)
    }
}

fn used(device: *mut c_void) -> Option<u64> {
    // `nvmlMemory_t`: total, free, used.
    let mut memory = [0_u64; 3];
    // SAFETY: room for the structure.
    let result = unsafe { driver::nvmlDeviceGetMemoryInfo(device, memory.as_mut_ptr().cast()) };
    (result == SUCCESS).then_some(memory[2])
}

/// The entry of this process; there is none if NVML counts processes of another namespace.
fn own(device: *mut c_void) -> Option<u64> {
    let mut processes = [Process::NONE; MANY];
    let mut count = c_uint::try_from(MANY).ok()?;
    // SAFETY: room for so many entries.
    let result = unsafe {
        driver::nvmlDeviceGetComputeRunningProcesses(device, &raw mut count, processes.as_mut_ptr())
    };
    let listed = processes.iter().take(usize::try_from(count).ok()?);
    let own = listed
        .filter(|process| Ok(process.pid) == u32::try_from(arm::process()))
        .map(|process| process.used)
        .find(|used| *used != u64::MAX);
    own.filter(|_| result == SUCCESS)
}
