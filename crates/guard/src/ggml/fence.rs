//! Places markers (CUDA events) in a context's GPU work, to learn when all work before them has finished.

use alloc::vec::Vec;
use core::ffi::{c_uint, c_void};
use core::ptr::{null_mut, with_exposed_provenance_mut};

use super::streams;
use crate::driver::{CuStream, SUCCESS};
use crate::driver_guard::forget_refusal;

mod real {
    use super::*;

    crate::driver::real! {
        by INTERFACE;
        cuEventCreate = hipEventCreateWithFlags(event: *mut *mut c_void, flags: c_uint);
        cuEventRecord = hipEventRecord(event: *mut c_void, stream: CuStream);
        cuEventQuery = hipEventQuery(event: *mut c_void);
        cuEventDestroy_v2 = hipEventDestroy(event: *mut c_void);
    }
}

/// CU_EVENT_DISABLE_TIMING.
const WITHOUT_TIMING: c_uint = 2;

/// Events on all streams of a context.
#[derive(Debug)]
pub(super) struct StreamFence {
    /// By their addresses.
    events: Vec<usize>,
    broken: bool,
    over: bool,
}

impl StreamFence {
    /// Records a fence behind the work of a context, which must be the calling thread's.
    pub(super) fn record(context: usize) -> Self {
        // DECISION: a fence is an event on each stream of the context (see `streams`). If an event cannot be
        // created, the fence counts as passed only after a wait for the whole card.
        let streams = streams::of(context);
        let mut fence = Self { events: Vec::new(), broken: streams.is_empty(), over: false };
        for stream in streams {
            let mut event = null_mut();
            // SAFETY: a stream that was created and not destroyed; the event is ours.
            let recorded = unsafe {
                real::cuEventCreate(&raw mut event, WITHOUT_TIMING) == SUCCESS
                    && real::cuEventRecord(event, with_exposed_provenance_mut(stream)) == SUCCESS
            };
            fence.broken |= !recorded;
            if !event.is_null() {
                fence.events.push(event.expose_provenance());
            }
        }
        fence
    }

    /// Completes the fence after a wait for the card.
    pub(super) fn over(&mut self) {
        self.over = true;
    }

    /// True if the work is done. Does not wait.
    pub(super) fn done(&self) -> bool {
        let past = |event: &usize| {
            // SAFETY: events of ours that were recorded.
            let done = unsafe { real::cuEventQuery(with_exposed_provenance_mut(*event)) } == SUCCESS;
            if !done {
                // HIP notes "not ready" as an error.
                forget_refusal();
            }
            done
        };
        self.over || !self.broken && self.events.iter().all(past)
    }
}

impl Drop for StreamFence {
    fn drop(&mut self) {
        for event in &self.events {
            // SAFETY: an event of ours, which nothing else uses.
            unsafe { real::cuEventDestroy_v2(with_exposed_provenance_mut(*event)) };
        }
    }
}
