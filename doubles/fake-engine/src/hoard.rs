//! Makes the fake engine leak host memory: an amount with each request, or one amount at the start.
//!
//! The memory is written to, so that it appears in every measurement of the process's memory.

use std::hint::black_box;

/// What is taken, in bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hoard {
    /// With every generation and embedding.
    pub(crate) leak: usize,
    /// With the request of this number.
    pub(crate) once: usize,
    pub(crate) once_at: u64,
}

impl Hoard {
    /// `served` requests have been answered before this one.
    pub(crate) fn take(&self, served: u64) {
        keep(self.leak);
        if served == self.once_at {
            keep(self.once);
        }
    }
}

fn keep(bytes: usize) {
    if bytes > 0 {
        // An optimiser may leave out memory that nobody looks at.
        black_box(Box::leak(vec![0xa5_u8; bytes].into_boxed_slice()));
    }
}
