//! Hooks of memory sharing between processes (CUDA IPC), which is refused for memory that is partly in host
//! memory.
//!
//! The driver has no IPC handle for such memory (device memory followed by host memory). Programs then fall
//! back to copies.

use core::ffi::{c_int, c_void};

use crate::account::physical;
use crate::driver::{AllocationHandle, CuResult, DevicePointer, NOT_SUPPORTED};
use crate::hooks::hooks;
use crate::say::say_some;
use crate::state::ranges;

fn refuse(pointer: DevicePointer) -> Option<CuResult> {
    ranges::find(pointer, |range| range.device).map(|device| {
        say_some!("card {device}: memory that was spilled to the host cannot be shared with another process");
        NOT_SUPPORTED
    })
}

hooks! {
    in CUDA;

    fn cuMemExportToShareableHandle | hipMemExportToShareableHandle = "cuMemExportToShareableHandle" since 10020
        (shared: *mut c_void, handle: AllocationHandle, kind: c_int, flags: u64) calls real
    {
        if physical::is_spilled(handle) {
            say_some!("memory that was spilled to the host cannot be shared with another process");
            return NOT_SUPPORTED;
        }
        real(shared, handle, kind, flags)
    }

    fn cuIpcGetMemHandle | hipIpcGetMemHandle = "cuIpcGetMemHandle" since 4010
        (handle: *mut [u8; 64], pointer: DevicePointer) calls real
    {
        refuse(pointer).unwrap_or_else(|| real(handle, pointer))
    }

    fn cuMemGetHandleForAddressRange = "cuMemGetHandleForAddressRange" since 11070
        (handle: *mut c_void, pointer: DevicePointer, size: u64, kind: c_int, flags: u64) calls real
    {
        refuse(pointer).unwrap_or_else(|| real(handle, pointer, size, kind, flags))
    }
}
