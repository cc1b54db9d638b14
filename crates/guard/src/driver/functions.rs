//! Wraps the driver functions that guard calls for its own purposes, such as measuring free memory.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::fmt::Write;
use core::ptr::null_mut;

use plimsoll_wire::options::Uuid;

use super::interface::is_hip;
use super::{Context, CuArray, CuStream, DeviceOrdinal, DevicePointer, MemoryPool, SUCCESS};
use crate::text::Text;

/// `nvmlProcessInfo_v1_t`, which the NVML function without a version suffix fills.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct NvmlProcess {
    pub(crate) pid: c_uint,
    pub(crate) used: u64,
}

impl NvmlProcess {
    pub(crate) const NONE: Self = Self { pid: 0, used: 0 };
}

/// Attributes that guard reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    ConcurrentManagedAccess,
    VirtualMemoryManagement,
    HostNumaId,
}

impl Attribute {
    /// Its `CUdevice_attribute` or `hipDeviceAttribute_t`; None where the interface has none.
    pub(crate) fn number(self) -> Option<c_int> {
        match (self, is_hip()) {
            (Self::ConcurrentManagedAccess, false) => Some(89),
            (Self::VirtualMemoryManagement, false) => Some(102),
            (Self::HostNumaId, false) => Some(134),
            (Self::ConcurrentManagedAccess, true) => Some(9),
            (Self::VirtualMemoryManagement, true) => Some(89),
            (Self::HostNumaId, true) => None,
        }
    }
}

/// An attribute of a card from the real driver; `otherwise` if the driver does not define the attribute.
pub(crate) fn device_attribute(device: DeviceOrdinal, attribute: Attribute, otherwise: c_int) -> c_int {
    let mut value = otherwise;
    let Some(number) = attribute.number() else { return otherwise };
    // SAFETY: the place is ours. A driver that does not know the attribute leaves it.
    let code = unsafe { cuDeviceGetAttribute(&raw mut value, number, device) };
    if code == SUCCESS { value } else { otherwise }
}

/// NVML's own handle for the card with this UUID.
pub(crate) fn nvml_device(uuid: [u8; 16]) -> Option<*mut c_void> {
    let (mut name, mut device) = (Text::new(), null_mut());
    write!(name, "{}", Uuid(uuid)).ok()?;
    // SAFETY: a C string, and a place of ours.
    let found = unsafe { nvmlDeviceGetHandleByUUID(name.as_c()?.as_ptr(), &raw mut device) };
    (found == SUCCESS).then_some(device)
}

mod cuda {
    use super::*;

    crate::driver::real! {
        by INTERFACE;
        cuDeviceGetCount = hipGetDeviceCount(count: *mut c_int);
        cuDeviceGetUuid_v2 = hipDeviceGetUuid(uuid: *mut [u8; 16], device: DeviceOrdinal);
        cuDeviceGetUuid(uuid: *mut [u8; 16], device: DeviceOrdinal);
        cuDeviceGetPCIBusId = hipDeviceGetPCIBusId(text: *mut c_char, room: c_int, device: DeviceOrdinal);
        cuDeviceTotalMem_v2 = hipDeviceTotalMem(total: *mut usize, device: DeviceOrdinal);
        cuDeviceGetAttribute = hipDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: DeviceOrdinal);
        cuDeviceGetByPCIBusId(device: *mut DeviceOrdinal, bus: *const c_char);
        cuDevicePrimaryCtxGetState(device: DeviceOrdinal, flags: *mut c_uint, active: *mut c_int);
        cuCtxGetDevice = hipGetDevice(device: *mut DeviceOrdinal);
        cuCtxGetCurrent(context: *mut Context);
        cuCtxPushCurrent_v2(context: Context);
        cuCtxPopCurrent_v2(context: *mut Context);
        cuCtxSynchronize = hipDeviceSynchronize();
        cuStreamIsCapturing = hipStreamIsCapturing(stream: CuStream, status: *mut c_uint);
        cuStreamIsCapturing_ptsz(stream: CuStream, status: *mut c_uint);
        cuDeviceGetMemPool = hipDeviceGetMemPool(pool: *mut MemoryPool, device: DeviceOrdinal);
        cuDeviceGetDefaultMemPool = hipDeviceGetDefaultMemPool(pool: *mut MemoryPool, device: DeviceOrdinal);
        cuMemPoolTrimTo = hipMemPoolTrimTo(pool: MemoryPool, keep: usize);
        cuMemAlloc_v2 = hipMalloc(pointer: *mut DevicePointer, size: usize);
        cuMemGetInfo_v2 = hipMemGetInfo(free: *mut u64, total: *mut u64);
        cuMemPoolGetAttribute = hipMemPoolGetAttribute(pool: MemoryPool, attribute: c_int, value: *mut c_void);
        cuArrayGetMemoryRequirements(requirements: *mut [u64; 4], array: CuArray, device: DeviceOrdinal);
        cuMipmappedArrayGetMemoryRequirements(requirements: *mut [u64; 4], array: CuArray, device: DeviceOrdinal);
        cuThreadExchangeStreamCaptureMode = hipThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    }
}

mod nvml {
    use super::*;

    crate::driver::real! {
        in NVML;
        nvmlInit_v2();
        nvmlDeviceGetMemoryInfo(device: *mut c_void, memory: *mut [u64; 3]);
        nvmlDeviceGetComputeRunningProcesses(
            device: *mut c_void, count: *mut c_uint, processes: *mut NvmlProcess
        );
        nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut *mut c_void);
        nvmlDeviceGetUUID(device: *mut c_void, uuid: *mut c_char, length: c_uint);
    }
}

pub(crate) use cuda::*;
pub(crate) use nvml::*;
