//! Marks in the GPU work of a context (CUDA events), which say without a wait when the work is done.

use std::ffi::c_uint;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::blocks::hold;
use crate::driver::{self, Handle, SUCCESS};

/// CU_EVENT_DISABLE_TIMING.
const WITHOUT_TIMING: c_uint = 2;

/// Streams with the contexts that they were created in, by their addresses.
static STREAMS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
/// True if there may be streams that are not in the list.
static UNSURE: AtomicBool = AtomicBool::new(false);

/// Notes that streams may have been created before this library was loaded.
pub(crate) fn be_unsure() {
    UNSURE.store(true, Relaxed);
}

pub(crate) fn stream_created(stream: Handle) {
    match driver::context() {
        Some(context) => hold(&STREAMS).push((context, stream.expose_provenance())),
        None => be_unsure(),
    }
}

/// Forgets a stream that is about to be destroyed: its handle must not reach the driver again.
pub(crate) fn stream_gone(stream: Handle) {
    hold(&STREAMS).retain(|(_, known)| *known != stream.addr());
}

/// Events behind the work of all streams of a context.
#[derive(Debug)]
pub(crate) struct Fence {
    /// By their addresses.
    events: Vec<usize>,
    is_broken: bool,
    is_over: bool,
}

impl Fence {
    // DECISION: a fence has an event on every stream of the context, because a pool cannot tell which stream
    // it serves. Where a stream may be unknown, only a wait for the context completes a fence.
    /// Records a fence behind the work of the calling thread's context.
    pub(crate) fn record() -> Self {
        let context = driver::context();
        let mut fence =
            Self { events: Vec::new(), is_broken: UNSURE.load(Relaxed) || context.is_none(), is_over: false };
        if fence.is_broken {
            return fence;
        }
        let streams = hold(&STREAMS);
        let own = streams.iter().filter(|(of, _)| Some(*of) == context).map(|(_, stream)| *stream);
        for stream in std::iter::once(0).chain(own) {
            let mut event = null_mut();
            // SAFETY: a stream that was created and not destroyed; the event is ours.
            let recorded = unsafe {
                driver::cuEventCreate(&raw mut event, WITHOUT_TIMING) == SUCCESS
                    && driver::cuEventRecord(event, with_exposed_provenance_mut(stream)) == SUCCESS
            };
            fence.is_broken |= !recorded;
            if !event.is_null() {
                fence.events.push(event.expose_provenance());
            }
        }
        fence
    }

    /// True if the work is done. Does not wait.
    pub(crate) fn is_done(&self) -> bool {
        let is_past = |event: &usize| {
            // SAFETY: events of ours that were recorded.
            unsafe { driver::cuEventQuery(with_exposed_provenance_mut(*event)) == SUCCESS }
        };
        self.is_over || !self.is_broken && self.events.iter().all(is_past)
    }

    /// Waits for the context. Where that fails, the fence is not done.
    pub(crate) fn wait(&mut self) {
        // SAFETY: it takes nothing.
        self.is_over |= unsafe { driver::cuCtxSynchronize() } == SUCCESS;
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        for event in &self.events {
            // SAFETY: an event of ours, which nothing else uses.
            unsafe { driver::cuEventDestroy_v2(with_exposed_provenance_mut(*event)) };
        }
    }
}
