//! NVML functions for a card's temperature, clocks and power.

use std::ffi::{c_uint, c_ulonglong};

use crate::abi::{Device, ERROR_NOT_SUPPORTED, Return, Utilization};
use crate::answer;
use crate::cards::Sensors;

/// Writes one of the sensors to `out`.
///
/// # Safety
/// `out` is null or valid for a write of `T`.
unsafe fn sense<T>(device: Device, out: *mut T, sensor: impl FnOnce(&Sensors) -> Option<T>) -> Return {
    // SAFETY: by this function's contract.
    unsafe { answer(device, out, |card| sensor(&card.sensors).ok_or(ERROR_NOT_SUPPORTED)) }
}

/// # Safety
/// `celsius` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: Device,
    _sensor: c_uint,
    celsius: *mut c_uint,
) -> Return {
    // SAFETY: by this function's contract.
    unsafe { sense(device, celsius, |sensors| sensors.celsius) }
}

/// # Safety
/// `megahertz` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(
    device: Device,
    _clock: c_uint,
    megahertz: *mut c_uint,
) -> Return {
    // SAFETY: by this function's contract.
    unsafe { sense(device, megahertz, |sensors| sensors.megahertz) }
}

/// # Safety
/// `megahertz` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(
    device: Device,
    _clock: c_uint,
    megahertz: *mut c_uint,
) -> Return {
    // SAFETY: by this function's contract.
    unsafe { sense(device, megahertz, |sensors| sensors.most_megahertz) }
}

/// # Safety
/// `milliwatts` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: Device, milliwatts: *mut c_uint) -> Return {
    // SAFETY: by this function's contract.
    unsafe { sense(device, milliwatts, |sensors| sensors.milliwatts) }
}

/// # Safety
/// `rates` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: Device, rates: *mut Utilization) -> Return {
    // SAFETY: by this function's contract.
    unsafe { sense(device, rates, |sensors| sensors.busy.map(Utilization::new)) }
}

/// # Safety
/// `reasons` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: Device,
    reasons: *mut c_ulonglong,
) -> Return {
    // SAFETY: by this function's contract.
    unsafe { sense(device, reasons, |sensors| sensors.slowed) }
}
