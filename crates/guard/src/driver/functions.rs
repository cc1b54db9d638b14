//! Functions of the driver that guard calls and does not hook.

use core::ffi::{c_int, c_uint};

use super::{Context, Device, Stream};

super::real! {
    in CUDA;
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: Device);
    cuDeviceGetUuid(uuid: *mut [u8; 16], device: Device);
    cuCtxGetDevice(device: *mut Device);
    cuCtxGetCurrent(context: *mut Context);
    cuCtxPushCurrent_v2(context: Context);
    cuCtxPopCurrent_v2(context: *mut Context);
    cuCtxSynchronize();
    cuStreamIsCapturing(stream: Stream, status: *mut c_uint);
    cuStreamIsCapturing_ptsz(stream: Stream, status: *mut c_uint);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
}
