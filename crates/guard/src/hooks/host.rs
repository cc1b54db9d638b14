//! Pinned host memory: not device memory, but worth a line in the trace.

use crate::hooks::hooks;

hooks! {
    in CUDA;
}
