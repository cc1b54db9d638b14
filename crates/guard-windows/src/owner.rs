//! Identifies this process in the shared ledger, and finds out whether another process has ended.

use std::mem::zeroed;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawHandle};

use plimsoll_wire::tree::SlotOwner;
use windows_sys::Win32::Foundation::{ERROR_INVALID_PARAMETER, FILETIME, GetLastError, WAIT_OBJECT_0};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetProcessTimes, OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE,
    WaitForSingleObject,
};

/// Steps of 100 ns in a unit of a start time, of which an owner has room for 41 bits.
const STEPS: u64 = 100_000;
/// Process numbers of Windows are multiples of this, and an owner has room for 22 bits.
const NUMBERS: u32 = 4;

pub(crate) fn me() -> SlotOwner {
    // SAFETY: the handle of this process needs no closing.
    let start = start(unsafe { GetCurrentProcess() });
    SlotOwner::new(std::process::id() / NUMBERS, start.unwrap_or(0))
}

/// True if the process has ended. One that may not be examined counts as living.
pub(crate) fn is_gone(owner: SlotOwner) -> bool {
    let number = owner.process() * NUMBERS;
    // SAFETY: numbers only.
    let handle = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE, 0, number) };
    if handle.is_null() {
        // Windows has no process of this number.
        // SAFETY: it reads a number of this thread.
        return unsafe { GetLastError() } == ERROR_INVALID_PARAMETER;
    }
    // SAFETY: a handle that nothing else owns.
    let process = unsafe { OwnedHandle::from_raw_handle(handle) };
    // SAFETY: a process; a wait of 0 ms only asks.
    let has_ended = unsafe { WaitForSingleObject(process.as_raw_handle(), 0) } == WAIT_OBJECT_0;
    // The number may be another process's by now.
    has_ended || start(process.as_raw_handle()).is_some_and(|start| !owner.can_be(start))
}

/// When a process began, in hundredths of a second.
fn start(process: RawHandle) -> Option<u64> {
    // SAFETY: zeroes are a value of this structure of numbers.
    let [mut began, mut a, mut b, mut c]: [FILETIME; 4] = unsafe { zeroed() };
    // SAFETY: a process, and places of ours.
    let answered = unsafe { GetProcessTimes(process, &raw mut began, &raw mut a, &raw mut b, &raw mut c) };
    let steps = u64::from(began.dwHighDateTime) << 32 | u64::from(began.dwLowDateTime);
    (answered != 0).then_some(steps / STEPS)
}
