//! Replacement of ggml's copy function, so that weights of a mapped model file are never read.
//!
//! A Vulkan backend copies weights into its host-visible buffers with `memcpy`, and that would read the whole
//! file.

use alloc::collections::BTreeMap;
use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use plimsoll_nostd::elf::ElfImage;
use plimsoll_nostd::lock::Lock;

/// Mapped files: where each ends, by its beginning.
static FILES: Lock<BTreeMap<usize, usize>> = Lock::new(BTreeMap::new());

/// Notes a file that was mapped.
pub(crate) fn mapped(address: *mut c_void, length: usize) {
    FILES.hold().insert(address.addr(), address.addr().saturating_add(length));
}

/// Forgets the files that a range touches.
fn unmapped(start: usize, length: usize) {
    let end = start.saturating_add(length);
    FILES.hold().retain(|&from, &mut to| to <= start || from >= end);
}

fn is_mapped(data: *const c_void) -> bool {
    let data = data.addr();
    FILES.hold().range(..=data).next_back().is_some_and(|(_, &end)| data < end)
}

/// # Safety
/// As of munmap(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    unmapped(address.addr(), length);
    // SAFETY: the caller's promise. On failure both this and munmap return -1 and set errno.
    let status = unsafe { libc::syscall(libc::SYS_munmap, address, length) };
    c_int::try_from(status).unwrap_or(-1)
}

type Set = unsafe extern "C" fn(*mut c_void, *const c_void, usize, usize);
type SetAsync = unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void, usize, usize);

/// # Safety
/// As of ggml.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_backend_tensor_set(
    tensor: *mut c_void,
    data: *const c_void,
    offset: usize,
    size: usize,
) {
    static OWN: AtomicUsize = AtomicUsize::new(0);
    let own = || ggml(&OWN, c"ggml_backend_tensor_set", ggml_backend_tensor_set as *const c_void);
    if let Some(own) = (!is_mapped(data)).then(own).flatten() {
        // SAFETY: ggml's function of this name, with the caller's arguments.
        unsafe { transmute::<*const c_void, Set>(own)(tensor, data, offset, size) };
    }
}

/// # Safety
/// As of ggml.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_backend_tensor_set_async(
    backend: *mut c_void,
    tensor: *mut c_void,
    data: *const c_void,
    offset: usize,
    size: usize,
) {
    static OWN: AtomicUsize = AtomicUsize::new(0);
    let own = || ggml(&OWN, c"ggml_backend_tensor_set_async", ggml_backend_tensor_set_async as *const c_void);
    if let Some(own) = (!is_mapped(data)).then(own).flatten() {
        // SAFETY: as above.
        unsafe { transmute::<*const c_void, SetAsync>(own)(backend, tensor, data, offset, size) };
    }
}

/// ggml's own function, kept in `known`. Python loads it out of `RTLD_NEXT`'s sight, so every object is looked at.
fn ggml(known: &AtomicUsize, name: &CStr, ours: *const c_void) -> Option<*const c_void> {
    struct Sought<'a> {
        name: &'a CStr,
        ours: *const c_void,
        found: *const c_void,
    }
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, sought: *mut c_void) -> c_int {
        // SAFETY: the loader passes an object, and `ggml` passes what it seeks.
        let (object, sought) = unsafe { (ElfImage::of(&*info), &mut *sought.cast::<Sought<'_>>()) };
        let others = object.filter(|object| !object.holds(sought.ours));
        sought.found = others.map_or(sought.found, |object| object.function(sought.name));
        c_int::from(!sought.found.is_null())
    }
    let mut sought = Sought { name, ours, found: core::ptr::null() };
    match known.load(Relaxed) {
        0 => {
            // SAFETY: `visit` takes the address of what is sought.
            unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut sought).cast()) };
            known.store(sought.found.expose_provenance(), Relaxed);
        }
        address => sought.found = core::ptr::with_exposed_provenance(address),
    }
    (!sought.found.is_null()).then_some(sought.found)
}
