//! Graphs.

use crate::hooks::hooks;

hooks! {
    in CUDA;
}
