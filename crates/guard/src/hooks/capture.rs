//! Replaces the functions of streams and stream capture, to know which memory CUDA graphs use.
//!
//! Guard's memory pools are notified before a capture begins and after it ends.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::null_mut;

use crate::driver::{CuResult, CuStream, SUCCESS};
use crate::hooks::hooks;
use crate::trace::{TraceEvent, TraceKind};
use crate::{ggml, graphs, spill};

/// `CUgraph`.
pub(crate) type CuGraph = *mut c_void;

/// CUDA_ERROR_STREAM_CAPTURE_UNMATCHED and CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: another call has to end
/// the capture.
const STILL_CAPTURING: [CuResult; 2] = [903, 908];

hooks! {
    in CUDA;

    fn cuStreamCreate | hipStreamCreateWithFlags = "cuStreamCreate" since 2000 (stream: *mut CuStream, flags: c_uint) calls real {
        created(stream, real(stream, flags))
    }

    fn cuStreamCreateWithPriority | hipStreamCreateWithPriority = "cuStreamCreateWithPriority" since 5050 (
        stream: *mut CuStream, flags: c_uint, priority: c_int
    ) calls real {
        created(stream, real(stream, flags, priority))
    }

    fn cuStreamDestroy_v2 | hipStreamDestroy = "cuStreamDestroy" since 4000 (stream: CuStream) calls real {
        // The handle is forgotten before the driver may give it to another stream.
        if ggml::wanted() {
            ggml::stream_gone(stream);
        }
        graphs::end(stream.addr(), None);
        real(stream)
    }

    fn cuStreamBeginCapture / cuStreamBeginCapture_ptsz = "cuStreamBeginCapture" since 10000 (
        stream: CuStream
    ) calls real {
        begin(stream, || real(stream))
    }

    fn cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz | hipStreamBeginCapture | hipStreamBeginCapture_spt = "cuStreamBeginCapture" since 10010 (
        stream: CuStream, mode: c_uint
    ) calls real {
        begin(stream, || real(stream, mode))
    }

    fn cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz | hipStreamBeginCaptureToGraph = "cuStreamBeginCaptureToGraph" since 12030 (
        stream: CuStream, graph: CuGraph, dependencies: *const c_void, data: *const c_void, count: usize, mode: c_uint
    ) calls real {
        begin(stream, || real(stream, graph, dependencies, data, count, mode))
    }

    fn cuStreamEndCapture / cuStreamEndCapture_ptsz | hipStreamEndCapture | hipStreamEndCapture_spt = "cuStreamEndCapture" since 10000 (
        stream: CuStream, graph: *mut CuGraph
    ) calls real {
        let result = real(stream, graph);
        let created = if result == SUCCESS && !graph.is_null() { *graph } else { null_mut() };
        if !STILL_CAPTURING.contains(&result) {
            end(stream, created);
        }
        result
    }
}

/// # Safety
/// After success `stream` can be read.
pub(crate) unsafe fn created(stream: *mut CuStream, result: CuResult) -> CuResult {
    if result == SUCCESS && !stream.is_null() && ggml::wanted() {
        // SAFETY: the driver has written it.
        ggml::stream_created(unsafe { *stream });
    }
    result
}

fn begin(stream: CuStream, real: impl FnOnce() -> CuResult) -> CuResult {
    // Before the driver: another thread must not free or wait between the real begin and our note of it.
    let graph = graphs::begin(stream.addr());
    let result = real();
    if result == SUCCESS {
        notify(TraceKind::CaptureBegin, stream, graph.0);
    } else {
        graphs::end(stream.addr(), None);
    }
    result
}

fn end(stream: CuStream, created: CuGraph) {
    let source = (!created.is_null()).then(|| created.addr());
    let graph = graphs::end(stream.addr(), source);
    spill::sweep();
    notify(TraceKind::CaptureEnd, stream, graph.map_or(0, |graph| graph.0));
}

pub(crate) fn notify(kind: TraceKind, stream: CuStream, id: u64) {
    let stream = stream.addr();
    let event = TraceEvent::default().of(id, 0);
    TraceEvent { stream, ..event }.emit(kind);
}
