//! Saves and restores the calling thread's state (context, stream capture mode, last error) around guard's
//! own driver calls.
//!
//! An allocation would break another thread's stream capture, so the capture mode is relaxed during the call.
//! Mode and context are restored afterwards, and in HIP the error of the last call.

use core::ffi::c_uint;
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU32, fence};

use crate::driver::hip::{self, LastError};
use crate::driver::interface::is_hip;
use crate::driver::{self, CuResult, DeviceOrdinal, SUCCESS};
use crate::state::CardIndex;
use crate::state::captures::capturing;

/// CU_STREAM_CAPTURE_MODE_RELAXED.
const RELAXED: c_uint = 2;

/// Keeps the thread's capture mode RELAXED until it is dropped.
#[derive(Debug)]
pub(crate) struct RelaxedCapture {
    mode: c_uint,
    /// Dropped after the mode is restored.
    _error: Option<LastError>,
}

impl RelaxedCapture {
    pub(crate) fn begin() -> Self {
        let error = is_hip().then(LastError::keep);
        let mut mode = RELAXED;
        // SAFETY: the place is ours; the old mode comes back in it. A driver without it leaves RELAXED, which
        // is harmless.
        unsafe { driver::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        Self { mode, _error: error }
    }
}

impl Drop for RelaxedCapture {
    fn drop(&mut self) {
        // SAFETY: the place is ours.
        unsafe { driver::cuThreadExchangeStreamCaptureMode(&raw mut self.mode) };
    }
}

/// The calling thread's context, as a number; 0 for none.
pub(crate) fn context() -> usize {
    if is_hip() {
        return hip::context_of(hip::device());
    }
    let mut context = null_mut();
    // SAFETY: the place is ours.
    let code = unsafe { driver::cuCtxGetCurrent(&raw mut context) };
    if code == SUCCESS { context.addr() } else { 0 }
}

/// The card of the calling thread's context, by the driver's number.
pub(crate) fn device() -> Option<DeviceOrdinal> {
    let mut device = 0;
    // SAFETY: the place is ours.
    let code = unsafe { driver::cuCtxGetDevice(&raw mut device) };
    (code == SUCCESS).then_some(device)
}

/// The card of the calling thread's context. None without a context; the driver then has its own answer.
pub(crate) fn current_card() -> Option<CardIndex> {
    device().and_then(CardIndex::of)
}

/// Free and total bytes of a card by the driver, if the calling thread's context is on it.
pub(crate) fn memory_of(device: DeviceOrdinal) -> Option<(u64, u64)> {
    (self::device() == Some(device)).then(memory).flatten()
}

/// Free and total bytes of the card of the calling thread's context, by the driver.
pub(crate) fn memory() -> Option<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the places are ours.
    let code = unsafe { driver::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    (code == SUCCESS).then_some((free, total))
}

/// Runs `act` in a context; in the thread's own if that context has been destroyed.
pub(crate) fn in_context<T>(context: usize, act: impl FnOnce() -> T) -> T {
    if is_hip() {
        return hip::in_context(context, act);
    }
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

/// Forgets a refusal that guard has made good: in HIP the program would find it after its next kernel.
pub(crate) fn forget_refusal() {
    if is_hip() {
        hip::forget_error();
    }
}

/// Threads that wait for a card on guard's account.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Waits until a context has finished all submitted work. None, without waiting, while a capture is under
/// way: a wait would invalidate it.
pub(crate) fn synchronise(context: usize) -> Option<CuResult> {
    while_idle(context, |code| code)
}

/// Waits as [`synchronise`] does, and calls `act` with the result, in the context and before a capture can
/// begin.
pub(crate) fn while_idle<T>(context: usize, act: impl FnOnce(CuResult) -> T) -> Option<T> {
    WAITING.fetch_add(1, SeqCst);
    // Dekker's pattern with `graphs::begin`: either this sees the capture that is about to begin, or
    // `let_waits_end` sees WAITING.
    fence(SeqCst);
    // SAFETY: takes nothing.
    let wait = || act(unsafe { driver::cuCtxSynchronize() });
    let result = (!capturing()).then(|| in_context(context, wait));
    WAITING.fetch_sub(1, SeqCst);
    result
}

/// Returns when guard waits for no card any more; to be called after a capture was announced.
pub(crate) fn let_waits_end() {
    fence(SeqCst);
    while WAITING.load(SeqCst) > 0 {
        // Yielding, not sleeping: the wait ends with the card's work, which takes milliseconds at most when a
        // capture begins.
        // SAFETY: takes nothing.
        unsafe { libc::sched_yield() };
    }
}
