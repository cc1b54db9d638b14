//! Replaces the functions that create CUDA arrays and mipmapped arrays, to count their memory.
//!
//! The driver does not report the size of most arrays. So guard creates a deferred array (without memory) of
//! the same description, reads its size and destroys it.

use core::ffi::{c_int, c_uint};
use core::ptr::null_mut;

use plimsoll_wire::page::UNLIMITED;

use crate::account::Substitute;
use crate::account::blocks::{ARRAYS, BlockKind, DeviceBlock};
use crate::account::claim::ClaimOutcome;
use crate::driver::{self, CuArray, CuResult, SUCCESS};
use crate::driver_guard::current_card;
use crate::hooks::hooks;
use crate::hooks::memory::bytes;
use crate::ladder;
use crate::state::{CardIndex, ledger};

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayDescriptor {
    width: usize,
    height: usize,
    format: c_int,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array3DDescriptor {
    width: usize,
    height: usize,
    depth: usize,
    format: c_int,
    channels: c_uint,
    flags: c_uint,
}

const SPARSE: c_uint = 0x40;
const DEFERRED: c_uint = 0x80;

hooks! {
    in CUDA;

    fn cuArrayCreate_v2 = "cuArrayCreate" since 3020 (array: *mut CuArray, description: *const ArrayDescriptor) calls real {
        let solid = description.as_ref().map(|flat| Array3DDescriptor::from(*flat));
        create(array, solid, 0, &mut || real(array, description))
    }

    fn cuArray3DCreate_v2 = "cuArray3DCreate" since 3020 (array: *mut CuArray, description: *const Array3DDescriptor) calls real {
        create(array, description.as_ref().copied(), 0, &mut || real(array, description))
    }

    fn cuMipmappedArrayCreate = "cuMipmappedArrayCreate" since 5000
        (array: *mut CuArray, description: *const Array3DDescriptor, levels: c_uint) calls real
    {
        create(array, description.as_ref().copied(), levels.max(1), &mut || real(array, description, levels))
    }

    fn cuArrayDestroy = "cuArrayDestroy" since 2000 (array: CuArray) calls real {
        destroy(array, || real(array))
    }

    fn cuMipmappedArrayDestroy = "cuMipmappedArrayDestroy" since 5000 (array: CuArray) calls real {
        destroy(array, || real(array))
    }
}

impl From<ArrayDescriptor> for Array3DDescriptor {
    fn from(flat: ArrayDescriptor) -> Self {
        let ArrayDescriptor { width, height, format, channels } = flat;
        Self { width, height, depth: 0, format, channels, flags: 0 }
    }
}

impl Array3DDescriptor {
    /// Bytes of the elements, all levels together; `levels` is 0 for an array that is not mipmapped.
    fn elements(&self, levels: c_uint) -> u64 {
        let element = element_size(self.format).saturating_mul(u64::from(self.channels));
        let extent = |size: usize, level: c_uint| bytes(size).checked_shr(level).unwrap_or(0).max(1);
        (0..levels.max(1)).fold(0, |sum: u64, level| {
            let volume = [self.width, self.height, self.depth]
                .iter()
                .fold(element, |volume, size| volume.saturating_mul(extent(*size, level)));
            sum.saturating_add(volume)
        })
    }
}

/// Bytes of one channel; an unknown format counts as four.
fn element_size(format: c_int) -> u64 {
    match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        _ => 4,
    }
}

/// # Safety
/// After `ask` succeeds, `array` can be read.
unsafe fn create(
    array: *mut CuArray,
    description: Option<Array3DDescriptor>,
    levels: c_uint,
    ask: &mut dyn FnMut() -> CuResult,
) -> CuResult {
    let takes = |solid: &Array3DDescriptor| solid.flags & (SPARSE | DEFERRED) == 0;
    let (Some(solid), Some(index)) = (description.filter(takes).filter(|_| !array.is_null()), current_card())
    else {
        return ask();
    };
    // The query makes and destroys an array, which is not worth it for a figure without consequence.
    let limited = ledger::budget(index) != UNLIMITED;
    let exactly = limited.then(|| required(index, solid, levels)).flatten();
    let size = exactly.unwrap_or_else(|| solid.elements(levels));
    let outcome = ladder::ask(index, size, Substitute::Nothing, ask);
    if outcome == ClaimOutcome::Given {
        // SAFETY: the driver succeeded, so it has written the handle.
        let handle = unsafe { *array };
        ARRAYS.insert(bytes(handle.addr()), DeviceBlock::new(index, size, BlockKind::Linear, 0));
    }
    outcome.code()
}

/// Bytes that the driver would take for such an array.
fn required(index: CardIndex, solid: Array3DDescriptor, levels: c_uint) -> Option<u64> {
    let deferred = Array3DDescriptor { flags: solid.flags | DEFERRED, ..solid };
    let (mut array, mut requirements) = (null_mut(), [0_u64; 4]);
    // SAFETY: the description is whole and the places are ours; the array is ours until it is destroyed.
    let result = unsafe {
        if levels == 0 {
            if real::cuArray3DCreate_v2(&raw mut array, &raw const deferred) != SUCCESS {
                return None;
            }
            let result = driver::cuArrayGetMemoryRequirements(&raw mut requirements, array, index.device());
            real::cuArrayDestroy(array);
            result
        } else {
            if real::cuMipmappedArrayCreate(&raw mut array, &raw const deferred, levels) != SUCCESS {
                return None;
            }
            let result =
                driver::cuMipmappedArrayGetMemoryRequirements(&raw mut requirements, array, index.device());
            real::cuMipmappedArrayDestroy(array);
            result
        }
    };
    (result == SUCCESS).then_some(requirements[0])
}

fn destroy(array: CuArray, real: impl FnOnce() -> CuResult) -> CuResult {
    ARRAYS.free(bytes(array.addr()), real, |block| block.gone(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_all_levels_are_summed() {
        let solid =
            Array3DDescriptor { width: 64, height: 32, depth: 0, format: 0x20, channels: 4, flags: 0 };
        assert_eq!(solid.elements(0), 64 * 32 * 16);
        assert_eq!(solid.elements(3), (64 * 32 + 32 * 16 + 16 * 8) * 16);
        assert_eq!(Array3DDescriptor { width: usize::MAX, height: 9, ..solid }.elements(0), u64::MAX);
    }
}
