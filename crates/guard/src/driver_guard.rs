//! Calls of guard's own into the driver, made so that the program cannot tell.
//!
//! Two things of the calling thread decide what a call does, its capture mode and its context. A call that may allocate would
//! spoil another thread's capture in the global mode, so the mode is RELAXED while guard works; the context is the one in which
//! the memory was asked for. Both are put back.

use core::ffi::c_uint;
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU32, fence};

use crate::driver::{self, CuResult, Device, SUCCESS};

const RELAXED: c_uint = 2;

/// The thread's capture mode is RELAXED until this is dropped.
#[derive(Debug)]
pub(crate) struct Relaxed(c_uint);

impl Relaxed {
    pub(crate) fn begin() -> Self {
        let mut mode = RELAXED;
        // SAFETY: the place is ours; the old mode comes back in it. A driver without it leaves RELAXED, which is harmless.
        unsafe { driver::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        Self(mode)
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: the place is ours.
        unsafe { driver::cuThreadExchangeStreamCaptureMode(&raw mut self.0) };
    }
}

/// Whether any stream of the process is being captured: then nothing may be waited for, and nothing given back.
pub(crate) fn capturing() -> bool {
    crate::graphs::capturing()
}

/// The calling thread's context, as a number; 0 for none.
pub(crate) fn context() -> usize {
    let mut context = null_mut();
    // SAFETY: the place is ours.
    let code = unsafe { driver::cuCtxGetCurrent(&raw mut context) };
    if code == SUCCESS { context.addr() } else { 0 }
}

/// The card of the calling thread's context.
pub(crate) fn device() -> Option<Device> {
    let mut device = 0;
    // SAFETY: the place is ours.
    let code = unsafe { driver::cuCtxGetDevice(&raw mut device) };
    (code == SUCCESS).then_some(device)
}

/// Runs `act` in a context, or in the thread's own where that context is gone.
pub(crate) fn in_context<T>(context: usize, act: impl FnOnce() -> T) -> T {
    // SAFETY: a context that the driver once gave; it refuses one that is gone.
    let pushed =
        context != 0 && unsafe { driver::cuCtxPushCurrent_v2(without_provenance_mut(context)) } == SUCCESS;
    let result = act();
    if pushed {
        let mut popped = null_mut();
        // SAFETY: pushed above.
        unsafe { driver::cuCtxPopCurrent_v2(&raw mut popped) };
    }
    result
}

/// Threads that wait for a card on guard's account.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Waits until a context's card has done all that it was given. None, and nothing was waited for, if a capture is under way: it
/// would be spoilt.
pub(crate) fn synchronise(context: usize) -> Option<CuResult> {
    WAITING.fetch_add(1, SeqCst);
    // Either this sees a capture that is about to begin, or the capture sees this and lets it end.
    fence(SeqCst);
    // SAFETY: takes nothing.
    let code = (!capturing()).then(|| in_context(context, || unsafe { driver::cuCtxSynchronize() }));
    WAITING.fetch_sub(1, SeqCst);
    code
}

/// For whoever has announced a capture: returns when guard waits for no card any more.
pub(crate) fn let_waits_end() {
    fence(SeqCst);
    while WAITING.load(SeqCst) > 0 {
        // SAFETY: takes nothing.
        unsafe { libc::sched_yield() };
    }
}
