//! Resumes a program that was started suspended.

use std::io;
use std::mem::zeroed;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};

use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::Threading::{OpenThread, ResumeThread, THREAD_SUSPEND_RESUME};

/// Resumes the threads of a process. One that has not run yet has only its first.
///
/// The standard library keeps the handle of the first thread to itself, so the thread is looked up.
pub(crate) fn resume(process: u32) -> io::Result<()> {
    // SAFETY: a snapshot of all threads; the process number is ignored.
    let snapshot = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0) };
    if snapshot == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a handle that nothing else owns.
    let snapshot = unsafe { OwnedHandle::from_raw_handle(snapshot) };
    // SAFETY: zeroes are a value of this structure of numbers.
    let mut entry: THREADENTRY32 = unsafe { zeroed() };
    entry.dwSize = u32::try_from(size_of_val(&entry)).unwrap_or(0);
    let mut resumed = Err(io::ErrorKind::NotFound.into());
    // SAFETY: a snapshot, and a structure that states its size.
    let mut found = unsafe { Thread32First(snapshot.as_raw_handle(), &raw mut entry) };
    while found != 0 {
        if entry.th32OwnerProcessID == process {
            resumed = resume_thread(entry.th32ThreadID);
        }
        // SAFETY: as above.
        found = unsafe { Thread32Next(snapshot.as_raw_handle(), &raw mut entry) };
    }
    resumed
}

fn resume_thread(thread: u32) -> io::Result<()> {
    // SAFETY: numbers only.
    let handle = unsafe { OpenThread(THREAD_SUSPEND_RESUME, 0, thread) };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a handle that nothing else owns.
    let handle = unsafe { OwnedHandle::from_raw_handle(handle) };
    // SAFETY: a thread that may be resumed.
    match unsafe { ResumeThread(handle.as_raw_handle()) } {
        u32::MAX => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
