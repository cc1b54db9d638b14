//! Pinned host buffers: the CPU backend's buffers over the plugin's own memory, under CUDA's name.

use alloc::collections::BTreeMap;
use core::ffi::c_char;
use core::ptr::null_mut;

use crate::abi::{Buffer, Function, Handle};
use crate::phantom;
use plimsoll_nostd::lock::Lock;

use super::ALIGNMENT;
use super::range::Range;

pub(super) extern "C" fn host_name(_: Handle) -> *const c_char {
    c"CUDA_Host".as_ptr()
}

pub(super) extern "C" fn is_host(_: Handle) -> bool {
    true
}

/// The CPU backend's buffer type.
pub(super) extern "C" fn host_alignment(_: Handle) -> usize {
    let Some(phantom) = phantom::get() else {
        return ALIGNMENT;
    };
    let functions = &phantom.engine.functions;
    // SAFETY: the engine's own functions, on its own buffer type.
    unsafe { (functions.ggml_backend_buft_get_alignment)((functions.ggml_backend_cpu_buffer_type)()) }
}

/// Allocates a CPU buffer over the plugin's own memory and renames it, as ggml's CUDA backend does.
pub(super) extern "C" fn host_allocate(memory: Handle, size: usize) -> *mut Buffer {
    let Some(phantom) = phantom::get() else {
        return null_mut();
    };
    let Some(range) = Range::map(size, libc::PROT_READ | libc::PROT_WRITE, None) else {
        return null_mut();
    };
    phantom
        .report
        .allocated(range.number, range.place(), range.bytes());
    // SAFETY: the memory is mapped and lives until the buffer is freed.
    let buffer = unsafe { (phantom.engine.functions.ggml_backend_cpu_buffer_from_ptr)(range.start, size) };
    // SAFETY: null, or a new buffer that nothing else refers to yet.
    let Some(made) = (unsafe { buffer.as_mut() }) else {
        return null_mut();
    };
    keep_for_free(made.context.addr(), range);
    made.buffer_type = memory;
    if let Some(slot) = made.table.0.first_mut() {
        *slot = host_free as Function;
    }
    buffer
}

/// Mapped memory of the host buffers, by its start address, which is also the context of the CPU's buffer.
static HOST: Lock<BTreeMap<usize, Range>> = Lock::new(BTreeMap::new());

fn keep_for_free(start: usize, range: Range) {
    HOST.hold().insert(start, range);
}

unsafe extern "C" fn host_free(buffer: *mut Buffer) {
    // SAFETY: the engine passes a buffer that `host_allocate` made.
    let Some(Buffer { context, usage, .. }) = (unsafe { buffer.as_ref() }) else {
        return;
    };
    let Some(range) = HOST.hold().remove(&context.addr()) else {
        return;
    };
    if let Some(phantom) = phantom::get() {
        phantom
            .report
            .freed(range.number, range.place(), range.bytes(), *usage);
    }
}
