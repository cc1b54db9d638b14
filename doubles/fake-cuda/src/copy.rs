//! Implements the memory copy functions (memcpy) of the fake CUDA driver.
//!
//! As in the real driver, copies between host and device wait unless they are `Async`; copies within the
//! device do not wait.

mod shape;

use crate::abi::structs::{Copy2D, Copy3D};
use crate::abi::{Array, Context, DevicePtr, Host, In, Stream};
use crate::call::driver;
use crate::capture::forbid_in_capture;
use crate::code::{Code, Outcome};
use crate::driver::{Driver, driver};
use crate::operation::{Line, Memory, Operation};
use crate::work::{Scope, synchronise};

const NULL_STREAM: Stream = Stream(0);

fn line(to: Memory, from: Memory, length: u64) -> Operation {
    Operation::Copy(Vec::from([Line { to, from, length }]))
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
    enqueue(stream, |_| Ok(line(Memory::Device(to), Memory::Device(from), length)))
}

fn unified(driver: &Driver, to: DevicePtr, from: DevicePtr, length: u64) -> Operation {
    line(driver.memory_at(to.0), driver.memory_at(from.0), length)
}

fn rectangle(driver: &Driver, copy: In<Copy2D>) -> Result<Operation, Code> {
    driver.solid(&copy.get()?.into())
}

fn solid(driver: &Driver, copy: In<Copy3D>) -> Result<Operation, Code> {
    driver.solid(&copy.get()?)
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

    fn cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds = "cuMemcpy3D" since 3020 (pCopy: In<Copy3D>) {
        complete(|driver| solid(driver, pCopy))
    }

    fn cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz = "cuMemcpy3DAsync" since 3020
        (pCopy: In<Copy3D>, hStream: Stream)
    {
        enqueue(hStream, |driver| solid(driver, pCopy))
    }

    fn cuMemcpy3DPeer / cuMemcpy3DPeer_ptds = "cuMemcpy3DPeer" since 4000 (pCopy: In<Copy3D>) {
        complete(|driver| solid(driver, pCopy))
    }

    fn cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz = "cuMemcpy3DPeerAsync" since 4000
        (pCopy: In<Copy3D>, hStream: Stream)
    {
        enqueue(hStream, |driver| solid(driver, pCopy))
    }

    fn cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds = "cuMemcpyDtoA" since 3020
        (dstArray: Array, dstOffset: u64, srcDevice: DevicePtr, ByteCount: u64)
    {
        complete(|driver| Ok(line(driver.array_bytes(dstArray, dstOffset)?, Memory::Device(srcDevice), ByteCount)))
    }

    fn cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds = "cuMemcpyAtoD" since 3020
        (dstDevice: DevicePtr, srcArray: Array, srcOffset: u64, ByteCount: u64)
    {
        complete(|driver| Ok(line(Memory::Device(dstDevice), driver.array_bytes(srcArray, srcOffset)?, ByteCount)))
    }
}
