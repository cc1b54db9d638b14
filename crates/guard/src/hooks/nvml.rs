//! NVML, as PyTorch asks it while it words an out-of-memory error.

use crate::hooks::hooks;

hooks! {
    in NVML;
}
