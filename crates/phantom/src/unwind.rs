//! Stubs of the two unwinding symbols that the standard `alloc` refers to.
//!
//! `alloc` was compiled to unwind. Nothing here unwinds (panic = abort), so the stubs are never reached. They
//! are hidden, because the plugin exports only the symbols of its list.

use core::arch::global_asm;

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl rust_eh_personality, _Unwind_Resume",
    ".hidden rust_eh_personality, _Unwind_Resume",
    "rust_eh_personality:",
    "_Unwind_Resume:",
    // An invalid instruction: should a stub ever be reached, the process stops at its cause.
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
