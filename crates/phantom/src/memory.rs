//! Buffers: a card's, which are addresses only, and the host's pinned ones, which are real.
//!
//! DECISION: a card's buffer is a range of addresses that nothing backs and nobody may touch, so that every tensor has an address of
//! its own and a mistake shows at once. Nothing is refused for lack of memory: whether it fits is the caller's arithmetic, and an
//! engine that dies half-way says only half of it. What is read back from a card is zeros.
//! Source: `ggml-cuda.cu:ggml_backend_cuda_buffer_type_get_alloc_size, ggml_backend_cuda_buffer_interface,
//! ggml_backend_cuda_host_buffer_type @ b10605`; `MATRIX_ROW_PADDING` of `common.cuh`.

use alloc::boxed::Box;
use core::ffi::{c_char, c_int};
use core::ptr::{null, null_mut};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use plimsoll_pool::demand::Rules;

use crate::abi::{Buffer, BufferTable, BufferType, Device, Function, Handle, SUCCESS, Tensor};
use crate::attention::Attention;
use crate::kinds::Op;
use crate::phantom::{self, CardState, Phantom};
use crate::probe::Version;
use crate::tensor::{View, row_size};

const ALIGNMENT: usize = 128;
/// Kernels read quantised rows in steps of so many values.
const ROW_PADDING: u64 = 512;

/// What a tensor takes in a card's buffer.
pub(crate) fn size(tensor: View<'_>, rules: Rules) -> u64 {
    let attention = Some(tensor)
        .filter(|tensor| tensor.op() == Op::FlashAttnExt)
        .and_then(Attention::of);
    let size = attention.map_or_else(|| tensor.bytes(), |attention| attention.size(rules));
    let layout = tensor.layout();
    match tensor.ne(0) % ROW_PADDING {
        over @ 1.. if layout.quantised => size.saturating_add(row_size(layout, ROW_PADDING - over)),
        _ => size,
    }
}

pub(crate) fn of_card(version: Version, device: *mut Device, context: Handle) -> BufferType {
    buffer_type(
        version,
        [
            card_name as Function,
            card_allocate as Function,
            card_alignment as Function,
            card_size as Function,
            null(),
        ],
        device,
        context,
    )
}

pub(crate) fn of_host(version: Version, device: *mut Device) -> BufferType {
    buffer_type(
        version,
        [
            host_name as Function,
            host_allocate as Function,
            host_alignment as Function,
            null(),
            is_host as Function,
        ],
        device,
        null_mut(),
    )
}

/// Name, allocation, alignment, size of a tensor, whether it is the host's; in the slots where the version has them.
fn buffer_type(
    version: Version,
    functions: [Function; 5],
    device: *mut Device,
    context: Handle,
) -> BufferType {
    let [name, allocate, alignment, size, host] = functions;
    let none = null();
    let (device, context) = (device.cast_const().cast(), context.cast_const());
    BufferType(match version {
        Version::Two => [
            name, allocate, alignment, none, size, host, device, context, none, none,
        ],
        Version::Three => [
            name, allocate, none, alignment, none, size, none, host, device, context,
        ],
    })
}

/// The card of one of our buffer types.
fn card_of_type(memory: Handle) -> Option<(&'static Phantom, &'static CardState)> {
    let phantom = phantom::get()?;
    let same = |state: &&CardState| core::ptr::eq((&raw const state.memory).cast(), memory);
    phantom.cards.iter().find(same).map(|state| (phantom, state))
}

extern "C" fn card_name(memory: Handle) -> *const c_char {
    card_of_type(memory).map_or(c"CUDA".as_ptr(), |(_, state)| state.card.device.as_ptr())
}

extern "C" fn card_alignment(_: Handle) -> usize {
    ALIGNMENT
}

unsafe extern "C" fn card_size(memory: Handle, tensor: *const Tensor) -> usize {
    // SAFETY: the engine passes a live tensor.
    let tensor = unsafe { View::of(tensor) };
    let bytes = match (card_of_type(memory), tensor) {
        (Some((_, state)), Some(tensor)) => size(tensor, state.rules),
        (_, tensor) => tensor.map_or(0, View::bytes),
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A range of memory behind a buffer, and whose it is.
struct Range {
    start: Handle,
    size: usize,
    card: Option<&'static CardState>,
    number: u64,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Range {
    /// Maps a range; none where the address space, or a limit on it, has not got that much.
    fn map(size: usize, protection: c_int, card: Option<&'static CardState>) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(null_mut(), size.max(1), protection, flags, -1, 0) };
        (start != libc::MAP_FAILED).then(|| Self {
            start,
            size,
            card,
            number: NUMBER.fetch_add(1, Relaxed),
        })
    }

    fn bytes(&self) -> u64 {
        u64::try_from(self.size).unwrap_or(u64::MAX)
    }

    fn place(&self) -> &str {
        self.card
            .map_or("CUDA_Host", |state| state.card.device.to_str().unwrap_or("CUDA"))
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, with this size, and the buffer that showed it to the engine is gone.
        unsafe { libc::munmap(self.start, self.size.max(1)) };
    }
}

extern "C" fn card_allocate(memory: Handle, size: usize) -> *mut Buffer {
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

/// Whether a tensor lies in a buffer of a card of ours.
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

/// Copies between cards are the cards' own; others go through the host.
unsafe extern "C" fn copy_tensor(_: *mut Buffer, from: *const Tensor, _: *mut Tensor) -> bool {
    // SAFETY: the engine passes a live tensor.
    unsafe { is_on_card(from) }
}

extern "C" fn clear(_: *mut Buffer, _: u8) {}

extern "C" fn host_name(_: Handle) -> *const c_char {
    c"CUDA_Host".as_ptr()
}

extern "C" fn is_host(_: Handle) -> bool {
    true
}

/// The CPU's.
extern "C" fn host_alignment(_: Handle) -> usize {
    let Some(phantom) = phantom::get() else {
        return ALIGNMENT;
    };
    let functions = &phantom.engine.functions;
    // SAFETY: the engine's own functions, on its own buffer type.
    unsafe { (functions.ggml_backend_buft_get_alignment)((functions.ggml_backend_cpu_buffer_type)()) }
}

/// As CUDA does it: a buffer of the CPU's over our own memory, under our name.
extern "C" fn host_allocate(memory: Handle, size: usize) -> *mut Buffer {
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
    // SAFETY: null, or a new buffer that nobody else has yet.
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

/// The memory of the host's buffers, by its start: their context is the CPU's, which is the start.
static HOST: crate::lock::Lock<alloc::collections::BTreeMap<usize, Range>> =
    crate::lock::Lock::new(alloc::collections::BTreeMap::new());

// SAFETY: the range is only unmapped, by whoever takes it out of the map.
unsafe impl Send for Range {}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Type;
    use crate::made::{H200, tensor, view};

    fn size_of(kind: Type, ne: [i64; 4]) -> u64 {
        size(view(&tensor(kind, ne)), H200)
    }

    #[test]
    fn quantised_rows_end_in_whole_steps_of_512_values() {
        assert_eq!(size_of(Type::Q8_0, [4096, 10, 1, 1]), 4096 / 32 * 34 * 10);
        // gpt-oss: 2880 values are 192 short of the next step
        assert_eq!(
            size_of(Type::Mxfp4, [2880, 10, 1, 1]),
            2880 / 32 * 17 * 10 + 192 / 32 * 17
        );
        // Kimi-K2's cache of 576 values a cell: 476 bytes at the end of each
        assert_eq!(size_of(Type::Q8_0, [576, 1000, 1, 1]), 612 * 1000 + 476);
        assert_eq!(size_of(Type::F16, [576, 1000, 1, 1]), 2 * 576 * 1000);
    }

    #[test]
    fn absurd_shapes_make_absurd_sizes_and_no_panic() {
        assert_eq!(size_of(Type::F32, [0, 5, 1, 1]), 0);
        let mut absurd = tensor(Type::F32, [1, 1, 1, 1]);
        absurd.ne = [i64::MAX; 4];
        absurd.nb = [usize::MAX; 4];
        assert_eq!(size(view(&absurd), H200), u64::MAX);
        absurd.ne = [-1; 4];
        assert_eq!(size(view(&absurd), H200), 0);
        absurd.kind = c_int::MAX;
        absurd.ne = [7; 4];
        size(view(&absurd), H200);
    }
}
