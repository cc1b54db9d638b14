//! Replaces functions of Windows: `GetProcAddress`, by which CUDA is found, and the starts of processes.

use std::ffi::{CStr, c_char, c_void};
use std::mem::transmute;
use std::os::windows::io::BorrowedHandle;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use windows_sys::Win32::Foundation::HMODULE;
use windows_sys::Win32::System::LibraryLoader::GetProcAddress;
use windows_sys::Win32::System::Threading::{
    CREATE_SUSPENDED, CreateProcessA, CreateProcessW, PROCESS_INFORMATION, ResumeThread,
};
use windows_sys::core::{BOOL, PCSTR};

use crate::modules;
use crate::say::say;

/// Arguments of `CreateProcess` that are passed on as they are, in both of its forms.
type Start = unsafe extern "system" fn(
    *const c_void,
    *mut c_void,
    *const c_void,
    *const c_void,
    BOOL,
    u32,
    *const c_void,
    *const c_void,
    *const c_void,
    *mut PROCESS_INFORMATION,
) -> BOOL;
type Find = unsafe extern "system" fn(HMODULE, PCSTR) -> usize;

/// The replacement of a function of Windows.
pub(crate) fn replacement(name: &str) -> Option<usize> {
    match name {
        "GetProcAddress" => Some((find as Find as *const c_void).expose_provenance()),
        "CreateProcessW" => Some((start_wide as Start as *const c_void).expose_provenance()),
        "CreateProcessA" => Some((start_narrow as Start as *const c_void).expose_provenance()),
        _ => None,
    }
}

/// The address of an exported function; 0 without one.
///
/// # Safety
/// A loaded module, and a name that ends in zero or a number below 65536.
pub(crate) unsafe fn get_procedure(module: HMODULE, name: PCSTR) -> usize {
    // SAFETY: as the caller promises.
    unsafe { GetProcAddress(module, name) }.map_or(0, |function| function as usize)
}

unsafe extern "system" fn find(module: HMODULE, name: PCSTR) -> usize {
    // Modules whose imports were not filled in when they were announced.
    modules::look_again();
    // SAFETY: the caller's own arguments.
    let address = unsafe { get_procedure(module, name) };
    let is_number = name.addr() <= usize::from(u16::MAX);
    if address == 0 || is_number {
        return address;
    }
    // SAFETY: the system has found a function by this name.
    let name = unsafe { CStr::from_ptr(name.cast::<c_char>()) };
    let replaced = name.to_str().ok().and_then(|name| super::replacement(name, address));
    replaced.unwrap_or(address)
}

macro_rules! start {
    ($name:ident, $real:ident) => {
        unsafe extern "system" fn $name(
            program: *const c_void,
            line: *mut c_void,
            process: *const c_void,
            thread: *const c_void,
            inherits: BOOL,
            flags: u32,
            environment: *const c_void,
            folder: *const c_void,
            startup: *const c_void,
            started: *mut PROCESS_INFORMATION,
        ) -> BOOL {
            // SAFETY: the system's function has these arguments.
            let real = unsafe { transmute::<*const c_void, Start>($real as *const c_void) };
            let flags_here = flags | CREATE_SUSPENDED;
            // SAFETY: the caller's own arguments, but for one flag.
            let answer = unsafe {
                real(
                    program,
                    line,
                    process,
                    thread,
                    inherits,
                    flags_here,
                    environment,
                    folder,
                    startup,
                    started,
                )
            };
            // SAFETY: after success the system has written what it started.
            let started = unsafe { started.as_ref() };
            if let Some(started) = started.filter(|_| answer != 0) {
                guard(started, flags & CREATE_SUSPENDED == 0);
            }
            answer
        }
    };
}

start!(start_wide, CreateProcessW);
start!(start_narrow, CreateProcessA);

/// Loads this library into a process that was started suspended, and lets it go on.
fn guard(started: &PROCESS_INFORMATION, goes_on: bool) {
    static FAILED: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the caller of `CreateProcess` has the handle, and waits for this call.
    let process = unsafe { BorrowedHandle::borrow_raw(started.hProcess) };
    if let Err(error) = plimsoll_inject::load(process, modules::own_path())
        && FAILED.fetch_add(1, Relaxed) == 0
    {
        say!("process {} is not guarded: {error}", started.dwProcessId);
    }
    if goes_on {
        // SAFETY: the first thread of the process, which nothing else has resumed.
        unsafe { ResumeThread(started.hThread) };
    }
}
