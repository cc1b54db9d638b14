//! Wraps the driver functions that guard calls for its own purposes, such as measuring free memory.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::fmt::Write;
use core::ptr::null_mut;

use plimsoll_wire::options::Uuid;

use super::{Context, CuArray, CuStream, DeviceOrdinal, MemoryPool, SUCCESS};
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

/// `CUdevice_attribute`s that guard reads.
pub(crate) mod attribute {
    use core::ffi::c_int;

    pub(crate) const CONCURRENT_MANAGED_ACCESS: c_int = 89;
    pub(crate) const VIRTUAL_MEMORY_MANAGEMENT: c_int = 102;
    pub(crate) const HOST_NUMA_ID: c_int = 134;
}

/// An attribute of a card from the real driver; `otherwise` if the driver does not define the attribute.
pub(crate) fn device_attribute(device: DeviceOrdinal, attribute: c_int, otherwise: c_int) -> c_int {
    let mut value = otherwise;
    // SAFETY: the place is ours. A driver that does not know the attribute leaves it.
    let code = unsafe { cuDeviceGetAttribute(&raw mut value, attribute, device) };
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
        in CUDA;
        cuDeviceGetCount(count: *mut c_int);
        cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: DeviceOrdinal);
        cuDeviceGetUuid(uuid: *mut [u8; 16], device: DeviceOrdinal);
        cuDeviceTotalMem_v2(total: *mut usize, device: DeviceOrdinal);
        cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: DeviceOrdinal);
        cuDeviceGetByPCIBusId(device: *mut DeviceOrdinal, bus: *const c_char);
        cuDevicePrimaryCtxGetState(device: DeviceOrdinal, flags: *mut c_uint, active: *mut c_int);
        cuCtxGetDevice(device: *mut DeviceOrdinal);
        cuCtxGetCurrent(context: *mut Context);
        cuCtxPushCurrent_v2(context: Context);
        cuCtxPopCurrent_v2(context: *mut Context);
        cuCtxSynchronize();
        cuStreamIsCapturing(stream: CuStream, status: *mut c_uint);
        cuStreamIsCapturing_ptsz(stream: CuStream, status: *mut c_uint);
        cuDeviceGetMemPool(pool: *mut MemoryPool, device: DeviceOrdinal);
        cuDeviceGetDefaultMemPool(pool: *mut MemoryPool, device: DeviceOrdinal);
        cuMemPoolTrimTo(pool: MemoryPool, keep: usize);
        cuMemGetInfo_v2(free: *mut u64, total: *mut u64);
        cuMemPoolGetAttribute(pool: MemoryPool, attribute: c_int, value: *mut c_void);
        cuArrayGetMemoryRequirements(requirements: *mut [u64; 4], array: CuArray, device: DeviceOrdinal);
        cuMipmappedArrayGetMemoryRequirements(requirements: *mut [u64; 4], array: CuArray, device: DeviceOrdinal);
        cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
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
