//! Holds the addresses of the real functions of libcuda.so.1, libamdhip64.so and libnvidia-ml.so.1, which
//! guard's hooks call.
//!
//! What guard asks of cards itself goes to the interface that the process uses ([`interface`]): most
//! functions of CUDA's driver are in HIP's runtime under another name, with the same parameters and codes.
//!
//! A function that the driver lacks returns the driver's "not found" error.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

mod functions;
pub(crate) mod hip;
pub(crate) mod interface;
pub(crate) mod loader;

pub(crate) use functions::*;

/// `CUresult`, `hipError_t` and `nvmlReturn_t`. It is a number and not an enum, because a newer driver may
/// return unknown codes.
pub(crate) type CuResult = i32;
/// `CUdeviceptr`.
pub(crate) type DevicePointer = u64;
/// `CUdevice` and `hipDevice_t`: the ordinal of a card.
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
    sonames: &'static [&'static CStr],
    handle: AtomicPtr<c_void>,
    missing: extern "C" fn() -> CuResult,
}

pub(crate) static CUDA: DriverLibrary = DriverLibrary {
    sonames: &[c"libcuda.so.1"],
    handle: AtomicPtr::new(null_mut()),
    missing: missing_in_cuda,
};

/// The runtime of ROCm 6 and of ROCm 7.
pub(crate) static HIP: DriverLibrary = DriverLibrary {
    sonames: &[c"libamdhip64.so.6", c"libamdhip64.so.7"],
    handle: AtomicPtr::new(null_mut()),
    missing: missing_in_cuda,
};

pub(crate) static NVML: DriverLibrary = DriverLibrary {
    sonames: &[c"libnvidia-ml.so.1"],
    handle: AtomicPtr::new(null_mut()),
    missing: missing_in_nvml,
};

/// CUDA_ERROR_NOT_FOUND and hipErrorNotFound.
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
        let loaded = self.sonames.iter().map(|soname| loader::loaded(soname));
        let found = loaded.into_iter().find(|handle| !handle.is_null()).unwrap_or(null_mut());
        // A failure is not remembered: the program may load the library later.
        if !found.is_null() {
            self.handle.store(found, Release);
        }
        found
    }
}

/// Where a function is.
#[derive(Debug)]
enum Home {
    /// In this library, whichever interface the process uses.
    Library(&'static DriverLibrary),
    /// In the library of the process's interface; with its name in HIP, if it has one.
    Interface(Option<&'static CStr>),
}

/// A library function, looked up at its first call.
#[derive(Debug)]
pub(crate) struct Slot {
    home: Home,
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Slot {
    pub(crate) const fn new(library: &'static DriverLibrary, name: &'static CStr) -> Self {
        Self { home: Home::Library(library), name, address: AtomicPtr::new(null_mut()) }
    }

    /// A function of the interface that the process uses; to be called only when that is known.
    pub(crate) const fn of_interface(name: &'static CStr, hip: Option<&'static CStr>) -> Self {
        Self { home: Home::Interface(hip), name, address: AtomicPtr::new(null_mut()) }
    }

    /// The library of the function, and its name there.
    fn place(&self) -> (&'static DriverLibrary, Option<&'static CStr>) {
        match self.home {
            Home::Library(library) => (library, Some(self.name)),
            Home::Interface(hip) if interface::is_hip() => (&HIP, hip),
            Home::Interface(_) => (&CUDA, Some(self.name)),
        }
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
        self.place().0.missing as *mut c_void
    }

    #[cold]
    fn resolve(&self) -> *mut c_void {
        let (library, name) = self.place();
        let (handle, Some(name)) = (library.handle(), name) else {
            return self.missing();
        };
        if handle.is_null() {
            return self.missing();
        }
        let found = loader::symbol(handle, name);
        let callee = if found.is_null() { self.missing() } else { found };
        self.address.store(callee, Release);
        callee
    }
}

/// The name of a symbol, from its text with a zero behind it.
pub(crate) const fn symbol_name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("the name of a symbol never contains a zero byte"),
    }
}

/// Declares functions of a library: for each a slot, and a function of its name that calls the address in the
/// slot.
///
/// With `by INTERFACE` they are those of the process's interface, by CUDA's name and `= HIP's`. One without a
/// name in HIP answers "not found" there.
macro_rules! real {
    (by INTERFACE; $($symbol:ident $(= $hip:ident)? ($($arguments:tt)*);)*) => {
        pub(crate) mod slots {
            $(
                pub(crate) static $symbol: $crate::driver::Slot = $crate::driver::Slot::of_interface(
                    $crate::driver::real!(@name $symbol),
                    $crate::driver::real!(@hip $($hip)?),
                );
            )*
        }
        $($crate::driver::real!(@function $symbol ($($arguments)*));)*
    };

    (in $library:ident; $($symbol:ident $arguments:tt;)*) => {
        pub(crate) mod slots {
            $(
                pub(crate) static $symbol: $crate::driver::Slot =
                    $crate::driver::Slot::new(&$crate::driver::$library, $crate::driver::real!(@name $symbol));
            )*
        }
        $($crate::driver::real!(@function $symbol $arguments);)*
    };

    (@name $symbol:ident) => { $crate::driver::symbol_name(concat!(stringify!($symbol), "\0")) };
    (@hip) => { None };
    (@hip $hip:ident) => { Some($crate::driver::real!(@name $hip)) };

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
