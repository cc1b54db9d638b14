//! Virtual memory management: physical memory, its handles and its mappings.

use crate::hooks::hooks;

hooks! {
    in CUDA;
}
