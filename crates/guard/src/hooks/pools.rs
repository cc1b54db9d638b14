//! Stream-ordered memory: `cuMemAllocAsync` and its pools.

use crate::hooks::hooks;

hooks! {
    in CUDA;
}
