//! Asks Windows for the host's memory. GPUs are found through NVML alone there.
// The foreign ABI: one call that fills a structure.
#![allow(unsafe_code)]

use std::path::Path;

use plimsoll_base::Bytes;
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

use crate::HostMemory;
use crate::kernel::IntelDriver;

/// The host's memory: available is what no process has to give up first.
pub(crate) fn host() -> Option<HostMemory> {
    let mut status = MEMORYSTATUSEX {
        dwLength: u32::try_from(size_of::<MEMORYSTATUSEX>()).ok()?,
        ..MEMORYSTATUSEX::default()
    };
    // SAFETY: the structure lives during the call, and states its own size.
    let is_known = unsafe { GlobalMemoryStatusEx(&raw mut status) } != 0;
    is_known.then(|| HostMemory {
        total: Bytes::new(status.ullTotalPhys),
        available: Bytes::new(status.ullAvailPhys),
        contiguous_free: Bytes::ZERO,
    })
}

/// Pages matter to the arithmetic of Linux's kernel alone.
pub(crate) fn page() -> Option<Bytes> {
    None
}

pub(crate) fn process_name(_: u32) -> Option<String> {
    None
}

pub(crate) fn memory_regions(_: &Path, _: IntelDriver) -> Option<Vec<u8>> {
    None
}
