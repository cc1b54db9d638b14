//! Memory shared with other processes.

use crate::hooks::hooks;

hooks! {
    in CUDA;
}
