//! The variant of llama.cpp PR 22158: ggml's own pool, on managed memory.
//!
//! DECISION: ggml's `alloc` runs as ever, and the `cuMemAlloc` that it makes is answered with managed memory. The hook knows by the
//! thread: one word for each of a few threads that may be inside `alloc` at once; a thread that finds no room gets
//! ordinary memory.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const THREADS: usize = 64;

/// The threads that are inside `alloc` now, by their `pthread_self`; 0 for none.
static INSIDE: [AtomicUsize; THREADS] = [const { AtomicUsize::new(0) }; THREADS];

/// Runs ggml's own `alloc` so that its memory is managed.
pub(super) fn around<R>(alloc: impl FnOnce() -> R) -> R {
    let place = INSIDE.iter().find(|place| {
        let free = place.compare_exchange(0, this_thread(), Relaxed, Relaxed);
        free.is_ok()
    });
    let result = alloc();
    if let Some(place) = place {
        place.store(0, Relaxed);
    }
    result
}

/// Whether this thread is inside `alloc`.
pub(super) fn inside() -> bool {
    let thread = this_thread();
    INSIDE.iter().any(|place| place.load(Relaxed) == thread)
}

fn this_thread() -> usize {
    // SAFETY: takes nothing and cannot fail.
    let thread = unsafe { libc::pthread_self() };
    usize::try_from(thread).unwrap_or(0)
}
