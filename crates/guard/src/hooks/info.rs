//! What the program may know of its cards.

use crate::driver::Device;
use crate::hooks::hooks;

hooks! {
    in CUDA;

    fn cuDeviceTotalMem_v2 = "cuDeviceTotalMem" since 3020 (bytes: *mut usize, device: Device) calls real {
        real(bytes, device)
    }
}
