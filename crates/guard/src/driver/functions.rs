//! Functions of the driver that guard calls and does not hook.

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::{Array, Context, Device, MemoryPool, Stream};

mod cuda {
    use super::*;

    crate::driver::real! {
        in CUDA;
        cuDeviceGetCount(count: *mut c_int);
        cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: Device);
        cuDeviceGetUuid(uuid: *mut [u8; 16], device: Device);
        cuDeviceGetByPCIBusId(device: *mut Device, bus: *const c_char);
        cuDevicePrimaryCtxGetState(device: Device, flags: *mut c_uint, active: *mut c_int);
        cuCtxGetDevice(device: *mut Device);
        cuCtxGetCurrent(context: *mut Context);
        cuCtxPushCurrent_v2(context: Context);
        cuCtxPopCurrent_v2(context: *mut Context);
        cuCtxSynchronize();
        cuStreamIsCapturing(stream: Stream, status: *mut c_uint);
        cuStreamIsCapturing_ptsz(stream: Stream, status: *mut c_uint);
        cuDeviceGetMemPool(pool: *mut MemoryPool, device: Device);
        cuDeviceGetDefaultMemPool(pool: *mut MemoryPool, device: Device);
        cuMemPoolGetAttribute(pool: MemoryPool, attribute: c_int, value: *mut c_void);
        cuArrayGetMemoryRequirements(requirements: *mut [u64; 4], array: Array, device: Device);
        cuMipmappedArrayGetMemoryRequirements(requirements: *mut [u64; 4], array: Array, device: Device);
        cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    }
}

mod nvml {
    use super::*;

    crate::driver::real! {
        in NVML;
        nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut *mut c_void);
        nvmlDeviceGetUUID(device: *mut c_void, uuid: *mut c_char, length: c_uint);
    }
}

pub(crate) use cuda::*;
pub(crate) use nvml::*;
