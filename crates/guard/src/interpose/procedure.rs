//! Replacement of `cuGetProcAddress`, with which every CUDA runtime finds the driver's functions.
//!
//! DECISION: the driver answers first, for the caller's version and flags, and its address is replaced if
//! guard (this library) has a hook for it. On all known drivers that address equals the one from `dlsym`. If
//! it differs, the ABI follows from name and version as documented in cuda.h, up to the newest version whose
//! ABIs were checked. Beyond that version the driver's own function stays, and this is reported.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::{standing_for, variants};
use crate::driver::{CuResult, SUCCESS, loader};
use crate::hooks::{Hook, HookFunction};
use crate::say::say;
use crate::settings;

pub(crate) mod real {
    use super::{c_char, c_int, c_void};

    crate::driver::real! {
        in CUDA;
        cuGetProcAddress(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64);
        cuGetProcAddress_v2(
            symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int
        );
        cuGetProcAddress_v2_ptsz(
            symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int
        );
    }
}

/// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.
const PER_THREAD: u64 = 1 << 1;
/// The newest CUDA whose ABIs were compared with the table.
const KNOWN: c_int = 12_080;

/// Replaces the driver's function by the hook for it.
///
/// # Safety
/// The arguments of a `cuGetProcAddress` that succeeded.
unsafe fn substitute(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64) {
    // SAFETY: the driver has read the name and written the address.
    let (name, theirs) = unsafe {
        if symbol.is_null() || function.is_null() || (*function).is_null() || !settings::wanted() {
            return;
        }
        (CStr::from_ptr(symbol).to_bytes(), *function)
    };
    let hook = standing_for(name, theirs).or_else(|| by_version(name, theirs, version, flags));
    if let Some(hook) = hook {
        // SAFETY: as above.
        unsafe { *function = hook.address() };
    }
}

/// The hook of the ABI that `name` had in this version. ABIs older than the oldest hook have none; of the
/// newer ones, all up to [`KNOWN`] have one.
#[cold]
fn by_version(name: &[u8], theirs: *mut c_void, version: c_int, flags: u64) -> Option<&'static Hook> {
    variants(name).next()?;
    if version > KNOWN {
        unknown(name, version);
        return None;
    }
    let newest = variants(name)
        .filter(|hook| hook.since <= version && !hook.per_thread)
        .max_by_key(|hook| hook.since)?;
    let twin =
        variants(name).find(|hook| hook.per_thread && hook.since == newest.since && flags & PER_THREAD != 0);
    let hook = twin.unwrap_or(newest);
    // A function in another object than the driver is another interposer's, which must stay in front.
    let theirs = loader::place(theirs)?.dli_fbase;
    let ours = loader::place(hook.slot.function())?.dli_fbase;
    (theirs == ours).then_some(hook)
}

fn unknown(name: &[u8], version: c_int) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        let name = core::str::from_utf8(name).unwrap_or_default();
        say!(
            "the program uses {name} of CUDA {version}, which is newer than {KNOWN}; its new features are \
                not guarded"
        );
    }
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
            substitute(symbol, function, version, flags);
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
            substitute(symbol, function, version, flags);
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
            substitute(symbol, function, version, flags | PER_THREAD);
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
            // SAFETY: never called before it is cast back to its own type.
            function: unsafe { core::mem::transmute::<$type, HookFunction>($symbol) },
            slot: &real::slots::$symbol,
        }
    };
}

type Lookup = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> CuResult;
type Lookup2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> CuResult;

pub(super) const TABLE: &[Hook] = &[
    row!(cuGetProcAddress = "cuGetProcAddress" since 11030, false, Lookup),
    row!(cuGetProcAddress_v2 = "cuGetProcAddress" since 12000, false, Lookup2),
    row!(cuGetProcAddress_v2_ptsz = "cuGetProcAddress" since 12000, true, Lookup2),
];
