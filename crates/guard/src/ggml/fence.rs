//! A mark in everything that a context was given to do.
//!
//! DECISION: an event on each of its streams (see [`streams`]). A mark of which a part could not be made is never past of itself:
//! only waiting for the whole card gets past it.

use alloc::vec::Vec;
use core::ffi::{c_uint, c_void};
use core::ptr::{null_mut, with_exposed_provenance_mut};

use super::streams;
use crate::driver::{SUCCESS, Stream};

mod real {
    use super::*;

    crate::driver::real! {
        in CUDA;
        cuEventCreate(event: *mut *mut c_void, flags: c_uint);
        cuEventRecord(event: *mut c_void, stream: Stream);
        cuEventQuery(event: *mut c_void);
        cuEventDestroy_v2(event: *mut c_void);
    }
}

/// CU_EVENT_DISABLE_TIMING.
const WITHOUT_TIMING: c_uint = 2;

#[derive(Debug)]
pub(super) struct Fence {
    /// By their addresses.
    events: Vec<usize>,
    broken: bool,
    over: bool,
}

impl Fence {
    /// Marks what a context, the calling thread's, has been given so far.
    pub(super) fn record(context: usize) -> Self {
        let streams = streams::of(context);
        let mut fence = Self {
            events: Vec::new(),
            broken: streams.is_empty(),
            over: false,
        };
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

    /// The card has been waited for.
    pub(super) fn over(&mut self) {
        self.over = true;
    }

    /// Whether the card is past it. Does not wait.
    pub(super) fn done(&self) -> bool {
        // SAFETY: events of ours that were recorded.
        let past =
            |event: &usize| unsafe { real::cuEventQuery(with_exposed_provenance_mut(*event)) } == SUCCESS;
        self.over || !self.broken && self.events.iter().all(past)
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        for event in &self.events {
            // SAFETY: an event of ours, of which nobody else knows.
            unsafe { real::cuEventDestroy_v2(with_exposed_provenance_mut(*event)) };
        }
    }
}
