//! Takes memory of a CUDA card for the fake engine as a real engine does: through `libcuda.so.1`, loaded at
//! the first use.
//!
//! A real engine's CUDA runtime also uses `dlopen` and `dlsym`, so a preloaded library such as guard treats
//! this program like an engine.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::mem::transmute_copy;
use std::ptr::null_mut;

const NOW: c_int = 2;
const SUCCESS: c_int = 0;

unsafe extern "C" {
    fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Init = unsafe extern "C" fn(u32) -> c_int;
type GetDevice = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type RetainContext = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type SetContext = unsafe extern "C" fn(*mut c_void) -> c_int;
type Allocate = unsafe extern "C" fn(*mut u64, usize) -> c_int;

/// The first card that the process sees, with a context on it. What is taken stays taken.
pub(crate) struct Card {
    allocate: Allocate,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CardError {
    #[error("there is no {0}")]
    Missing(&'static str),
    #[error("{call} failed with {code}")]
    Failed { call: &'static str, code: c_int },
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card").finish_non_exhaustive()
    }
}

impl Card {
    pub(crate) fn open() -> Result<Self, CardError> {
        // SAFETY: the name is a C string; the library stays loaded for the life of the process.
        let library = unsafe { dlopen(c"libcuda.so.1".as_ptr(), NOW) };
        if library.is_null() {
            return Err(CardError::Missing("libcuda.so.1"));
        }
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: the types are those of the driver's header, and every place is ours.
        unsafe {
            let init: Init = function(library, c"cuInit", "cuInit")?;
            let get: GetDevice = function(library, c"cuDeviceGet", "cuDeviceGet")?;
            let retain: RetainContext =
                function(library, c"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain")?;
            let set: SetContext = function(library, c"cuCtxSetCurrent", "cuCtxSetCurrent")?;
            check("cuInit", init(0))?;
            check("cuDeviceGet", get(&raw mut device, 0))?;
            check("cuDevicePrimaryCtxRetain", retain(&raw mut context, device))?;
            check("cuCtxSetCurrent", set(context))?;
            Ok(Self { allocate: function(library, c"cuMemAlloc_v2", "cuMemAlloc_v2")? })
        }
    }

    /// Takes `bytes` more of the card, for good.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), CardError> {
        let (mut pointer, size) = (0, usize::try_from(bytes).unwrap_or(usize::MAX));
        // SAFETY: the context is current on this thread, the only one, and the place is ours.
        check("cuMemAlloc", unsafe { (self.allocate)(&raw mut pointer, size) })
    }
}

fn check(call: &'static str, code: c_int) -> Result<(), CardError> {
    match code {
        SUCCESS => Ok(()),
        code => Err(CardError::Failed { call, code }),
    }
}

/// # Safety
/// `F` is the type of the function that the library calls `name`.
unsafe fn function<F>(library: *mut c_void, name: &CStr, missing: &'static str) -> Result<F, CardError> {
    // SAFETY: the library is loaded and the name is a C string.
    let address = unsafe { dlsym(library, name.as_ptr()) };
    if address.is_null() {
        return Err(CardError::Missing(missing));
    }
    // SAFETY: a function pointer has the size and the bits of its address, and the caller vouches for the
    // type.
    Ok(unsafe { transmute_copy(&address) })
}
