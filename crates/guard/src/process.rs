//! Reads this process's PID, thread ID and environment variables.

use core::ffi::{CStr, c_char};

/// Process number; in a forked child the child's.
pub(crate) fn id() -> i32 {
    // SAFETY: getpid takes nothing and cannot fail.
    unsafe { libc::getpid() }
}

/// Process number as pages and traces write it.
pub(crate) fn number() -> u32 {
    u32::try_from(id()).unwrap_or(0)
}

/// Kernel number of the calling thread.
pub(crate) fn thread() -> i32 {
    // By number: the function gettid came with glibc 2.30, and older C libraries must load us too.
    // SAFETY: the call takes nothing and cannot fail.
    let number = unsafe { libc::syscall(libc::SYS_gettid) };
    i32::try_from(number).unwrap_or(0)
}

/// An environment variable. The string stays valid: programs do not change their environment once CUDA
/// starts.
pub(crate) fn variable(name: &str) -> Option<&'static CStr> {
    let mut text = [0_u8; 64];
    text.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    if name.len() == text.len() {
        return None;
    }
    // SAFETY: the text ends in zero, since it has more places than the name.
    let value = unsafe { libc::getenv(text.as_ptr().cast::<c_char>()) };
    // SAFETY: null, or a C string of the environment.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}
