//! Giving ranges back, never under work that still uses them.
//!
//! `cuMemFree` waits for the card before it frees, and programs rely on it; `cuMemUnmap` does not, so guard waits in its stead.
//! Waiting is forbidden while any stream of the process is capturing (it would spoil the capture), and a stream-ordered free must
//! not wait at all. Such ranges stand in a list, with the event to wait for, until somebody sweeps: every later free, every climb
//! of the ladder, and the end of the last capture.

use alloc::vec::Vec;
use core::ffi::{c_uint, c_void};
use core::ptr::{null_mut, with_exposed_provenance_mut};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Release};

use super::cascade::Place;
use super::quiet::{self, Relaxed};
use super::ranges::{self, Range};
use super::{budget, make, whole};
use crate::account::CardIndex;
use crate::driver::{CuResult, DevicePointer, SUCCESS, Stream};
use crate::lock::Lock;
use crate::trace::{self, Event, Kind};

mod real {
    use super::*;

    crate::driver::real! {
        in CUDA;
        cuEventCreate(event: *mut *mut c_void, flags: c_uint);
        cuEventRecord(event: *mut c_void, stream: Stream);
        cuEventRecord_ptsz(event: *mut c_void, stream: Stream);
        cuEventQuery(event: *mut c_void);
        cuEventSynchronize(event: *mut c_void);
        cuEventDestroy_v2(event: *mut c_void);
    }
}

const DISABLE_TIMING: c_uint = 2;

/// What has to happen before a range may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// No stream captures, and the card has been waited for.
    Idle,
    /// This event, as a number, has come.
    Event(usize),
}

static WAITING: Lock<Vec<(Range, Until)>> = Lock::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn put_off(range: Range, until: Until) {
    let mut waiting = WAITING.hold();
    waiting.push((range, until));
    COUNT.store(waiting.len(), Release);
}

/// Frees the range that starts at this address; None if it is none of ours.
pub(crate) fn free(pointer: DevicePointer) -> Option<CuResult> {
    let range = ranges::take(pointer)?;
    if quiet::capturing() {
        put_off(range, Until::Idle);
        return Some(SUCCESS);
    }
    let _relaxed = Relaxed::begin();
    sweep();
    Some(after_all_work(range))
}

/// Frees a range when the card has done all that it was given, or later, if that may not be waited for now.
fn after_all_work(range: Range) -> CuResult {
    match quiet::synchronise(range.context) {
        Some(code) => {
            give_back(range);
            code
        }
        None => {
            put_off(range, Until::Idle);
            SUCCESS
        }
    }
}

/// Frees the range that starts at this address once `stream` has done what it was given; None if it is none of ours.
pub(crate) fn free_async(pointer: DevicePointer, stream: Stream, per_thread: bool) -> Option<CuResult> {
    let range = ranges::take(pointer)?;
    if quiet::capturing() {
        put_off(range, Until::Idle);
        return Some(SUCCESS);
    }
    let _relaxed = Relaxed::begin();
    sweep();
    let Some(event) = record(stream, per_thread) else {
        return Some(after_all_work(range));
    };
    put_off(range, Until::Event(event));
    Some(SUCCESS)
}

fn record(stream: Stream, per_thread: bool) -> Option<usize> {
    let mut event = null_mut();
    // SAFETY: the place is ours; the stream is the program's, for the call that it makes.
    unsafe {
        if real::cuEventCreate(&raw mut event, DISABLE_TIMING) != SUCCESS {
            return None;
        }
        let record = if per_thread {
            real::cuEventRecord_ptsz
        } else {
            real::cuEventRecord
        };
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

/// Gives back what may go by now; whether that was anything.
pub(crate) fn sweep() -> bool {
    // SAFETY: an event of ours, not destroyed while its entry is in the list or with us.
    settle(|number| unsafe { real::cuEventQuery(event(number)) } != NOT_READY)
}

/// The same, and waits for the work that holds the rest up; whether anything was given back.
pub(crate) fn finish() -> bool {
    settle(|number| {
        // SAFETY: as in `sweep`. An error is the program's, and the work is over with it too.
        unsafe { real::cuEventSynchronize(event(number)) };
        true
    })
}

const NOT_READY: CuResult = 600;

fn settle(mut done: impl FnMut(usize) -> bool) -> bool {
    if COUNT.load(Acquire) == 0 || quiet::capturing() {
        return false;
    }
    // Out of the list while the driver is asked: no lock is held across a call.
    let waiting = core::mem::take(&mut *WAITING.hold());
    let _relaxed = Relaxed::begin();
    let mut kept = Vec::new();
    let mut any = false;
    for (range, until) in waiting {
        if let Until::Event(number) = until {
            if !done(number) {
                kept.push((range, until));
                continue;
            }
            // SAFETY: ours, and in no list any more.
            unsafe { real::cuEventDestroy_v2(event(number)) };
        } else if quiet::synchronise(range.context).is_none() {
            kept.push((range, until));
            continue;
        }
        give_back(range);
        any = true;
    }
    let mut waiting = WAITING.hold();
    waiting.append(&mut kept);
    COUNT.store(waiting.len(), Release);
    any
}

/// A context is gone, its work with it, and what was allocated in it.
pub(crate) fn forget(context: usize) {
    let _relaxed = Relaxed::begin();
    let gone = ranges::collect(|range| (range.context == context).then_some(range.base));
    for range in gone.into_iter().filter_map(ranges::take) {
        give_back(range);
    }
}

/// Frees a range that nothing uses any more.
fn give_back(range: Range) {
    let Some(card) = CardIndex::of(range.device) else {
        return;
    };
    match range.place {
        Some(Place::Managed) => {
            whole::free_managed(card, range.base, range.asked);
            budget::give(card, range.size);
        }
        Some(Place::Pinned) => {
            whole::free_pinned(range.base);
            budget::give(card, range.size);
        }
        _ => make::unmake(card, range.base, range.size, range.head, &range.pieces),
    }
    let event = Event {
        id: range.id,
        size: range.asked,
        ..Event::on(card)
    };
    trace::emit(Kind::Free, event);
}
