//! CUDA managed memory for ggml's own pool (`pool=managed`), as in llama.cpp PR 22158.
//!
//! ggml's `alloc` runs unchanged, and guard answers its `cuMemAlloc` call with managed memory.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const THREADS: usize = 64;

// DECISION: a fixed table of the threads inside `alloc` identifies that call. If the table is full, the call
// gets device memory.
/// Threads inside `alloc`, by their `pthread_self`; 0 for a free place. A thread local would need TLS of the
/// preload, which the loader may have to allocate.
static INSIDE: [AtomicUsize; THREADS] = [const { AtomicUsize::new(0) }; THREADS];

/// Runs ggml's own `alloc` on managed memory.
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

/// True if this thread is inside `alloc`.
pub(super) fn inside() -> bool {
    let thread = this_thread();
    INSIDE.iter().any(|place| place.load(Relaxed) == thread)
}

fn this_thread() -> usize {
    // SAFETY: takes nothing and cannot fail.
    let thread = unsafe { libc::pthread_self() };
    usize::try_from(thread).unwrap_or(0)
}
