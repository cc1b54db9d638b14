//! Replaces `dlsym`, in assembly: a name with a hook gets guard's function, any other one libc's answer.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;

use crate::driver::loader::{self, NEXT_DLSYM};
use crate::interpose::named;
use crate::settings;

// DECISION: the code jumps to the next `dlsym` instead of calling it. glibc identifies the calling object by
// the return address, on which RTLD_NEXT and RTLD_DEFAULT depend.
/// Result of the look-up, which is returned in two registers.
#[repr(C)]
pub(super) struct SymbolAnswer {
    /// 0: not ours, ask the next `dlsym`.
    ours: usize,
    address: *mut c_void,
}

const NOT_OURS: SymbolAnswer = SymbolAnswer { ours: 0, address: null_mut() };

const fn found(address: *mut c_void) -> SymbolAnswer {
    SymbolAnswer { ours: 1, address }
}

unsafe extern "C" fn look_up(handle: *mut c_void, name: *const c_char) -> SymbolAnswer {
    if !loader::ready() {
        return found(null_mut());
    }
    if handle == libc::RTLD_NEXT || name.is_null() {
        return NOT_OURS;
    }
    // SAFETY: the name is not null, and a C string by the contract of dlsym.
    let (hook, name) = match unsafe { (named(name), name) } {
        // SAFETY: as above.
        (Some(hook), name) => (hook, unsafe { CStr::from_ptr(name) }),
        (None, _) => return NOT_OURS,
    };
    if !settings::wanted() {
        return NOT_OURS;
    }
    let real = hook.slot.function();
    let theirs = match handle {
        libc::RTLD_DEFAULT => hook.address(),
        handle => loader::symbol(handle, name),
    };
    if theirs != hook.address() {
        let substituted = !theirs.is_null() && theirs == real;
        return found(if substituted { hook.address() } else { theirs });
    }
    // The search met our own export, which stands for something only if there is a driver behind it.
    found(if real.is_null() { loader::symbol(libc::RTLD_NEXT, name) } else { theirs })
}

#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        // Two arguments and 8 bytes keep the stack aligned to 16 for the call.
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {look_up}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jne 2f",
        "jmp qword ptr [rip + {next}]",
        "2:",
        "mov rax, rdx",
        "ret",
        look_up = sym look_up,
        next = sym NEXT_DLSYM,
    )
}

#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "hint #34", // bti c
        "stp x0, x1, [sp, #-32]!",
        "str x30, [sp, #16]",
        "bl {look_up}",
        "mov x9, x0",
        "mov x10, x1",
        "ldr x30, [sp, #16]",
        "ldp x0, x1, [sp], #32",
        "cbnz x9, 2f",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "br x16",
        "2:",
        "mov x0, x10",
        "ret",
        look_up = sym look_up,
        next = sym NEXT_DLSYM,
    )
}
