//! Windows' half: memory of the system, files, and what the engine was linked with.
//!
//! The standard library is there: a program of Windows has one C library for each compiler, and ours goes
//! with us. The stand-ins that have the names of NVIDIA's libraries forward each function to this one
//! (`cargo xtask windows`), so the state of a process is one.

mod modules;

use core::ffi::c_void;
use std::fs::OpenOptions;
use std::io::Write;
use std::ptr::null;
use std::sync::{Mutex, MutexGuard, PoisonError};

use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_NOACCESS, PAGE_READWRITE, VirtualAlloc, VirtualFree,
};
use windows_sys::Win32::System::Threading::GetCurrentThreadId;

use crate::memory::Access;

/// A value and the lock that protects it.
#[derive(Debug)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the lock and takes it. Nothing unwinds in the shipped library (panic = abort).
    pub(crate) fn hold(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that lines are appended to.
#[derive(Debug)]
pub(crate) struct Sink(Option<std::fs::File>);

impl Sink {
    pub(crate) const STDERR: Self = Self(None);

    /// Opens a file for append.
    pub(crate) fn of_file(path: &str) -> Option<Self> {
        OpenOptions::new().append(true).create(true).open(path).ok().map(|file| Self(Some(file)))
    }

    /// Writes in one call. A full disk loses lines, and stderr may be closed, but that does not end the
    /// engine.
    pub(crate) fn append(&self, text: &str) {
        let _ = match &self.0 {
            Some(file) => { file }.write_all(text.as_bytes()),
            None => std::io::stderr().write_all(text.as_bytes()),
        };
    }
}

/// New memory, or addresses without memory.
pub(crate) fn map(bytes: usize, access: Access) -> Option<*mut c_void> {
    let (kind, protection) = match access {
        Access::None => (MEM_RESERVE, PAGE_NOACCESS),
        // Memory that is committed counts at once, and is taken page by page when it is touched.
        Access::Full => (MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE),
    };
    // SAFETY: new memory at an address of the system's choice.
    let address = unsafe { VirtualAlloc(null(), bytes.max(1), kind, protection) };
    (!address.is_null()).then_some(address)
}

pub(crate) fn unmap(address: *mut c_void, _: usize) {
    // SAFETY: the whole of what `map` made, whose owner let it go.
    unsafe { VirtualFree(address, 0, MEM_RELEASE) };
}

/// The number of the calling thread.
pub(crate) fn thread() -> i64 {
    // SAFETY: it takes nothing.
    unsafe { GetCurrentThreadId() }.into()
}

/// An environment variable; `None` if it is unset.
pub(crate) fn value(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Needs of the loaded modules: the version of `cudart64_N.dll`, and true for `amdhip64_N.dll`.
pub(crate) fn runtime() -> (u32, bool) {
    let mut found = (0, false);
    modules::each_import(|name| {
        let name = name.to_string_lossy().to_ascii_lowercase();
        found.0 = found.0.max(version(&name).unwrap_or(0));
        found.1 |= name.starts_with("amdhip64");
    });
    found
}

/// 13 of `cudart64_13.dll`, 11 of `cudart64_110.dll`, which is 11.0's name.
fn version(name: &str) -> Option<u32> {
    let number: u32 = name.strip_prefix("cudart64_")?.strip_suffix(".dll")?.parse().ok()?;
    Some(if number >= 100 { number / 10 } else { number })
}
