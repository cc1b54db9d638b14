//! Hooks of pinned host memory, which count it and never refuse it.

use core::ffi::{c_uint, c_void};

use crate::account::pinned::{pinned, unpin};
use crate::driver::{CuResult, SUCCESS};
use crate::hooks::hooks;
use crate::hooks::memory::bytes;

/// An address of the host's.
type HostAddress = *mut c_void;

hooks! {
    in CUDA;

    fn cuMemHostAlloc | hipHostMalloc | hipHostAlloc = "cuMemHostAlloc" since 2020 (place: *mut HostAddress, size: usize, flags: c_uint) calls real {
        given(place, bytes(size), real(place, size, flags))
    }

    fn cuMemAllocHost_v2 | hipMallocHost | hipMemAllocHost = "cuMemAllocHost" since 3020 (place: *mut HostAddress, size: usize) calls real {
        given(place, bytes(size), real(place, size))
    }

    fn cuMemFreeHost | hipHostFree | hipFreeHost = "cuMemFreeHost" since 2000 (address: HostAddress) calls real {
        unpin(bytes(address.addr()), || real(address))
    }

    fn cuMemHostRegister_v2 | hipHostRegister = "cuMemHostRegister" since 6050 (address: HostAddress, size: usize, flags: c_uint) calls real {
        let result = real(address, size, flags);
        if result == SUCCESS {
            pinned(bytes(address.addr()), bytes(size));
        }
        result
    }

    fn cuMemHostUnregister | hipHostUnregister = "cuMemHostUnregister" since 4000 (address: HostAddress) calls real {
        unpin(bytes(address.addr()), || real(address))
    }
}

/// # Safety
/// After success `place` can be read.
unsafe fn given(place: *mut HostAddress, size: u64, result: CuResult) -> CuResult {
    if result == SUCCESS && !place.is_null() {
        // SAFETY: the driver has written it.
        pinned(bytes(unsafe { *place }.addr()), size);
    }
    result
}
