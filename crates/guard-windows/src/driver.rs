//! The real functions of CUDA's driver (`nvcuda.dll`), found when they are first called.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::w;

/// `CUresult`, and `cudaError_t` where both have the same number.
pub(crate) type CuResult = c_int;
pub(crate) type DevicePointer = u64;
/// A stream, an event, a graph or a context.
pub(crate) type Handle = *mut c_void;

pub(crate) const SUCCESS: CuResult = 0;
/// CUDA_ERROR_OUT_OF_MEMORY and cudaErrorMemoryAllocation.
pub(crate) const OUT_OF_MEMORY: CuResult = 2;
/// CUDA_ERROR_NOT_FOUND: this driver has no such function.
const NOT_FOUND: CuResult = 500;

macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*);)*) => { $(
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $name($($argument: $type),*) -> CuResult {
            static PLACE: AtomicUsize = AtomicUsize::new(0);
            const NAME: &str = concat!(stringify!($name), "\0");
            let Some(address) = found(&PLACE, NAME) else { return NOT_FOUND };
            // SAFETY: the driver's function of this name has these arguments (cuda.h @ 12.4).
            let function = unsafe { transmute::<usize, unsafe extern "C" fn($($type),*) -> CuResult>(address) };
            // SAFETY: the caller's own arguments.
            unsafe { function($($argument),*) }
        }
    )* };
}

functions! {
    fn cuCtxGetCurrent(context: *mut Handle);
    fn cuCtxGetDevice(device: *mut c_int);
    fn cuCtxSynchronize();
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGetUuid(uuid: *mut u8, device: c_int);
    fn cuDeviceGetUuid_v2(uuid: *mut u8, device: c_int);
    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, is_active: *mut c_int);
    fn cuDeviceTotalMem_v2(total: *mut usize, device: c_int);
    fn cuEventCreate(event: *mut Handle, flags: c_uint);
    fn cuEventDestroy_v2(event: Handle);
    fn cuEventQuery(event: Handle);
    fn cuEventRecord(event: Handle, stream: Handle);
    fn cuMemAlloc_v2(pointer: *mut DevicePointer, size: usize);
    fn cuMemFree_v2(pointer: DevicePointer);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
}

/// The address of a function, whose name ends in zero; `None` before the program has loaded the driver.
fn found(place: &AtomicUsize, name: &str) -> Option<usize> {
    let known = place.load(Relaxed);
    if known != 0 {
        return Some(known);
    }
    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
    // SAFETY: both are strings that end in zero; the driver is never unloaded while a program uses it.
    let function = unsafe { GetProcAddress(GetModuleHandleW(w!("nvcuda.dll")), name.as_ptr().cast()) }?;
    place.store(function as usize, Relaxed);
    Some(function as usize)
}

/// The device of the calling thread's context.
pub(crate) fn device() -> Option<c_int> {
    let mut device = 0;
    // SAFETY: the place is ours.
    (unsafe { cuCtxGetDevice(&raw mut device) } == SUCCESS).then_some(device)
}

/// The calling thread's context, by its address.
pub(crate) fn context() -> Option<usize> {
    let mut context = std::ptr::null_mut();
    // SAFETY: the place is ours.
    let code = unsafe { cuCtxGetCurrent(&raw mut context) };
    (code == SUCCESS && !context.is_null()).then_some(context.expose_provenance())
}

/// Free bytes of the card of the calling thread's context.
pub(crate) fn free_memory() -> Option<u64> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the places are ours.
    let code = unsafe { cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    (code == SUCCESS).then(|| bytes(free))
}

pub(crate) fn bytes(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
