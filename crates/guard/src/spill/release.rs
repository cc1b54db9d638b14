//! Frees spilled allocations (device memory followed by host memory) once the GPU work that uses them has
//! finished.
//!
//! `cuMemUnmap` does not wait for the card, so guard waits. During a stream capture waiting is forbidden; the
//! range is then released at a later call.

use alloc::vec::Vec;
use core::ffi::{c_uint, c_void};
use core::ptr::{null_mut, with_exposed_provenance_mut};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Release};

use plimsoll_nostd::lock::Lock;

use super::{exchange, make, whole};
use crate::account::{caches, spilled};
use crate::driver::{CuResult, CuStream, DevicePointer, SUCCESS};
use crate::driver_guard::{self, RelaxedCapture};
use crate::state::CardIndex;
use crate::state::captures::capturing;
use crate::state::ranges::{self, SpillPlace, SpillRange};
use crate::trace::{TraceEvent, TraceKind};

mod real {
    use super::*;

    crate::driver::real! {
        by INTERFACE;
        cuEventCreate = hipEventCreateWithFlags(event: *mut *mut c_void, flags: c_uint);
        cuEventRecord = hipEventRecord(event: *mut c_void, stream: CuStream);
        cuEventRecord_ptsz(event: *mut c_void, stream: CuStream);
        cuEventQuery = hipEventQuery(event: *mut c_void);
        cuEventSynchronize = hipEventSynchronize(event: *mut c_void);
        cuEventDestroy_v2 = hipEventDestroy(event: *mut c_void);
    }
}

const DISABLE_TIMING: c_uint = 2;

/// Condition for the release of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReleaseCondition {
    /// No stream captures, and the card has been waited for.
    Idle,
    /// This event has completed. The driver destroys it with the context that it was created in.
    Event { event: usize, context: usize },
}

/// A range that could not be released yet.
#[derive(Debug)]
struct Pending {
    range: SpillRange,
    until: ReleaseCondition,
}

impl Pending {
    /// True if nothing has to be waited for once this context is destroyed.
    fn ends_with(&self, context: usize) -> bool {
        match self.until {
            ReleaseCondition::Idle => self.range.context == context,
            ReleaseCondition::Event { context: of_event, .. } => of_event == context,
        }
    }
}

#[derive(Debug)]
struct PendingList {
    entries: Vec<Pending>,
    /// Threads that have entries in hand.
    sweeping: u32,
    /// Contexts that were destroyed meanwhile, in order: their events may be in those hands.
    destroyed: Vec<usize>,
}

static PENDING: Lock<PendingList> =
    Lock::new(PendingList { entries: Vec::new(), sweeping: 0, destroyed: Vec::new() });
/// Length of the list, so that a free without pending ranges takes no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn put_off(range: SpillRange, until: ReleaseCondition) {
    let mut pending = PENDING.hold();
    pending.entries.push(Pending { range, until });
    COUNT.store(pending.entries.len(), Release);
}

/// Frees the range that starts at this address; None if guard made no range there.
pub(crate) fn free(pointer: DevicePointer) -> Option<CuResult> {
    exchange::stop(pointer);
    let range = ranges::take(pointer)?;
    if capturing() {
        put_off(range, ReleaseCondition::Idle);
        return Some(SUCCESS);
    }
    let _relaxed = RelaxedCapture::begin();
    sweep();
    Some(after_all_work(range))
}

/// Frees a range when the card has finished all submitted work, or later, if that may not be waited for now.
fn after_all_work(range: SpillRange) -> CuResult {
    match driver_guard::synchronise(range.context) {
        Some(code) => {
            give_back(range);
            code
        }
        None => {
            put_off(range, ReleaseCondition::Idle);
            SUCCESS
        }
    }
}

/// Frees the range that starts at this address once `stream` has finished its submitted work; None if guard
/// made no range there.
pub(crate) fn free_async(pointer: DevicePointer, stream: CuStream, per_thread: bool) -> Option<CuResult> {
    exchange::stop(pointer);
    let range = ranges::take(pointer)?;
    if capturing() {
        put_off(range, ReleaseCondition::Idle);
        return Some(SUCCESS);
    }
    let _relaxed = RelaxedCapture::begin();
    sweep();
    let Some(event) = record(stream, per_thread) else {
        return Some(after_all_work(range));
    };
    // An event belongs to the context that is current now, which need not be the one of the memory.
    let context = driver_guard::context();
    put_off(range, ReleaseCondition::Event { event, context });
    Some(SUCCESS)
}

fn record(stream: CuStream, per_thread: bool) -> Option<usize> {
    let mut event = null_mut();
    // SAFETY: the place is ours; the stream is the program's, for the call that it makes.
    unsafe {
        if real::cuEventCreate(&raw mut event, DISABLE_TIMING) != SUCCESS {
            return None;
        }
        // Handle 0 is the thread's own stream for a program that was built for per-thread default streams.
        let record = if per_thread { real::cuEventRecord_ptsz } else { real::cuEventRecord };
        if record(event, stream) != SUCCESS {
            real::cuEventDestroy_v2(event);
            return None;
        }
    }
    Some(event.expose_provenance())
}

fn event(number: usize) -> *mut c_void {
    with_exposed_provenance_mut(number)
}

/// Releases the ranges whose work is done; true if there were any.
pub(crate) fn sweep() -> bool {
    // SAFETY: an event of ours, not destroyed while its entry is in the list or with us.
    settle(|number| unsafe { real::cuEventQuery(event(number)) } != NOT_READY)
}

/// Waits for the work that holds ranges up and releases them; true if there were any.
pub(crate) fn finish() -> bool {
    settle(|number| {
        // SAFETY: as in `sweep`. An error is the program's, and the work is over with it too.
        unsafe { real::cuEventSynchronize(event(number)) };
        true
    })
}

/// CUDA_ERROR_NOT_READY.
const NOT_READY: CuResult = 600;

fn settle(mut done: impl FnMut(usize) -> bool) -> bool {
    if COUNT.load(Acquire) == 0 || capturing() {
        return false;
    }
    // Out of the list while the driver is asked: no lock is held across a call.
    let (entries, destroyed_before) = {
        let mut pending = PENDING.hold();
        pending.sweeping += 1;
        (core::mem::take(&mut pending.entries), pending.destroyed.len())
    };
    let _relaxed = RelaxedCapture::begin();
    let mut kept = Vec::new();
    let mut any = false;
    for entry in entries {
        let over = match entry.until {
            ReleaseCondition::Event { event: number, .. } => {
                let over = done(number);
                if over {
                    // SAFETY: ours, and in no list any more.
                    unsafe { real::cuEventDestroy_v2(event(number)) };
                }
                over
            }
            ReleaseCondition::Idle => driver_guard::synchronise(entry.range.context).is_some(),
        };
        if over {
            give_back(entry.range);
            any = true;
        } else {
            kept.push(entry);
        }
    }
    for entry in keep(kept, destroyed_before) {
        give_back(entry.range);
        any = true;
    }
    any
}

/// Puts entries back into the list, without those whose context was destroyed since: they are returned.
fn keep(kept: Vec<Pending>, destroyed_before: usize) -> Vec<Pending> {
    let mut pending = PENDING.hold();
    let destroyed = pending.destroyed.get(destroyed_before..).unwrap_or(&[]);
    let (over, mut kept): (Vec<_>, Vec<_>) =
        kept.into_iter().partition(|entry| destroyed.iter().any(|context| entry.ends_with(*context)));
    pending.entries.append(&mut kept);
    pending.sweeping -= 1;
    if pending.sweeping == 0 {
        pending.destroyed.clear();
    }
    COUNT.store(pending.entries.len(), Release);
    over
}

/// Releases everything that a destroyed context leaves behind: its work has ended, and its memory and events
/// are gone.
pub(crate) fn forget(context: usize) {
    let _relaxed = RelaxedCapture::begin();
    let over = {
        let mut pending = PENDING.hold();
        // An event of this context must not be queried again: its handle may be dangling, or mean a new
        // event.
        let over: Vec<Pending> = pending.entries.extract_if(.., |entry| entry.ends_with(context)).collect();
        if pending.sweeping > 0 {
            pending.destroyed.push(context);
        }
        COUNT.store(pending.entries.len(), Release);
        over
    };
    over.into_iter().for_each(|entry| give_back(entry.range));
    exchange::forget(context);
    let gone = ranges::collect(|range| (range.context == context).then_some(range.base));
    for range in gone.into_iter().filter_map(ranges::take) {
        give_back(range);
    }
}

/// Frees a range that nothing uses any more.
fn give_back(range: SpillRange) {
    let Some(card) = CardIndex::of(range.device) else {
        return;
    };
    if let Some(cache) = range.cache {
        caches::forget(cache);
    }
    match range.place {
        Some(SpillPlace::Managed) => {
            whole::free_managed(card, range.base, range.requested);
            spilled::give(card, range.size);
        }
        Some(SpillPlace::Pinned) => {
            whole::free_pinned(range.base);
            spilled::give(card, range.size);
        }
        _ => make::unmake(card, range.base, range.size, range.on_card, &range.pieces),
    }
    TraceEvent::on(card).of(range.id, range.requested).emit(TraceKind::Free);
}
