//! Hook of `cuInit`, after which guard (this library) arms itself.
//!
//! The hook must work before guard is armed, so it is written by hand instead of being declared with
//! `hooks!`.

use core::ffi::c_uint;

use crate::arm;
use crate::driver::{CuResult, SUCCESS};
use crate::hooks::{Hook, HookFunction};

pub(crate) mod real {
    use super::c_uint;

    crate::driver::real! {
        in CUDA;
        cuInit(flags: c_uint);
    }
}

/// # Safety
/// As the driver asks of its callers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cuInit(flags: c_uint) -> CuResult {
    // SAFETY: the caller's promise is passed on.
    let result = unsafe { real::cuInit(flags) };
    // Not before: the driver has no cards, and a program whose driver fails must see that failure and nothing
    // else.
    if result == SUCCESS {
        arm::initialised();
    }
    result
}

pub(crate) const TABLE: &[Hook] = &[Hook {
    symbol: "cuInit",
    name: "cuInit",
    since: 2000,
    per_thread: false,
    // SAFETY: never called before it is cast back to its own type.
    function: unsafe {
        core::mem::transmute::<unsafe extern "C" fn(c_uint) -> CuResult, HookFunction>(cuInit)
    },
    slot: &real::slots::cuInit,
}];
