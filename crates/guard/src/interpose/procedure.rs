//! `cuGetProcAddress`, the door of every CUDA runtime.
//!
//! The driver has answered already, for the caller's version and flags; its address is replaced if it is one that we stand for.
//! On the drivers we know that address is `dlsym`'s. Should it be another one, the ABI follows from name and version as cuda.h
//! documents it, up to the newest version whose ABIs we know; past it the driver's own function stays, and that is said.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::driver::loader;
use crate::hooks::Hook;
use crate::say::say;
use crate::{arm, table};

/// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.
pub(crate) const PER_THREAD: u64 = 1 << 1;
/// The newest CUDA whose list of ABIs the table was checked against.
const KNOWN: c_int = 12_080;

/// Puts our function in the place of the driver's.
///
/// # Safety
/// The arguments of a `cuGetProcAddress` that succeeded.
pub(crate) unsafe fn substitute(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) {
    // SAFETY: the driver has read the name and written the address.
    let (name, theirs) = unsafe {
        if symbol.is_null() || function.is_null() || (*function).is_null() || !arm::wanted() {
            return;
        }
        (CStr::from_ptr(symbol).to_bytes(), *function)
    };
    let hook = table::standing_for(name, theirs).or_else(|| by_version(name, theirs, version, flags));
    if let Some(hook) = hook {
        // SAFETY: as above.
        unsafe { *function = hook.address() };
    }
}

/// The hook of the ABI that `name` had in this version. Older ABIs than the oldest hook have none; of the newer ones, every one that
/// was there in [`KNOWN`] has.
#[cold]
fn by_version(name: &[u8], theirs: *mut c_void, version: c_int, flags: u64) -> Option<&'static Hook> {
    table::variants(name).next()?;
    if version > KNOWN {
        unknown(name, version);
        return None;
    }
    let newest = table::variants(name)
        .filter(|hook| hook.since <= version && !hook.per_thread)
        .max_by_key(|hook| hook.since)?;
    let twin = table::variants(name)
        .find(|hook| hook.per_thread && hook.since == newest.since && flags & PER_THREAD != 0);
    let hook = twin.unwrap_or(newest);
    // A function of another object than the driver would be another interposer's.
    let theirs = loader::place(theirs)?.dli_fbase;
    let ours = loader::place(hook.slot.function())?.dli_fbase;
    (theirs == ours).then_some(hook)
}

fn unknown(name: &[u8], version: c_int) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        let name = core::str::from_utf8(name).unwrap_or_default();
        say!(
            "the program asks for {name} of CUDA {version}, which is newer than {KNOWN}; what is new in it goes unguarded"
        );
    }
}
