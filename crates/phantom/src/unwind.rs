//! Two names that the standard `alloc` refers to, because it was compiled to unwind. Nothing here unwinds
//! (panic = abort), so they are never reached. Hidden: the plugin exports what its list says.

use core::arch::global_asm;

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl rust_eh_personality, _Unwind_Resume",
    ".hidden rust_eh_personality, _Unwind_Resume",
    "rust_eh_personality:",
    "_Unwind_Resume:",
    "ud2",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl rust_eh_personality, _Unwind_Resume",
    ".hidden rust_eh_personality, _Unwind_Resume",
    "rust_eh_personality:",
    "_Unwind_Resume:",
    "udf #0",
);
