//! Replaces the memory functions of CUDA's runtime library (`cudart64_*.dll`).
//!
//! A runtime that has found the driver's functions before guard was loaded is met only here.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::transmute;
use std::sync::atomic::Ordering::Acquire;

use super::driver::{linear, lower, show_budget};
use super::{graphs, hooks};
use crate::cards::{self, CardIndex};
use crate::driver::{CuResult, DevicePointer, Handle, SUCCESS, bytes};
use crate::{blocks, captures};

/// Offset of `totalGlobalMem` in `cudaDeviceProp` (driver_types.h @ 11.8, 12.9, 13.0).
const TOTAL: usize = 288;

hooks! {
    fn cudaMalloc = "" (pointer: *mut DevicePointer, size: usize) calls real {
        linear(card(), pointer, bytes(size), &mut || real(pointer, size))
    }

    fn cudaFree = "" (pointer: DevicePointer) calls real {
        blocks::free(pointer, || real(pointer))
    }

    fn cudaMallocAsync = "" (pointer: *mut DevicePointer, size: usize, stream: Handle) calls real {
        linear(card(), pointer, bytes(size), &mut || real(pointer, size, stream))
    }

    fn cudaFreeAsync = "" (pointer: DevicePointer, stream: Handle) calls real {
        blocks::free(pointer, || real(pointer, stream))
    }

    fn cudaMemGetInfo = "" (free: *mut usize, total: *mut usize) calls real {
        let code = real(free, total);
        if code == SUCCESS {
            show_budget(free, total);
        }
        code
    }

    fn cudaGetDeviceProperties = "" (properties: *mut c_void, device: c_int) calls real {
        described(properties, device, real(properties, device))
    }

    fn cudaGetDeviceProperties_v2 = "" (properties: *mut c_void, device: c_int) calls real {
        described(properties, device, real(properties, device))
    }

    fn cudaStreamCreateWithFlags = "" (stream: *mut Handle, flags: c_uint) calls real {
        graphs::stream_created(stream, real(stream, flags))
    }

    fn cudaStreamCreateWithPriority = "" (stream: *mut Handle, flags: c_uint, priority: c_int) calls real {
        graphs::stream_created(stream, real(stream, flags, priority))
    }

    fn cudaStreamDestroy = "" (stream: Handle) calls real {
        graphs::destroy_stream(stream, || real(stream))
    }

    fn cudaStreamBeginCapture = "" (stream: Handle, mode: c_uint) calls real {
        graphs::begin(stream, || real(stream, mode))
    }

    fn cudaStreamEndCapture = "" (stream: Handle, graph: *mut Handle) calls real {
        graphs::end(stream, graph, real(stream, graph))
    }

    fn cudaGraphInstantiate = "" (exec: *mut Handle, graph: Handle, flags: u64) calls real {
        graphs::instantiated(graph, exec, real(exec, graph, flags))
    }

    fn cudaGraphExecUpdate = "" (exec: Handle, graph: Handle, outcome: *mut c_void) calls real {
        graphs::updated(exec, graph, real(exec, graph, outcome))
    }

    fn cudaGraphDestroy = "" (graph: Handle) calls real {
        captures::destroyed(graph);
        real(graph)
    }

    fn cudaGraphExecDestroy = "" (exec: Handle) calls real {
        captures::destroyed(exec);
        real(exec)
    }
}

/// The card of the calling thread, whose context the runtime may still have to create.
fn card() -> Option<CardIndex> {
    cards::current().or_else(|| {
        let free = cudaFree::ORIGINAL.load(Acquire);
        if free != 0 {
            // A free of nothing creates the context.
            // SAFETY: the runtime's function, which takes an address.
            unsafe { transmute::<usize, unsafe extern "C" fn(DevicePointer) -> CuResult>(free)(0) };
        }
        cards::current()
    })
}

/// # Safety
/// After success the properties can be written to.
unsafe fn described(properties: *mut c_void, device: c_int, code: CuResult) -> CuResult {
    if code == SUCCESS
        && let Some(card) = cards::of(device)
    {
        // SAFETY: the member is aligned, and the runtime has written it.
        unsafe { lower(properties.byte_add(TOTAL).cast(), card.budget()) };
    }
    code
}
