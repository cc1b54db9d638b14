//! Buffers of a card, as the engine calls them: addresses without memory behind them.

use alloc::boxed::Box;
use core::ffi::{c_char, c_int};
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::Relaxed;

use crate::abi::{Buffer, BufferTable, Function, Handle, SUCCESS, Tensor};
use crate::phantom;
use crate::tensor::View;

use super::range::Range;
use super::{ALIGNMENT, card_of_type, size};

pub(super) extern "C" fn card_name(memory: Handle) -> *const c_char {
    card_of_type(memory).map_or(c"CUDA".as_ptr(), |(_, state)| state.card.device.as_ptr())
}

pub(super) extern "C" fn card_alignment(_: Handle) -> usize {
    ALIGNMENT
}

pub(super) unsafe extern "C" fn card_size(memory: Handle, tensor: *const Tensor) -> usize {
    // SAFETY: the engine passes a live tensor.
    let tensor = unsafe { View::of(tensor) };
    let bytes = match (card_of_type(memory), tensor) {
        (Some((_, state)), Some(tensor)) => size(tensor, state.rules),
        (_, tensor) => tensor.map_or(0, View::bytes),
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

pub(super) extern "C" fn card_allocate(memory: Handle, size: usize) -> *mut Buffer {
    let Some((phantom, state)) = card_of_type(memory) else {
        return null_mut();
    };
    let Some(range) = Range::map(size, libc::PROT_NONE, Some(state)) else {
        return null_mut();
    };
    state.used.fetch_add(range.bytes(), Relaxed);
    phantom
        .report
        .allocated(range.number, range.place(), range.bytes());
    let context: Handle = Box::into_raw(Box::new(range)).cast();
    // SAFETY: the engine's own function; the table and the context are ours.
    unsafe { (phantom.engine.functions.ggml_backend_buffer_init)(memory, card_table(), context, size) }
}

fn card_table() -> BufferTable {
    BufferTable([
        free as Function,
        start as Function,
        init_tensor as Function,
        memset_tensor as Function,
        set_tensor as Function,
        get_tensor as Function,
        set_tensor_2d as Function,
        get_tensor_2d as Function,
        copy_tensor as Function,
        clear as Function,
        // reset
        null(),
    ])
}

/// # Safety
/// A buffer of ours.
unsafe fn range_of<'a>(buffer: *mut Buffer) -> Option<&'a Range> {
    // SAFETY: the caller's promise; `free` is the last call for it.
    unsafe { buffer.as_ref()?.context.cast::<Range>().as_ref() }
}

unsafe extern "C" fn free(buffer: *mut Buffer) {
    // SAFETY: the engine frees each of our buffers once.
    let Some(Buffer { context, usage, .. }) = (unsafe { buffer.as_ref() }) else {
        return;
    };
    if context.is_null() {
        return;
    }
    // SAFETY: as above; the context was a Box.
    let range = unsafe { Box::from_raw(context.cast::<Range>()) };
    if let Some(state) = range.card {
        state.used.fetch_sub(range.bytes(), Relaxed);
    }
    if let Some(phantom) = phantom::get() {
        phantom
            .report
            .freed(range.number, range.place(), range.bytes(), *usage);
    }
}

unsafe extern "C" fn start(buffer: *mut Buffer) -> Handle {
    // SAFETY: the engine passes a buffer of ours.
    unsafe { range_of(buffer) }.map_or(null_mut(), |range| range.start)
}

extern "C" fn init_tensor(_: *mut Buffer, _: *mut Tensor) -> c_int {
    SUCCESS
}

extern "C" fn memset_tensor(_: *mut Buffer, _: *mut Tensor, _: u8, _: usize, _: usize) {}

extern "C" fn set_tensor(_: *mut Buffer, _: *mut Tensor, _: Handle, _: usize, _: usize) {}

pub(crate) unsafe extern "C" fn get_tensor(_: Handle, _: *const Tensor, data: Handle, _: usize, size: usize) {
    if !data.is_null() {
        // SAFETY: the engine passes room for `size` bytes.
        unsafe { data.cast::<u8>().write_bytes(0, size) };
    }
}

extern "C" fn set_tensor_2d(
    _: *mut Buffer,
    _: *mut Tensor,
    _: Handle,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
) {
}

#[allow(clippy::too_many_arguments, reason = "ggml's signature")]
pub(crate) unsafe extern "C" fn get_tensor_2d(
    _: Handle,
    _: *const Tensor,
    data: Handle,
    _: usize,
    size: usize,
    copies: usize,
    _: usize,
    stride: usize,
) {
    if data.is_null() {
        return;
    }
    for copy in 0..copies {
        // SAFETY: the engine passes room for `copies` rows of `size` bytes, `stride` apart.
        unsafe {
            data.cast::<u8>()
                .wrapping_add(copy.wrapping_mul(stride))
                .write_bytes(0, size)
        };
    }
}

/// True if a tensor lies in a buffer of a card of ours.
///
/// # Safety
/// Null, or a live tensor.
pub(crate) unsafe fn is_on_card(tensor: *const Tensor) -> bool {
    // SAFETY: the caller's promise; a view has its source's buffer.
    let buffer = unsafe {
        tensor
            .as_ref()
            .and_then(|tensor| tensor.view_src.as_ref().unwrap_or(tensor).buffer.as_ref())
    };
    buffer.is_some_and(|buffer| card_of_type(buffer.buffer_type).is_some())
}

/// Copies a tensor between two cards; every other copy goes through the host.
unsafe extern "C" fn copy_tensor(_: *mut Buffer, from: *const Tensor, _: *mut Tensor) -> bool {
    // SAFETY: the engine passes a live tensor.
    unsafe { is_on_card(from) }
}

extern "C" fn clear(_: *mut Buffer, _: u8) {}
