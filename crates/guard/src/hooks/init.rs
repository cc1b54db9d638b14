//! Hook of `cuInit`: guard becomes active in the process once the first call has succeeded.

use core::ffi::c_uint;

use crate::arm;
use crate::driver::SUCCESS;
use crate::driver::interface::Interface;
use crate::hooks::hooks;

hooks! {
    in CUDA when always;

    fn cuInit = "cuInit" since 2000 (flags: c_uint) calls real {
        let result = real(flags);
        // Not before: the driver has no cards, and a program whose driver fails must see that failure and
        // nothing else.
        if result == SUCCESS {
            arm::initialised(Interface::Cuda);
        }
        result
    }
}
