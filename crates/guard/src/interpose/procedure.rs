//! Replacement of `cuGetProcAddress`, with which every CUDA runtime finds the driver's functions.
//!
//! The driver is asked first; if guard has a hook for the function, the hook's address is returned instead.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::{standing_for, variants};
use crate::driver::{SUCCESS, loader};
use crate::hooks::{Hook, hooks};
use crate::say::say;
use crate::settings;

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
    // DECISION: if the driver's address differs from `dlsym`'s, the requested version decides the ABI. A
    // version whose ABI was not checked gets the driver's own function.
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
            "the program uses {name} of CUDA {version}, but guard knows CUDA up to {KNOWN}; newer features \
            are not guarded"
        );
    }
}

hooks! {
    in CUDA when always;

    fn cuGetProcAddress = "cuGetProcAddress" since 11030 (
        symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64
    ) calls real {
        let result = real(symbol, function, version, flags);
        if result == SUCCESS {
            substitute(symbol, function, version, flags);
        }
        result
    }

    // The answers of the twin, if a driver has it, are for per-thread default streams.
    fn cuGetProcAddress_v2 / cuGetProcAddress_v2_ptsz = "cuGetProcAddress" since 12000 (
        symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int
    ) calls (real, per_thread) {
        let result = real(symbol, function, version, flags, status);
        if result == SUCCESS && (status.is_null() || *status == 0) {
            let flags = if per_thread { flags | PER_THREAD } else { flags };
            substitute(symbol, function, version, flags);
        }
        result
    }
}
