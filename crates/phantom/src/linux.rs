//! Linux' half: memory of the kernel, files without buffers, and what the engine was linked with.

use alloc::ffi::CString;
use alloc::string::{String, ToString};
use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;

use plimsoll_nostd::elf::ElfImage;
pub(crate) use plimsoll_nostd::lock::Lock;

use crate::memory::Access;

/// A file that lines are appended to.
#[derive(Debug)]
pub(crate) struct Sink(c_int);

impl Sink {
    pub(crate) const STDERR: Self = Self(libc::STDERR_FILENO);

    /// Opens a file for append.
    pub(crate) fn of_file(path: &str) -> Option<Self> {
        const MODE: libc::mode_t = 0o644;
        // O_APPEND keeps lines of several processes whole; O_CLOEXEC keeps the file from the engine's
        // children.
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        let path = CString::new(path).ok()?;
        // SAFETY: a C string; O_CREAT takes the mode.
        let file = unsafe { libc::open(path.as_ptr(), flags, MODE) };
        (file >= 0).then_some(Self(file))
    }

    /// Writes in one call. A full disk loses lines, and stderr may be closed, but that does not end the
    /// engine.
    pub(crate) fn append(&self, text: &str) {
        // SAFETY: the bytes are ours.
        unsafe { libc::write(self.0, text.as_ptr().cast(), text.len()) };
    }
}

/// New memory, or addresses without memory.
pub(crate) fn map(bytes: usize, access: Access) -> Option<*mut c_void> {
    let protection = match access {
        Access::None => libc::PROT_NONE,
        Access::Full => libc::PROT_READ | libc::PROT_WRITE,
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let address = unsafe { libc::mmap(null_mut(), bytes.max(1), protection, flags, -1, 0) };
    (address != libc::MAP_FAILED).then_some(address)
}

pub(crate) fn unmap(address: *mut c_void, bytes: usize) {
    // SAFETY: `map` mapped it with this size, and its owner let it go.
    unsafe { libc::munmap(address, bytes.max(1)) };
}

/// The number of the calling thread.
pub(crate) fn thread() -> i64 {
    // SAFETY: gettid takes nothing. It has no function in glibc before 2.30.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

/// An environment variable; `None` if it is unset.
pub(crate) fn value(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    // SAFETY: a C string; the value is copied at once.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: null, or a C string of the environment.
    let value = (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })?;
    Some(value.to_str().ok()?.to_string())
}

/// Needs of the loaded objects: the version of `libcudart.so.N`, and true for `libamdhip64.so.N`.
pub(crate) fn runtime() -> (u32, bool) {
    let mut found = (0, false);
    each_object(|object| {
        for needed in object.needed() {
            found.0 = found.0.max(version(needed).unwrap_or(0));
            found.1 |= needed.to_bytes().starts_with(b"libamdhip64.so.");
        }
        false
    });
    found
}

/// Looks at the loaded objects until one is found to be the last.
pub(crate) fn each_object<F: FnMut(&ElfImage<'_>) -> bool>(mut look: F) {
    unsafe extern "C" fn visit<F: FnMut(&ElfImage<'_>) -> bool>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        look: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes an object, and `each_object` its own argument.
        let (object, look) = unsafe { (ElfImage::of(&*info), &mut *look.cast::<F>()) };
        object.is_some_and(|object| look(&object)).into()
    }
    // SAFETY: `visit` takes the address of this argument.
    unsafe { libc::dl_iterate_phdr(Some(visit::<F>), (&raw mut look).cast()) };
}

/// 13 of `libcudart.so.13`, 11 of `libcudart.so.11.0`.
fn version(soname: &CStr) -> Option<u32> {
    let rest = soname.to_str().ok()?.strip_prefix("libcudart.so.")?;
    rest.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtimes_version_is_that_of_its_soname() {
        assert_eq!(version(c"libcudart.so.13"), Some(13));
        assert_eq!(version(c"libcudart.so.11.0"), Some(11));
        assert_eq!(version(c"libcudart.so"), None);
        assert_eq!(version(c"libcudart_static.a"), None);
    }
}
