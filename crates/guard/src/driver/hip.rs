//! Reads and sets the calling thread's state in HIP's runtime: its device, and the error of its last failed
//! call.
//!
//! A device has one context, which a thread uses after `hipSetDevice`. Its number here is the device's plus
//! 1.

use core::ffi::c_int;

use super::{DeviceOrdinal, SUCCESS};

mod real {
    use super::*;

    crate::driver::real! {
        in HIP;
        hipGetDeviceCount(count: *mut c_int);
        hipGetDevice(device: *mut DeviceOrdinal);
        hipSetDevice(device: DeviceOrdinal);
        hipPeekAtLastError();
        hipGetLastError();
    }
}

/// True if the runtime sees a card.
pub(crate) fn has_cards() -> bool {
    let _error = LastError::keep();
    let mut count = 0;
    // SAFETY: the place is ours.
    unsafe { real::hipGetDeviceCount(&raw mut count) == SUCCESS && count > 0 }
}

/// The number of a device's context.
pub(crate) fn context_of(device: DeviceOrdinal) -> usize {
    usize::try_from(device).map_or(0, |device| device + 1)
}

/// The calling thread's device.
pub(crate) fn device() -> DeviceOrdinal {
    let mut device = 0;
    // SAFETY: the place is ours.
    unsafe { real::hipGetDevice(&raw mut device) };
    device
}

/// Runs `act` with the device of this context.
pub(crate) fn in_context<T>(context: usize, act: impl FnOnce() -> T) -> T {
    let wanted = context.checked_sub(1).and_then(|device| DeviceOrdinal::try_from(device).ok());
    let own = device();
    // SAFETY: a device that the runtime once reported; it refuses any other.
    let changed =
        wanted.is_some_and(|wanted| wanted != own && unsafe { real::hipSetDevice(wanted) } == SUCCESS);
    let result = act();
    if changed {
        // SAFETY: the thread's own device.
        unsafe { real::hipSetDevice(own) };
    }
    result
}

/// Forgets the error of the last failed call.
pub(crate) fn forget_error() {
    // SAFETY: takes nothing.
    unsafe { real::hipGetLastError() };
}

// A program reads the last error after each launch of a kernel, and ends if there is one (ggml's
// `CUDA_CHECK(cudaGetLastError())`). So a call of guard's that fails must leave none behind.
/// Keeps the thread free of errors of guard's own calls until it is dropped.
#[derive(Debug)]
pub(crate) struct LastError {
    was_clean: bool,
}

impl LastError {
    pub(crate) fn keep() -> Self {
        // SAFETY: takes nothing.
        Self { was_clean: unsafe { real::hipPeekAtLastError() } == SUCCESS }
    }
}

impl Drop for LastError {
    fn drop(&mut self) {
        if self.was_clean {
            forget_error();
        }
    }
}
