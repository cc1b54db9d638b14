//! Memory fill functions (memset) of the fake CUDA driver. None of them waits for the device.

use crate::abi::{DevicePtr, Stream};
use crate::call::driver;
use crate::capture::forbid_in_capture;
use crate::code::{INVALID_VALUE, Outcome};
use crate::driver::driver;
use crate::operation::Operation;

const NULL_STREAM: Stream = Stream(0);

fn fill<const N: usize>(stream: Stream, at: DevicePtr, pattern: [u8; N], count: u64) -> Outcome {
    fill_rows(stream, at, 0, pattern, count, 1)
}

fn fill_rows<const N: usize>(
    stream: Stream,
    at: DevicePtr,
    pitch: u64,
    pattern: [u8; N],
    count: u64,
    rows: u64,
) -> Outcome {
    let unit = N as u64;
    let width = count.checked_mul(unit).ok_or(INVALID_VALUE)?;
    if !at.0.is_multiple_of(unit) || !pitch.is_multiple_of(unit) || rows > 1 && pitch < width {
        return Err(INVALID_VALUE);
    }
    let pattern = pattern.to_vec();
    driver()?.submit(stream, Operation::Fill { at, pitch, pattern, width, rows })
}

driver! {
    fn cuMemsetD8_v2 / cuMemsetD8_v2_ptds = "cuMemsetD8" since 3020 (dstDevice: DevicePtr, uc: u8, N: u64) {
        forbid_in_capture()?;
        fill(NULL_STREAM, dstDevice, uc.to_ne_bytes(), N)
    }

    fn cuMemsetD16_v2 / cuMemsetD16_v2_ptds = "cuMemsetD16" since 3020 (dstDevice: DevicePtr, us: u16, N: u64) {
        forbid_in_capture()?;
        fill(NULL_STREAM, dstDevice, us.to_ne_bytes(), N)
    }

    fn cuMemsetD32_v2 / cuMemsetD32_v2_ptds = "cuMemsetD32" since 3020 (dstDevice: DevicePtr, ui: u32, N: u64) {
        forbid_in_capture()?;
        fill(NULL_STREAM, dstDevice, ui.to_ne_bytes(), N)
    }

    fn cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds = "cuMemsetD2D8" since 3020
        (dstDevice: DevicePtr, dstPitch: u64, uc: u8, Width: u64, Height: u64)
    {
        forbid_in_capture()?;
        fill_rows(NULL_STREAM, dstDevice, dstPitch, uc.to_ne_bytes(), Width, Height)
    }

    fn cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds = "cuMemsetD2D16" since 3020
        (dstDevice: DevicePtr, dstPitch: u64, us: u16, Width: u64, Height: u64)
    {
        forbid_in_capture()?;
        fill_rows(NULL_STREAM, dstDevice, dstPitch, us.to_ne_bytes(), Width, Height)
    }

    fn cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds = "cuMemsetD2D32" since 3020
        (dstDevice: DevicePtr, dstPitch: u64, ui: u32, Width: u64, Height: u64)
    {
        forbid_in_capture()?;
        fill_rows(NULL_STREAM, dstDevice, dstPitch, ui.to_ne_bytes(), Width, Height)
    }

    fn cuMemsetD8Async / cuMemsetD8Async_ptsz = "cuMemsetD8Async" since 3020
        (dstDevice: DevicePtr, uc: u8, N: u64, hStream: Stream)
    {
        fill(hStream, dstDevice, uc.to_ne_bytes(), N)
    }

    fn cuMemsetD16Async / cuMemsetD16Async_ptsz = "cuMemsetD16Async" since 3020
        (dstDevice: DevicePtr, us: u16, N: u64, hStream: Stream)
    {
        fill(hStream, dstDevice, us.to_ne_bytes(), N)
    }

    fn cuMemsetD32Async / cuMemsetD32Async_ptsz = "cuMemsetD32Async" since 3020
        (dstDevice: DevicePtr, ui: u32, N: u64, hStream: Stream)
    {
        fill(hStream, dstDevice, ui.to_ne_bytes(), N)
    }

    fn cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz = "cuMemsetD2D8Async" since 3020
        (dstDevice: DevicePtr, dstPitch: u64, uc: u8, Width: u64, Height: u64, hStream: Stream)
    {
        fill_rows(hStream, dstDevice, dstPitch, uc.to_ne_bytes(), Width, Height)
    }

    fn cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz = "cuMemsetD2D16Async" since 3020
        (dstDevice: DevicePtr, dstPitch: u64, us: u16, Width: u64, Height: u64, hStream: Stream)
    {
        fill_rows(hStream, dstDevice, dstPitch, us.to_ne_bytes(), Width, Height)
    }

    fn cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz = "cuMemsetD2D32Async" since 3020
        (dstDevice: DevicePtr, dstPitch: u64, ui: u32, Width: u64, Height: u64, hStream: Stream)
    {
        fill_rows(hStream, dstDevice, dstPitch, ui.to_ne_bytes(), Width, Height)
    }
}
