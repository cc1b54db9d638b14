//! Replacements of libc and ggml functions, so that model files are not read and caches are not cleared.
//!
//! Nothing computes with these bytes here. llama.cpp would read a whole file when it maps the file
//! (`llama-mmap.cpp @ b10605`), and clear its caches in host memory.

use core::ffi::{c_int, c_void};

use libc::{MAP_POPULATE, SYS_mmap, off_t, size_t, syscall};

/// `mmap`, which maps files without reading them.
///
/// # Safety
/// As of mmap(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let flags = if file >= 0 { flags & !MAP_POPULATE } else { flags };
    // SAFETY: the arguments are the caller's, but for a flag that only says when pages are read. On failure
    // both this and mmap return -1 and set errno.
    let mapped =
        unsafe { syscall(SYS_mmap, address, length, protection, flags, file, offset) as *mut c_void };
    if file >= 0 && mapped != libc::MAP_FAILED {
        crate::weights::mapped(mapped, length);
    }
    mapped
}

/// The same function by its other name.
///
/// # Safety
/// As of mmap(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: as above; offsets have 64 bits on every machine that this is built for.
    unsafe { mmap(address, length, protection, flags, file, offset) }
}

/// `posix_madvise`, which takes no advice: it never has to.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn posix_madvise(_address: *mut c_void, _length: size_t, _advice: c_int) -> c_int {
    0
}

// Cleared by `llama-kv-cache.cpp`, `llama-memory-recurrent.cpp @ b10605, b8799`.
/// ggml's own `clear` of a buffer, whose contents are never read.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ggml_backend_buffer_clear(_buffer: *mut c_void, _value: u8) {}
