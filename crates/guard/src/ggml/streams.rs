//! The streams of each context, so that "the card is done" can be asked for without waiting.
//!
//! DECISION: a pool does not know its stream, and ggml's streams do not order themselves behind the default one. So a mark is
//! an event on every stream of the context and on its default stream. There are a handful, and a mark is only made when
//! memory is about to go back to the driver.
//!
//! Streams end with their context, which the driver does not tell one by one. From the first end of a context on no marks are
//! made: memory then goes back only when the whole card has been waited for.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::driver::Stream;
use crate::lock::Lock;
use crate::spill::quiet;

/// Streams by the context that they were created in, as addresses.
static STREAMS: Lock<Vec<(usize, usize)>> = Lock::new(Vec::new());

static UNSURE: AtomicBool = AtomicBool::new(false);

/// A context is about to end, or may be.
pub(crate) fn ending() {
    UNSURE.store(true, Relaxed);
}

/// A stream was created in the calling thread's context.
pub(crate) fn made(stream: Stream) {
    let context = quiet::context();
    STREAMS.hold().push((context, stream.expose_provenance()));
}

/// A stream is about to be destroyed.
pub(crate) fn gone(stream: Stream) {
    let stream = stream.expose_provenance();
    STREAMS.hold().retain(|(_, known)| *known != stream);
}

/// The context's default stream and all others; none if they are not known for sure.
pub(super) fn of(context: usize) -> Vec<usize> {
    if UNSURE.load(Relaxed) {
        return Vec::new();
    }
    let streams = STREAMS.hold();
    let others = streams.iter().filter(|(of, _)| *of == context);
    core::iter::once(0)
        .chain(others.map(|(_, stream)| *stream))
        .collect()
}
