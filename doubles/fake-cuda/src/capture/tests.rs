//! Tests of stream capture in the fake driver.

use super::*;
use crate::abi::{DevicePtr, GraphExec, Host};
use crate::alone::{alone, broken, code, get, ok, start};
use crate::code::{ILLEGAL_ADDRESS, SUCCESS};
use crate::context::cuCtxSynchronize;
use crate::copy::cuMemcpyDtoH_v2;
use crate::events::{cuEventCreate, cuEventQuery, cuEventRecord};
use crate::fill::{cuMemsetD8_v2, cuMemsetD8Async};
use crate::graphs::{cuGraphDestroy, cuGraphExecDestroy, cuGraphInstantiateWithFlags, cuGraphLaunch};
use crate::linear::{cuMemAlloc_v2, cuMemFree_v2};
use crate::pools::{cuMemAllocAsync, cuMemFreeAsync};
use crate::streams::{cuStreamCreate, cuStreamQuery, cuStreamSynchronize, cuStreamWaitEvent};

const MIB: u64 = 1 << 20;

fn stream() -> Stream {
    get(|stream| cuStreamCreate(stream, 1))
}

fn memory() -> DevicePtr {
    get(|at| cuMemAlloc_v2(at, 4 * MIB))
}

fn byte(at: DevicePtr) -> u8 {
    let mut byte = [0];
    ok(cuMemcpyDtoH_v2(Host::into(&mut byte), at, 1));
    byte[0]
}

/// A graph that fills the memory with ones.
fn graph(stream: Stream, at: DevicePtr) -> GraphExec {
    ok(cuStreamBeginCapture_v2(stream, RELAXED));
    ok(cuMemsetD8Async(at, 1, 4 * MIB, stream));
    let graph = get(|graph| cuStreamEndCapture(stream, graph));
    let exec = get(|exec| cuGraphInstantiateWithFlags(exec, graph, 0));
    ok(cuGraphDestroy(graph));
    exec
}

#[test]
fn captured_work_is_done_at_the_launch_only() {
    alone("", || {
        start();
        let (stream, at) = (stream(), memory());
        let exec = graph(stream, at);
        assert_eq!(byte(at), 0);
        ok(cuGraphLaunch(exec, stream));
        assert_eq!(byte(at), 1);
    });
}

#[test]
fn unsafe_calls_spoil_a_global_capture_from_any_thread() {
    alone("", || {
        let context = start();
        let stream = stream();
        let unsafe_call = move || {
            ok(crate::context::cuCtxSetCurrent(context));
            code(|at| cuMemAlloc_v2(at, MIB))
        };
        ok(cuStreamBeginCapture_v2(stream, GLOBAL));
        let elsewhere = std::thread::spawn(unsafe_call).join().unwrap();
        assert_eq!(elsewhere, STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(get(|status| cuStreamIsCapturing(stream, status)), INVALIDATED);
        assert_eq!(code(|graph| cuStreamEndCapture(stream, graph)), STREAM_CAPTURE_INVALIDATED);
        ok(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
        assert_eq!(std::thread::spawn(unsafe_call).join().unwrap(), SUCCESS);
        assert_eq!(get(|status| cuStreamIsCapturing(stream, status)), ACTIVE);
        assert_eq!(unsafe_call(), STREAM_CAPTURE_UNSUPPORTED);
    });
}

#[test]
fn a_relaxed_thread_or_capture_permits_allocations_but_no_waits() {
    alone("", || {
        start();
        let stream = stream();
        let mode = |wanted: i32| {
            let mut mode = std::mem::MaybeUninit::new(wanted);
            ok(cuThreadExchangeStreamCaptureMode(Out::to(&mut mode)));
            // SAFETY: it was initialised before the call.
            unsafe { mode.assume_init() }
        };
        ok(cuStreamBeginCapture_v2(stream, GLOBAL));
        assert_eq!(mode(RELAXED), GLOBAL);
        let at = memory();
        ok(cuMemFree_v2(at));
        assert_eq!(mode(GLOBAL), RELAXED);
        get(|graph| cuStreamEndCapture(stream, graph));
        let waits: [fn(Stream) -> Code; 3] =
            [|stream| cuStreamSynchronize(stream), |stream| cuStreamQuery(stream), |_| cuCtxSynchronize()];
        for wait in waits {
            ok(cuStreamBeginCapture_v2(stream, RELAXED));
            memory();
            assert_eq!(wait(stream), STREAM_CAPTURE_UNSUPPORTED);
            assert_eq!(code(|graph| cuStreamEndCapture(stream, graph)), STREAM_CAPTURE_INVALIDATED);
        }
    });
}

#[test]
fn the_legacy_stream_may_not_wait_for_a_capturing_blocking_stream() {
    alone("", || {
        start();
        let blocking = get(|stream| cuStreamCreate(stream, 0));
        let at = memory();
        ok(cuStreamBeginCapture_v2(blocking, RELAXED));
        assert_eq!(cuMemsetD8_v2(at, 1, 1), STREAM_CAPTURE_IMPLICIT);
        assert_eq!(code(|status| cuStreamIsCapturing(Stream(0), status)), STREAM_CAPTURE_IMPLICIT);
        assert_eq!(code(|graph| cuStreamEndCapture(blocking, graph)), STREAM_CAPTURE_INVALIDATED);
    });
}

#[test]
fn a_stream_joins_a_capture_through_an_event() {
    alone("", || {
        start();
        let (first, second, at) = (stream(), stream(), memory());
        let event = get(|event| cuEventCreate(event, 0));
        ok(cuStreamBeginCapture_v2(first, RELAXED));
        ok(cuEventRecord(event, first));
        ok(cuStreamWaitEvent(second, event, 0));
        ok(cuMemsetD8Async(at, 5, MIB, second));
        assert_eq!(cuEventQuery(event), crate::code::CAPTURED_EVENT);
        assert_eq!(code(|graph| cuStreamEndCapture(second, graph)), STREAM_CAPTURE_UNMATCHED);
        let graph = get(|graph| cuStreamEndCapture(first, graph));
        assert_eq!(byte(at), 0);
        let exec = get(|exec| cuGraphInstantiateWithFlags(exec, graph, 0));
        ok(cuGraphLaunch(exec, first));
        assert_eq!(byte(at), 5);
    });
}

#[test]
fn a_launch_over_freed_memory_fails_and_over_other_memory_is_noted() {
    let log = alone("", || {
        start();
        let (stream, at) = (stream(), memory());
        let exec = graph(stream, at);
        ok(cuMemFree_v2(at));
        assert_eq!(cuGraphLaunch(exec, stream), ILLEGAL_ADDRESS);
        assert_eq!(memory(), at, "the lowest hole is used again");
        ok(cuGraphLaunch(exec, stream));
    });
    assert_eq!(broken(&log), ["graph-freed", "graph-stale"]);
}

#[test]
fn memory_made_in_a_capture_lives_as_long_as_its_graph() {
    alone("total=64M context=0", || {
        start();
        let stream = stream();
        let free = || driver().unwrap().memory_of(0).0 / MIB;
        let ordinary = memory();
        ok(cuStreamBeginCapture_v2(stream, GLOBAL));
        let at = get(|at| cuMemAllocAsync(at, 8 * MIB, stream));
        ok(cuMemsetD8Async(at, 1, 8 * MIB, stream));
        ok(cuMemFreeAsync(at, stream));
        assert_eq!(cuMemFreeAsync(ordinary, stream), STREAM_CAPTURE_UNSUPPORTED);
        let graph = get(|graph| cuStreamEndCapture(stream, graph));
        let exec = get(|exec| cuGraphInstantiateWithFlags(exec, graph, 0));
        ok(cuGraphLaunch(exec, stream));
        ok(cuGraphDestroy(graph));
        assert_eq!(free(), 52);
        ok(cuGraphExecDestroy(exec));
        assert_eq!(free(), 60);
    });
}
