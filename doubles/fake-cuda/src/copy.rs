//! The memcpy family. Copies between the host and the device wait when they are not `Async`; copies on the device do
//! not, as in the driver.

use crate::abi::structs::{Copy2D, Copy2DSide};
use crate::abi::{Context, DevicePtr, Host, In, Stream};
use crate::call::driver;
use crate::capture::forbid_in_capture;
use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::driver::{Driver, driver};
use crate::operation::{Memory, Operation, Side};
use crate::work::{Scope, synchronise};

const NULL_STREAM: Stream = Stream(0);

/// `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const UNIFIED: u32 = 4;

fn line(to: Memory, from: Memory, length: u64) -> Operation {
    let side = |memory| Side {
        memory,
        pitch: length,
    };
    Operation::Copy {
        to: side(to),
        from: side(from),
        width: length,
        rows: 1,
    }
}

/// A host pointer may be one that the driver knows: managed or page-locked memory.
fn host(driver: &Driver, host: Host) -> Memory {
    driver.memory_at(host.address())
}

/// Enqueues a copy that the caller does not wait for.
fn enqueue(stream: Stream, copy: impl FnOnce(&Driver) -> Result<Operation, Code>) -> Outcome {
    let mut driver = driver()?;
    let operation = copy(&driver)?;
    driver.submit(stream, operation)
}

/// Copies and waits.
fn complete(copy: impl FnOnce(&Driver) -> Result<Operation, Code>) -> Outcome {
    forbid_in_capture()?;
    let stream = {
        let mut driver = driver()?;
        let operation = copy(&driver)?;
        driver.submit(NULL_STREAM, operation)?;
        driver.stream(NULL_STREAM)?
    };
    synchronise(Scope::Stream(stream))
}

fn device_to_device(stream: Stream, to: DevicePtr, from: DevicePtr, length: u64) -> Outcome {
    enqueue(stream, |_| {
        Ok(line(Memory::Device(to), Memory::Device(from), length))
    })
}

fn unified(driver: &Driver, to: DevicePtr, from: DevicePtr, length: u64) -> Operation {
    line(driver.memory_at(to.0), driver.memory_at(from.0), length)
}

fn side(driver: &Driver, side: &Copy2DSide) -> Result<Side, Code> {
    let base = match side.memory {
        HOST => side.host.address(),
        DEVICE | UNIFIED => side.device.0,
        _ => return Err(NOT_SUPPORTED),
    };
    let offset = side
        .y
        .checked_mul(side.pitch)
        .and_then(|rows| rows.checked_add(side.x));
    let start = base
        .checked_add(offset.ok_or(INVALID_VALUE)? as u64)
        .ok_or(INVALID_VALUE)?;
    let memory = match side.memory {
        DEVICE => Memory::Device(DevicePtr(start)),
        _ => driver.memory_at(start),
    };
    Ok(Side {
        memory,
        pitch: side.pitch as u64,
    })
}

fn rectangle(driver: &Driver, copy: In<Copy2D>) -> Result<Operation, Code> {
    let copy = copy.get()?;
    let pitched = |side: &Copy2DSide| copy.height <= 1 || side.pitch >= copy.width;
    if !pitched(&copy.from) || !pitched(&copy.to) {
        return Err(INVALID_VALUE);
    }
    Ok(Operation::Copy {
        to: side(driver, &copy.to)?,
        from: side(driver, &copy.from)?,
        width: copy.width as u64,
        rows: copy.height as u64,
    })
}

driver! {
    fn cuMemcpy / cuMemcpy_ptds = "cuMemcpy" since 4000 (dst: DevicePtr, src: DevicePtr, ByteCount: u64) {
        complete(|driver| Ok(unified(driver, dst, src, ByteCount)))
    }

    fn cuMemcpyAsync / cuMemcpyAsync_ptsz = "cuMemcpyAsync" since 4000
        (dst: DevicePtr, src: DevicePtr, ByteCount: u64, hStream: Stream)
    {
        enqueue(hStream, |driver| Ok(unified(driver, dst, src, ByteCount)))
    }

    fn cuMemcpyPeer / cuMemcpyPeer_ptds = "cuMemcpyPeer" since 4000
        (dstDevice: DevicePtr, dstContext: Context, srcDevice: DevicePtr, srcContext: Context, ByteCount: u64)
    {
        let _ = (dstContext, srcContext);
        forbid_in_capture()?;
        device_to_device(NULL_STREAM, dstDevice, srcDevice, ByteCount)
    }

    fn cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz = "cuMemcpyPeerAsync" since 4000
        (dstDevice: DevicePtr, dstContext: Context, srcDevice: DevicePtr, srcContext: Context, ByteCount: u64,
         hStream: Stream)
    {
        let _ = (dstContext, srcContext);
        device_to_device(hStream, dstDevice, srcDevice, ByteCount)
    }

    fn cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds = "cuMemcpyHtoD" since 3020
        (dstDevice: DevicePtr, srcHost: Host, ByteCount: u64)
    {
        complete(|driver| Ok(line(Memory::Device(dstDevice), host(driver, srcHost), ByteCount)))
    }

    fn cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz = "cuMemcpyHtoDAsync" since 3020
        (dstDevice: DevicePtr, srcHost: Host, ByteCount: u64, hStream: Stream)
    {
        enqueue(hStream, |driver| Ok(line(Memory::Device(dstDevice), host(driver, srcHost), ByteCount)))
    }

    fn cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds = "cuMemcpyDtoH" since 3020
        (dstHost: Host, srcDevice: DevicePtr, ByteCount: u64)
    {
        complete(|driver| Ok(line(host(driver, dstHost), Memory::Device(srcDevice), ByteCount)))
    }

    fn cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz = "cuMemcpyDtoHAsync" since 3020
        (dstHost: Host, srcDevice: DevicePtr, ByteCount: u64, hStream: Stream)
    {
        enqueue(hStream, |driver| Ok(line(host(driver, dstHost), Memory::Device(srcDevice), ByteCount)))
    }

    fn cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds = "cuMemcpyDtoD" since 3020
        (dstDevice: DevicePtr, srcDevice: DevicePtr, ByteCount: u64)
    {
        forbid_in_capture()?;
        device_to_device(NULL_STREAM, dstDevice, srcDevice, ByteCount)
    }

    fn cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz = "cuMemcpyDtoDAsync" since 3020
        (dstDevice: DevicePtr, srcDevice: DevicePtr, ByteCount: u64, hStream: Stream)
    {
        device_to_device(hStream, dstDevice, srcDevice, ByteCount)
    }

    fn cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds = "cuMemcpy2D" since 3020 (pCopy: In<Copy2D>) {
        complete(|driver| rectangle(driver, pCopy))
    }

    fn cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds = "cuMemcpy2DUnaligned" since 3020
        (pCopy: In<Copy2D>)
    {
        complete(|driver| rectangle(driver, pCopy))
    }

    fn cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz = "cuMemcpy2DAsync" since 3020
        (pCopy: In<Copy2D>, hStream: Stream)
    {
        enqueue(hStream, |driver| rectangle(driver, pCopy))
    }
}
