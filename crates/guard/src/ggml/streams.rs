//! Lists the streams of each CUDA context, so that a fence can wait for all work of the context.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::driver::CuStream;
use crate::driver_guard;
use plimsoll_nostd::lock::Lock;

/// Streams by the context that they were created in, as addresses.
static STREAMS: Lock<Vec<(usize, usize)>> = Lock::new(Vec::new());

static UNSURE: AtomicBool = AtomicBool::new(false);

/// Announces that a context may be about to end.
pub(crate) fn ending() {
    UNSURE.store(true, Relaxed);
}

/// Enters a stream of the calling thread's context.
pub(crate) fn created(stream: CuStream) {
    let context = driver_guard::context();
    STREAMS.hold().push((context, stream.expose_provenance()));
}

/// Forgets a stream that is about to be destroyed.
pub(crate) fn gone(stream: CuStream) {
    let stream = stream.expose_provenance();
    STREAMS.hold().retain(|(_, known)| *known != stream);
}

/// The context's default stream and all others; none if they are not known with certainty.
pub(super) fn of(context: usize) -> Vec<usize> {
    // DECISION: a fence has an event on every stream of the context, because a pool cannot tell which stream
    // it serves. After the first context has ended no more fences are made: the driver does not report the
    // end of each stream.

    // A handle of a destroyed stream must not be passed to the driver.
    if UNSURE.load(Relaxed) {
        return Vec::new();
    }
    let streams = STREAMS.hold();
    let others = streams.iter().filter(|(of, _)| *of == context);
    core::iter::once(0).chain(others.map(|(_, stream)| *stream)).collect()
}
