//! Replaces functions of libc and ggml, so that model files are not read and caches are not cleared.
//!
//! Nothing computes with these bytes here. llama.cpp would read a whole file when it maps the file
//! (`llama-mmap.cpp @ b10605`), a Vulkan backend when it copies weights into its host-visible buffers.

use alloc::collections::BTreeMap;
use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libc::{MAP_POPULATE, SYS_mmap, SYS_munmap, off_t, syscall};

use crate::system::{Lock, each_object};

/// Mapped files: where each ends, by its beginning.
static FILES: Lock<BTreeMap<usize, usize>> = Lock::new(BTreeMap::new());

type Set = unsafe extern "C" fn(*mut c_void, *const c_void, usize, usize);
type SetAsync = unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void, usize, usize);

crate::exported! {
    /// `mmap`, which maps files without reading them.
    ///
    /// `mmap64` is its other name: offsets have 64 bits on every machine that this is built for.
    fn mmap as mmap64(
        address: *mut c_void, length: usize, protection: c_int, flags: c_int, file: c_int, offset: off_t,
    ) -> *mut c_void {
        let flags = if file >= 0 { flags & !MAP_POPULATE } else { flags };
        // The arguments are the caller's, but for a flag that only says when pages are read.
        let mapped = syscall(SYS_mmap, address, length, protection, flags, file, offset) as *mut c_void;
        if file >= 0 && mapped != libc::MAP_FAILED {
            FILES.hold().insert(mapped.addr(), mapped.addr().saturating_add(length));
        }
        mapped
    }

    fn munmap(address: *mut c_void, length: usize) -> c_int {
        let end = address.addr().saturating_add(length);
        FILES.hold().retain(|&from, &mut to| to <= address.addr() || from >= end);
        // On failure both this and munmap return -1 and set errno.
        c_int::try_from(syscall(SYS_munmap, address, length)).unwrap_or(-1)
    }

    /// `posix_madvise`, which takes no advice: it never has to.
    fn posix_madvise() -> c_int { 0 }

    /// ggml's own `clear` of a buffer, whose contents are never read (`llama-kv-cache.cpp @ b10605, b8799`).
    fn ggml_backend_buffer_clear() {}

    fn ggml_backend_tensor_set(tensor: *mut c_void, data: *const c_void, offset: usize, size: usize) {
        static OWN: AtomicUsize = AtomicUsize::new(0);
        let ours = ggml_backend_tensor_set as *const c_void;
        if let Some(own) = ggml(&OWN, c"ggml_backend_tensor_set", ours, data) {
            transmute::<*const c_void, Set>(own)(tensor, data, offset, size);
        }
    }

    fn ggml_backend_tensor_set_async(
        backend: *mut c_void, tensor: *mut c_void, data: *const c_void, offset: usize, size: usize,
    ) {
        static OWN: AtomicUsize = AtomicUsize::new(0);
        let ours = ggml_backend_tensor_set_async as *const c_void;
        if let Some(own) = ggml(&OWN, c"ggml_backend_tensor_set_async", ours, data) {
            transmute::<*const c_void, SetAsync>(own)(backend, tensor, data, offset, size);
        }
    }
}

/// ggml's own function, kept in `known`, for data that is not of a mapped file. Python loads it out of
/// `RTLD_NEXT`'s sight, so every object is looked at.
fn ggml(known: &AtomicUsize, name: &CStr, ours: *const c_void, data: *const c_void) -> Option<*const c_void> {
    let data = data.addr();
    if FILES.hold().range(..=data).next_back().is_some_and(|(_, &end)| data < end) {
        return None;
    }
    let mut found = known.load(Relaxed);
    if found == 0 {
        each_object(|object| {
            if !object.holds(ours) {
                found = object.function(name).expose_provenance();
            }
            found != 0
        });
        known.store(found, Relaxed);
    }
    (found != 0).then(|| core::ptr::with_exposed_provenance(found))
}
