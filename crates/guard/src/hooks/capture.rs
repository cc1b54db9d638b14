//! Stream capture.

use crate::hooks::hooks;

hooks! {
    in CUDA;
}
