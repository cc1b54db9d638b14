//! Hooks of memsets, which are split where a spilled range changes from device memory to host memory.
//!
//! A spilled range is device memory followed by host memory.

use super::copy::{code, result};
use crate::driver::{CuResult, CuStream, DevicePointer};
use crate::hooks::hooks;
use crate::policy::copy_split::{CopyBox, CopySide, split};
use crate::spill::copy_border;

/// Fills `count` elements of `element` bytes; `fill` does as many from an address on.
fn line(
    at: DevicePointer,
    element: u64,
    count: u64,
    fill: impl Fn(DevicePointer, u64) -> CuResult,
) -> CuResult {
    if !copy_border::matter() {
        return fill(at, count);
    }
    let side = CopySide::line(at, copy_border::of(at));
    let block = CopyBox::line(count.saturating_mul(element));
    code(split(block, &[side], &mut |piece| result(fill(side.address(piece.at), piece.size[0] / element))))
}

/// Fills rows of `width` elements of `element` bytes; `fill` does some of some rows, from an address on.
fn plane(
    at: DevicePointer,
    pitch: u64,
    element: u64,
    (width, height): (u64, u64),
    fill: impl Fn(DevicePointer, u64, u64) -> CuResult,
) -> CuResult {
    if !copy_border::matter() {
        return fill(at, width, height);
    }
    let side = CopySide { pitch, ..CopySide::line(at, copy_border::of(at)) };
    let block = CopyBox::solid([width.saturating_mul(element), height, 1]);
    code(split(block, &[side], &mut |piece| {
        let [width, height, _] = piece.size;
        result(fill(side.address(piece.at), width / element, height))
    }))
}

hooks! {
    in CUDA;

    fn cuMemsetD8_v2 / cuMemsetD8_v2_ptds = "cuMemsetD8" since 3020
        (to: DevicePointer, value: u8, count: u64) calls fill
    {
        line(to, 1, count, |to, count| fill(to, value, count))
    }

    fn cuMemsetD16_v2 / cuMemsetD16_v2_ptds = "cuMemsetD16" since 3020
        (to: DevicePointer, value: u16, count: u64) calls fill
    {
        line(to, 2, count, |to, count| fill(to, value, count))
    }

    fn cuMemsetD32_v2 / cuMemsetD32_v2_ptds = "cuMemsetD32" since 3020
        (to: DevicePointer, value: u32, count: u64) calls fill
    {
        line(to, 4, count, |to, count| fill(to, value, count))
    }

    fn cuMemsetD8Async / cuMemsetD8Async_ptsz = "cuMemsetD8Async" since 3020
        (to: DevicePointer, value: u8, count: u64, stream: CuStream) calls fill
    {
        line(to, 1, count, |to, count| fill(to, value, count, stream))
    }

    fn cuMemsetD16Async / cuMemsetD16Async_ptsz = "cuMemsetD16Async" since 3020
        (to: DevicePointer, value: u16, count: u64, stream: CuStream) calls fill
    {
        line(to, 2, count, |to, count| fill(to, value, count, stream))
    }

    fn cuMemsetD32Async / cuMemsetD32Async_ptsz = "cuMemsetD32Async" since 3020
        (to: DevicePointer, value: u32, count: u64, stream: CuStream) calls fill
    {
        line(to, 4, count, |to, count| fill(to, value, count, stream))
    }

    fn cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds = "cuMemsetD2D8" since 3020
        (to: DevicePointer, pitch: u64, value: u8, width: u64, height: u64) calls fill
    {
        plane(to, pitch, 1, (width, height), |to, width, height| fill(to, pitch, value, width, height))
    }

    fn cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds = "cuMemsetD2D16" since 3020
        (to: DevicePointer, pitch: u64, value: u16, width: u64, height: u64) calls fill
    {
        plane(to, pitch, 2, (width, height), |to, width, height| fill(to, pitch, value, width, height))
    }

    fn cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds = "cuMemsetD2D32" since 3020
        (to: DevicePointer, pitch: u64, value: u32, width: u64, height: u64) calls fill
    {
        plane(to, pitch, 4, (width, height), |to, width, height| fill(to, pitch, value, width, height))
    }

    fn cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz = "cuMemsetD2D8Async" since 3020
        (to: DevicePointer, pitch: u64, value: u8, width: u64, height: u64, stream: CuStream) calls fill
    {
        plane(to, pitch, 1, (width, height), |to, width, height| fill(to, pitch, value, width, height, stream))
    }

    fn cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz = "cuMemsetD2D16Async" since 3020
        (to: DevicePointer, pitch: u64, value: u16, width: u64, height: u64, stream: CuStream) calls fill
    {
        plane(to, pitch, 2, (width, height), |to, width, height| fill(to, pitch, value, width, height, stream))
    }

    fn cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz = "cuMemsetD2D32Async" since 3020
        (to: DevicePointer, pitch: u64, value: u32, width: u64, height: u64, stream: CuStream) calls fill
    {
        plane(to, pitch, 4, (width, height), |to, width, height| fill(to, pitch, value, width, height, stream))
    }
}
