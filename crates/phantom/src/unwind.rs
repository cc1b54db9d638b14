//! Stubs of the two unwinding symbols to which the standard library's `alloc` refers.
//!
//! `alloc` was compiled with unwinding. Nothing unwinds here (panic = abort), so they are never called.

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
