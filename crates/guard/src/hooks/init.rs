//! `cuInit`, after which guard arms itself, and `cuGetProcAddress`, which is a door (see [`crate::doors::procedure`]).
//!
//! These work before guard is armed, so they are written out instead of declared by `hooks!`.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::arm;
use crate::doors::procedure;
use crate::driver::{CuResult, SUCCESS};
use crate::hooks::{Function, Hook};

pub(crate) mod real {
    use super::{c_char, c_int, c_uint, c_void};

    crate::driver::real! {
        in CUDA;
        cuInit(flags: c_uint);
        cuGetProcAddress(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64);
        cuGetProcAddress_v2(
            symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int
        );
        cuGetProcAddress_v2_ptsz(
            symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int
        );
    }
}

/// # Safety
/// As the driver asks of its callers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cuInit(flags: c_uint) -> CuResult {
    // SAFETY: the caller's promise is passed on.
    let result = unsafe { real::cuInit(flags) };
    if result == SUCCESS {
        arm::initialised();
    }
    result
}

/// # Safety
/// As the driver asks of its callers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CuResult {
    // SAFETY: the caller's promise is passed on; after success `function` has an address.
    unsafe {
        let result = real::cuGetProcAddress(symbol, function, version, flags);
        if result == SUCCESS {
            procedure::substitute(symbol, function, version, flags);
        }
        result
    }
}

/// # Safety
/// As the driver asks of its callers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> CuResult {
    // SAFETY: the caller's promise is passed on; after success `function` has an address.
    unsafe {
        let result = real::cuGetProcAddress_v2(symbol, function, version, flags, status);
        if result == SUCCESS && (status.is_null() || *status == 0) {
            procedure::substitute(symbol, function, version, flags);
        }
        result
    }
}

/// The twin whose answers are for per-thread default streams, if a driver has it.
///
/// # Safety
/// As the driver asks of its callers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cuGetProcAddress_v2_ptsz(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> CuResult {
    // SAFETY: the caller's promise is passed on; after success `function` has an address.
    unsafe {
        let result = real::cuGetProcAddress_v2_ptsz(symbol, function, version, flags, status);
        if result == SUCCESS && (status.is_null() || *status == 0) {
            procedure::substitute(symbol, function, version, flags | procedure::PER_THREAD);
        }
        result
    }
}

macro_rules! row {
    ($symbol:ident = $name:literal since $since:literal, $per_thread:literal, $type:ty) => {
        Hook {
            symbol: stringify!($symbol),
            name: $name,
            since: $since,
            per_thread: $per_thread,
            // SAFETY: nobody calls it before casting it back to its own type.
            function: unsafe { core::mem::transmute::<$type, Function>($symbol) },
            slot: &real::slots::$symbol,
        }
    };
}

type Lookup = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> CuResult;
type Lookup2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> CuResult;

pub(crate) const TABLE: &[Hook] = &[
    row!(cuInit = "cuInit" since 2000, false, unsafe extern "C" fn(c_uint) -> CuResult),
    row!(cuGetProcAddress = "cuGetProcAddress" since 11030, false, Lookup),
    row!(cuGetProcAddress_v2 = "cuGetProcAddress" since 12000, false, Lookup2),
    row!(cuGetProcAddress_v2_ptsz = "cuGetProcAddress" since 12000, true, Lookup2),
];
