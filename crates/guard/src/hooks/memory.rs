//! Linear memory: `cuMemAlloc` and its kin.

use crate::account::blocks::{BLOCKS, Block, Kind};
use crate::account::request::{self, Outcome};
use crate::account::{CardIndex, card, current};
use crate::driver::{CuResult, DevicePointer, SUCCESS};
use crate::hooks::hooks;
use crate::spill;
use crate::trace::{self, Event};

hooks! {
    in CUDA;

    fn cuMemAlloc_v2 = "cuMemAlloc" since 3020 (pointer: *mut DevicePointer, size: usize) calls real {
        allocate(pointer, size, Some(pointer), &mut || real(pointer, size))
    }

    fn cuMemFree_v2 = "cuMemFree" since 3020 (pointer: DevicePointer) calls real {
        free(pointer, || real(pointer))
    }
}

/// # Safety
/// After `ask` succeeds, `pointer` can be read.
unsafe fn allocate(
    pointer: *mut DevicePointer,
    size: usize,
    place: Option<*mut DevicePointer>,
    ask: &mut dyn FnMut() -> CuResult,
) -> CuResult {
    let Some(index) = current().filter(|_| !pointer.is_null()) else {
        return ask();
    };
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    let outcome = request::ask(index, size, place, ask);
    if outcome == Outcome::Given {
        // SAFETY: the driver succeeded, so it has written the address.
        given(index, unsafe { *pointer }, size, Kind::Linear);
    }
    outcome.code()
}

fn given(index: CardIndex, pointer: DevicePointer, size: u64, kind: Kind) {
    let id = trace::number();
    BLOCKS.insert(
        pointer,
        Block {
            card: index,
            size,
            kind,
            id,
        },
    );
    trace::emit(
        trace::Kind::Alloc,
        Event {
            id,
            size,
            ..Event::on(index)
        },
    );
}

fn free(pointer: DevicePointer, real: impl FnOnce() -> CuResult) -> CuResult {
    if let Some(result) = spill::free(pointer) {
        return result;
    }
    let Some(block) = BLOCKS.remove(pointer) else {
        return real();
    };
    let result = real();
    if result == SUCCESS {
        card(block.card).give(block.size);
        let event = Event {
            id: block.id,
            size: block.size,
            ..Event::on(block.card)
        };
        trace::emit(trace::Kind::Free, event);
    } else {
        BLOCKS.insert(pointer, block);
    }
    result
}
