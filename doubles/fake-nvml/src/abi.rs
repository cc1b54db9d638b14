//! NVML's C structures and return codes, for the fake NVML.

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};

pub(crate) type Return = c_uint;
/// Opaque; ours is the index of the card plus one.
pub(crate) type Device = *mut c_void;

pub(crate) const SUCCESS: Return = 0;
pub(crate) const ERROR_UNINITIALIZED: Return = 1;
pub(crate) const ERROR_INVALID_ARGUMENT: Return = 2;
pub(crate) const ERROR_NOT_SUPPORTED: Return = 3;
pub(crate) const ERROR_NOT_FOUND: Return = 6;
pub(crate) const ERROR_INSUFFICIENT_SIZE: Return = 7;

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Memory {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

impl Memory {
    pub(crate) fn new(total: u64, free: u64) -> Self {
        let size = c_uint::try_from(size_of::<Self>()).unwrap_or(0);
        Self { version: size | 2 << 24, total, reserved: 0, free, used: total.saturating_sub(free) }
    }
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Debug)]
pub struct PlainMemory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

impl PlainMemory {
    pub(crate) fn new(total: u64, free: u64) -> Self {
        Self { total, free, used: total.saturating_sub(free) }
    }
}

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
#[derive(Debug)]
pub struct PlainProcessInfo {
    pid: c_uint,
    used: c_ulonglong,
}

impl PlainProcessInfo {
    pub(crate) fn new(pid: u32, used: Option<u64>) -> Self {
        Self { pid, used: used.unwrap_or(c_ulonglong::MAX) }
    }
}

/// `nvmlProcessInfo_v2_t`, which the v3 functions fill.
#[repr(C)]
#[derive(Debug)]
pub struct ProcessInfo {
    pid: c_uint,
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

impl ProcessInfo {
    /// All ones stand for "not available".
    pub(crate) fn new(pid: u32, used: Option<u64>) -> Self {
        Self {
            pid,
            used: used.unwrap_or(c_ulonglong::MAX),
            gpu_instance: c_uint::MAX,
            compute_instance: c_uint::MAX,
        }
    }
}

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Debug)]
pub struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

impl PciInfo {
    /// From `00000000:3B:00.0`.
    pub(crate) fn new(text: &str) -> Self {
        let mut numbers = text.split([':', '.']).map(|part| c_uint::from_str_radix(part, 16).unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Self {
            domain: next(),
            bus: next(),
            device: next(),
            device_id: 0,
            subsystem_id: 0,
            bus_id_legacy: characters(text.trim_start_matches("0000")),
            bus_id: characters(text),
        }
    }
}

/// `text` with a closing zero, cut where there is no room.
fn characters<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, byte) in out.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = c_char::from_ne_bytes([byte]);
    }
    out
}

/// Copies `text` and a closing zero.
///
/// # Safety
/// `out` is null or has room for `length` characters.
pub(crate) unsafe fn copy_text(text: &str, out: *mut c_char, length: c_uint) -> Return {
    let length = usize::try_from(length).unwrap_or(0);
    if out.is_null() || text.len() >= length {
        return ERROR_INSUFFICIENT_SIZE;
    }
    for (index, byte) in text.bytes().chain([0]).enumerate() {
        // SAFETY: `index` is at most `text.len()`, which is below `length`.
        unsafe { out.add(index).write(c_char::from_ne_bytes([byte])) };
    }
    SUCCESS
}
