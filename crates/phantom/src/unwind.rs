//! Defines, as stubs, two symbols for stack unwinding to which the standard library's `alloc` refers, so that
//! phantom needs no unwinder.
//!
//! `alloc` was compiled with unwinding. Nothing unwinds here (panic = abort), so they are never called.

use core::arch::global_asm;

global_asm!(
    ".globl rust_eh_personality, _Unwind_Resume",
    ".hidden rust_eh_personality, _Unwind_Resume",
    ".balign 4",
    "rust_eh_personality:",
    "_Unwind_Resume:",
    // An invalid instruction, `ud2` of x86-64 and `udf` of AArch64: should a stub be reached, the process
    // stops at its cause.
    ".long 0x0b0f",
);
