//! Buffers: address ranges for a card, real memory for pinned host buffers.
//!
//! DECISION: a card's buffer is a range of addresses without memory behind it. Every tensor thus has its own
//! address, and a stray access faults at once. No allocation is refused for lack of card memory: the caller
//! does that arithmetic, and an engine that fails half-way reports only half of its buffers. Reads from a
//! card return zeros. Source: `ggml-cuda.cu:ggml_backend_cuda_buffer_type_get_alloc_size,
//! ggml_backend_cuda_buffer_interface, ggml_backend_cuda_host_buffer_type @ b10605`; `MATRIX_ROW_PADDING` of
//! `common.cuh`.

use core::ptr::{null, null_mut};

use plimsoll_pool::demand::Rules;

use crate::abi::{BufferType, Device, Function, Handle};
use crate::attention::Attention;
use crate::kinds::Op;
use crate::phantom::{self, CardState, Phantom};
use crate::probe::Version;
use crate::tensor::{View, row_size};

mod card;
mod host;
mod range;

use card::{card_alignment, card_allocate, card_name, card_size};
pub(crate) use card::{get_tensor, get_tensor_2d, is_on_card};
use host::{host_alignment, host_allocate, host_name, is_host};

const ALIGNMENT: usize = 128;
/// Kernels read quantised rows in steps of this many values.
const ROW_PADDING: u64 = 512;

/// Bytes of a tensor in a card's buffer.
pub(crate) fn size(tensor: View<'_>, rules: Rules) -> u64 {
    let attention = Some(tensor)
        .filter(|tensor| tensor.op() == Op::FlashAttnExt)
        .and_then(Attention::of);
    let size = attention.map_or_else(|| tensor.bytes(), |attention| attention.size(rules));
    let layout = tensor.layout();
    // Only the last row is padded: a kernel that reads past any other row still reads the tensor.
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
            // ggml takes a buffer type without `is_host` for device memory.
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
            // Without `get_alloc_size`, ggml uses `ggml_nbytes`, as host buffers need no padding.
            null(),
            is_host as Function,
        ],
        device,
        null_mut(),
    )
}

/// Name, allocation, alignment, size of a tensor, whether it is the host's; in the slots where the version
/// has them.
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

#[cfg(test)]
mod tests {
    use core::ffi::c_int;

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
