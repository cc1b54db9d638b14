//! Replaces the driver's functions of streams, captures and graphs, which tell guard's pools what memory a
//! graph uses.

use std::ffi::{c_int, c_uint, c_void};

use super::hooks;
use crate::driver::{CuResult, Handle, SUCCESS};
use crate::{captures, fence};

/// CUDA_ERROR_STREAM_CAPTURE_UNMATCHED and _WRONG_THREAD: another call has to end the capture.
const STILL_CAPTURING: [CuResult; 2] = [903, 908];

hooks! {
    fn cuStreamCreate = "cuStreamCreate" (stream: *mut Handle, flags: c_uint) calls real {
        stream_created(stream, real(stream, flags))
    }

    fn cuStreamCreateWithPriority = "cuStreamCreateWithPriority"
        (stream: *mut Handle, flags: c_uint, priority: c_int) calls real
    {
        stream_created(stream, real(stream, flags, priority))
    }

    fn cuStreamDestroy_v2 = "cuStreamDestroy" (stream: Handle) calls real {
        destroy_stream(stream, || real(stream))
    }

    fn cuStreamBeginCapture_v2 = "cuStreamBeginCapture" (stream: Handle, mode: c_uint) calls real {
        begin(stream, || real(stream, mode))
    }

    fn cuStreamEndCapture = "cuStreamEndCapture" (stream: Handle, graph: *mut Handle) calls real {
        end(stream, graph, real(stream, graph))
    }

    fn cuGraphInstantiateWithFlags = "cuGraphInstantiate" (exec: *mut Handle, graph: Handle, flags: u64) calls real {
        instantiated(graph, exec, real(exec, graph, flags))
    }

    fn cuGraphExecUpdate_v2 = "cuGraphExecUpdate" (exec: Handle, graph: Handle, outcome: *mut c_void) calls real {
        updated(exec, graph, real(exec, graph, outcome))
    }

    fn cuGraphDestroy = "cuGraphDestroy" (graph: Handle) calls real {
        captures::destroyed(graph);
        real(graph)
    }

    fn cuGraphExecDestroy = "cuGraphExecDestroy" (exec: Handle) calls real {
        captures::destroyed(exec);
        real(exec)
    }
}

/// # Safety
/// After success `stream` can be read.
pub(super) unsafe fn stream_created(stream: *mut Handle, code: CuResult) -> CuResult {
    if code == SUCCESS && !stream.is_null() {
        // SAFETY: the driver has written it.
        fence::stream_created(unsafe { *stream });
    }
    code
}

pub(super) fn destroy_stream(stream: Handle, real: impl FnOnce() -> CuResult) -> CuResult {
    // Before the driver may give the handle to another stream.
    fence::stream_gone(stream);
    captures::end(stream, None);
    real()
}

pub(super) fn begin(stream: Handle, real: impl FnOnce() -> CuResult) -> CuResult {
    // Before the driver: no pool may free or wait between the begin and our note of it.
    captures::begin(stream);
    let code = real();
    if code != SUCCESS {
        captures::end(stream, None);
    }
    code
}

/// # Safety
/// After success `graph` can be read.
pub(super) unsafe fn end(stream: Handle, graph: *mut Handle, code: CuResult) -> CuResult {
    let is_made = code == SUCCESS && !graph.is_null();
    // SAFETY: the driver has written it.
    let made = is_made.then(|| unsafe { *graph }).filter(|graph| !graph.is_null());
    if !STILL_CAPTURING.contains(&code) {
        captures::end(stream, made);
    }
    code
}

/// # Safety
/// After success `exec` can be read.
pub(super) unsafe fn instantiated(graph: Handle, exec: *mut Handle, code: CuResult) -> CuResult {
    if code == SUCCESS && !exec.is_null() {
        // SAFETY: the driver has written it.
        captures::spread(graph, unsafe { *exec });
    }
    code
}

pub(super) fn updated(exec: Handle, graph: Handle, code: CuResult) -> CuResult {
    if code == SUCCESS {
        captures::replace(graph, exec);
    }
    code
}
