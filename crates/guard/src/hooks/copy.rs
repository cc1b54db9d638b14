//! Copies and fills that touch guard's own ranges.

use crate::hooks::hooks;

hooks! {
    in CUDA;
}
