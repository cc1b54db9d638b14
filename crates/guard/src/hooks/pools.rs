//! Replaces `cuMemAllocAsync` and the functions of its pools, to count and limit stream-ordered memory.
//!
//! A request is charged to the budget only if the pool must grow for it. During a stream capture the memory
//! belongs to the graph, so the calls pass unchanged.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::null_mut;

use crate::account::blocks::{BLOCKS, BlockKind, DeviceBlock};
use crate::account::claim::ClaimOutcome;
use crate::account::{Substitute, pools};
use crate::driver::{self, CuResult, CuStream, DevicePointer, MemoryPool, SUCCESS};
use crate::driver_guard::{current_card, forget_refusal};
use crate::hooks::hooks;
use crate::hooks::memory::bytes;
use crate::spill::vmm::Location;
use crate::state::{CardIndex, ledger};
use crate::{ladder, spill};

/// CU_STREAM_PER_THREAD.
const THREAD_STREAM: usize = 2;
/// First fields of `CUmemPoolProps`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct PoolProperties {
    kind: c_int,
    handles: c_int,
    location: Location,
}

hooks! {
    in CUDA;

    fn cuMemAllocAsync / cuMemAllocAsync_ptsz | hipMallocAsync = "cuMemAllocAsync" since 11020
        (pointer: *mut DevicePointer, size: usize, stream: CuStream) calls (real, per_thread)
    {
        let ask = &mut || real(pointer, size, stream);
        match current_card().filter(|_| !pointer.is_null() && !capturing(stream, per_thread)) {
            Some(index) => allocate(index, pool_of(index), stream, pointer, size, ask),
            None => ask(),
        }
    }

    fn cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz | hipMallocFromPoolAsync = "cuMemAllocFromPoolAsync" since 11020
        (pointer: *mut DevicePointer, size: usize, pool: MemoryPool, stream: CuStream) calls (real, per_thread)
    {
        let ask = &mut || real(pointer, size, pool, stream);
        let index = pools::card_of(pool).or_else(|| default_of(pool));
        match index.filter(|_| !pointer.is_null() && !capturing(stream, per_thread)) {
            Some(index) => allocate(index, pool, stream, pointer, size, ask),
            None => ask(),
        }
    }

    fn cuMemFreeAsync / cuMemFreeAsync_ptsz | hipFreeAsync = "cuMemFreeAsync" since 11020
        (pointer: DevicePointer, stream: CuStream) calls (real, per_thread)
    {
        if let Some(result) = spill::free_async(pointer, stream, per_thread) {
            return result;
        }
        if capturing(stream, per_thread) {
            return real(pointer, stream);
        }
        let gone = |block: DeviceBlock| block.gone(stream.addr());
        let result = BLOCKS.free(pointer, || real(pointer, stream), gone);
        ladder::answer();
        result
    }

    fn cuMemPoolCreate | hipMemPoolCreate = "cuMemPoolCreate" since 11020
        (pool: *mut MemoryPool, properties: *const PoolProperties) calls real
    {
        let result = real(pool, properties);
        if result == SUCCESS && let Some(index) = (*properties).location.index() {
            pools::meet(*pool, index);
        }
        result
    }

    fn cuMemPoolDestroy | hipMemPoolDestroy = "cuMemPoolDestroy" since 11020 (pool: MemoryPool) calls real {
        let index = pools::card_of(pool);
        let result = real(pool);
        if result == SUCCESS && index.is_some() {
            pools::forget(pool);
        }
        result
    }

    fn cuMemPoolTrimTo | hipMemPoolTrimTo = "cuMemPoolTrimTo" since 11020 (pool: MemoryPool, keep: usize) calls real {
        let result = real(pool, keep);
        if let Some(index) = pools::card_of(pool) {
            pools::refresh(index);
        }
        result
    }
}

/// Allocates from a pool of a card, through `ask`.
///
/// # Safety
/// After `ask` succeeds, `pointer` can be read.
unsafe fn allocate(
    index: CardIndex,
    pool: MemoryPool,
    stream: CuStream,
    pointer: *mut DevicePointer,
    size: usize,
    ask: &mut dyn FnMut() -> CuResult,
) -> CuResult {
    pools::meet(pool, index);
    // The pool serves a request from its idle bytes where it can; only growth takes memory of the card.
    let growth = bytes(size).saturating_sub(pools::idle(pool));
    let outcome = ladder::ask(index, growth, Substitute::Range(pointer, bytes(size)), ask);
    if outcome == ClaimOutcome::Given {
        // The pool's own figure replaces the estimate: it grows in steps of the driver's choice.
        ledger::give(index, growth);
        pools::refresh(index);
        // SAFETY: the driver succeeded, so it has written the address.
        let pointer = unsafe { *pointer };
        BLOCKS.insert(pointer, DeviceBlock::new(index, bytes(size), BlockKind::Pooled, stream.addr()));
    }
    outcome.code()
}

/// The pool that `cuMemAllocAsync` takes from.
fn pool_of(index: CardIndex) -> MemoryPool {
    let mut pool = null_mut();
    // SAFETY: the place is ours.
    unsafe { driver::cuDeviceGetMemPool(&raw mut pool, index.device()) };
    pool
}

/// The card whose default pool this is.
fn default_of(pool: MemoryPool) -> Option<CardIndex> {
    CardIndex::all().find(|index| {
        let mut default = null_mut();
        // SAFETY: the place is ours.
        unsafe { driver::cuDeviceGetDefaultMemPool(&raw mut default, index.device()) };
        default == pool
    })
}

/// True if calls in this stream become nodes of a graph, or if the driver refuses the question. The legacy
/// stream must not be queried while another stream captures in the global mode.
fn capturing(stream: CuStream, per_thread: bool) -> bool {
    const NONE: c_uint = 0;
    let stream = if per_thread && stream.is_null() {
        core::ptr::without_provenance_mut::<c_void>(THREAD_STREAM)
    } else {
        stream
    };
    let mut status = NONE;
    // SAFETY: the program's own stream, and a place of ours.
    let result = unsafe { driver::cuStreamIsCapturing(stream, &raw mut status) };
    if result != SUCCESS {
        forget_refusal();
    }
    result != SUCCESS || status != NONE
}
