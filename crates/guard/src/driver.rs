//! Holds the addresses of the real functions of libcuda.so.1 and libnvidia-ml.so.1, which guard's hooks call.
//!
//! A function that the driver lacks returns the driver's "not found" error.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

mod functions;
pub(crate) mod loader;

pub(crate) use functions::*;

/// `CUresult` and `nvmlReturn_t`. It is a number and not an enum, because a newer driver may return unknown
/// codes.
pub(crate) type CuResult = i32;
/// `CUdeviceptr`.
pub(crate) type DevicePointer = u64;
/// `CUdevice`: the ordinal of a card.
pub(crate) type DeviceOrdinal = c_int;
/// `CUmemGenericAllocationHandle`.
pub(crate) type AllocationHandle = u64;
/// `CUcontext`.
pub(crate) type Context = *mut c_void;
/// `CUstream`.
pub(crate) type CuStream = *mut c_void;
/// `CUmemoryPool`.
pub(crate) type MemoryPool = *mut c_void;
/// `CUarray` and `CUmipmappedArray`.
pub(crate) type CuArray = *mut c_void;

pub(crate) const SUCCESS: CuResult = 0;
pub(crate) const INVALID_VALUE: CuResult = 1;
/// The only code on which ggml and PyTorch give back their caches and try again.
pub(crate) const OUT_OF_MEMORY: CuResult = 2;
pub(crate) const NOT_SUPPORTED: CuResult = 801;

/// A library whose functions guard interposes.
#[derive(Debug)]
pub(crate) struct DriverLibrary {
    soname: &'static CStr,
    handle: AtomicPtr<c_void>,
    missing: extern "C" fn() -> CuResult,
}

pub(crate) static CUDA: DriverLibrary =
    DriverLibrary { soname: c"libcuda.so.1", handle: AtomicPtr::new(null_mut()), missing: missing_in_cuda };

pub(crate) static NVML: DriverLibrary = DriverLibrary {
    soname: c"libnvidia-ml.so.1",
    handle: AtomicPtr::new(null_mut()),
    missing: missing_in_nvml,
};

/// CUDA_ERROR_NOT_FOUND.
extern "C" fn missing_in_cuda() -> CuResult {
    500
}

/// NVML_ERROR_FUNCTION_NOT_FOUND.
extern "C" fn missing_in_nvml() -> CuResult {
    13
}

impl DriverLibrary {
    /// Its handle; null while the program has not loaded it.
    pub(crate) fn handle(&self) -> *mut c_void {
        let known = self.handle.load(Acquire);
        if !known.is_null() {
            return known;
        }
        let found = loader::loaded(self.soname);
        // A failure is not remembered: the program may load the library later.
        if !found.is_null() {
            self.handle.store(found, Release);
        }
        found
    }
}

/// A library function, looked up at its first call.
#[derive(Debug)]
pub(crate) struct Slot {
    library: &'static DriverLibrary,
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Slot {
    pub(crate) const fn new(library: &'static DriverLibrary, name: &'static CStr) -> Self {
        Self { library, name, address: AtomicPtr::new(null_mut()) }
    }

    /// The function, or one that answers "not found".
    pub(crate) fn callee(&self) -> *mut c_void {
        let known = self.address.load(Acquire);
        if known.is_null() { self.resolve() } else { known }
    }

    /// The library's function; null while the library is not loaded, or if it has none of this name.
    pub(crate) fn function(&self) -> *mut c_void {
        let callee = self.callee();
        if callee == self.missing() { null_mut() } else { callee }
    }

    fn missing(&self) -> *mut c_void {
        self.library.missing as *mut c_void
    }

    #[cold]
    fn resolve(&self) -> *mut c_void {
        let library = self.library.handle();
        if library.is_null() {
            return self.missing();
        }
        let found = loader::symbol(library, self.name);
        let callee = if found.is_null() { self.missing() } else { found };
        self.address.store(callee, Release);
        callee
    }
}

/// Declares functions of a library: for each a slot, and a function of its name that calls the address in the
/// slot.
macro_rules! real {
    (in $library:ident; $($symbol:ident $arguments:tt;)*) => {
        pub(crate) mod slots {
            $(
                pub(crate) static $symbol: $crate::driver::Slot = $crate::driver::Slot::new(
                    &$crate::driver::$library,
                    match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("the name of a symbol never contains a zero byte"),
                    },
                );
            )*
        }
        $($crate::driver::real!(@function $symbol $arguments);)*
    };

    (@function $symbol:ident ($($argument:ident: $type:ty),* $(,)?)) => {
        /// The driver's own.
        ///
        /// # Safety
        /// As the driver asks of its callers.
        #[allow(dead_code, reason = "a hook need not call the function that it replaces")]
        #[allow(clippy::too_many_arguments, reason = "the driver's prototypes")]
        pub(crate) unsafe fn $symbol($($argument: $type),*) -> $crate::driver::CuResult {
            // SAFETY: the slot has the address of this function, whose prototype in cuda.h is this, or of one
            // without arguments, which C's calling convention lets us call with any.
            unsafe {
                let function = core::mem::transmute::<
                    *mut core::ffi::c_void,
                    unsafe extern "C" fn($($type),*) -> $crate::driver::CuResult,
                >(slots::$symbol.callee());
                function($($argument),*)
            }
        }
    };
}

pub(crate) use real;
