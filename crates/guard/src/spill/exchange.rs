//! Moves used parts of a growing KV cache to the card, and weights to host memory in exchange. It reverses
//! this when conversations end.
//!
//! A token reads a weight once, and a used position about five times. So weights in host memory cost less
//! than used positions there.
//!
//! DECISION: granules change their places after a wait of the program for its card, when the context is idle,
//! and only while one thread makes the program's waits and graph launches. A launch by another thread in
//! between could meet an address without memory. llama-server computes on one thread; a program with more
//! keeps its placement.
//!
//! DECISION: guard sees neither tokens nor kernels. How deep conversations are is written to the page by
//! whoever can ask the engine (`plimsoll run`, from llama-server's `/slots`). Without a report nothing moves.

mod copies;
mod frames;
mod steps;
mod swap;

use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use plimsoll_nostd::lock::Lock;
use plimsoll_pool::exchange::{CacheParts, Residence};
use plimsoll_wire::cache::CacheLayout;
use plimsoll_wire::page::DEPTHS;

use self::copies::CopyStreams;
use self::frames::Frames;
use self::steps::Exchange;
use crate::clock;
use crate::driver_guard::{self, RelaxedCapture};
use crate::say::say;
use crate::state::ranges::{self, SpillPlace, SpillRange};
use crate::state::{CardIndex, page};

/// Pairs that are copied at once, and granules of the card that an exchange takes for itself.
const SPARES: usize = 4;

static EXCHANGES: Lock<Vec<Exchange>> = Lock::new(Vec::new());
/// True while there are any, so that a wait without them costs one load.
static ARMED: AtomicBool = AtomicBool::new(false);
/// Threads that have the list in hand.
static BUSY: AtomicU32 = AtomicU32::new(0);
/// The number of the report whose depths everything is arranged for.
static SETTLED: AtomicU32 = AtomicU32::new(0);
/// Time before which memory is not exchanged again.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// The thread that uses the card; 0 before its first call.
static USER: AtomicUsize = AtomicUsize::new(0);

/// Bytes of the card that an exchange takes for itself.
pub(super) const fn own_bytes(granule: u64) -> u64 {
    granule * SPARES as u64
}

/// The weights on the card that a cache of this layout can change places with.
pub(super) fn partner(index: CardIndex, layout: &CacheLayout) -> Option<u64> {
    let context = driver_guard::context();
    let fits = usize::try_from(layout.streams()).is_ok_and(|streams| streams <= DEPTHS);
    let is_partner =
        |range: &SpillRange| range.is_weights && range.device == index.device() && range.context == context;
    let found = ranges::collect(|range| is_partner(range).then_some(range.base));
    found
        .first()
        .copied()
        .filter(|weights| fits && !EXCHANGES.hold().iter().any(|one| one.weights == *weights))
}

/// Prepares the exchange of a new cache with the weights; without the memory for it the placement stays.
pub(super) fn arm(
    index: CardIndex,
    cache: &SpillRange,
    weights: u64,
    layout: &CacheLayout,
    place: SpillPlace,
) {
    let granule = cache.pieces.first().copied().unwrap_or(0);
    let parts = CacheParts::new(layout, granule).filter(|parts| parts.granules() == cache.residence.len());
    let of_weights = ranges::find(weights, |range| range.residence.clone());
    let (Some(parts), Some(of_weights)) = (parts, of_weights) else { return };
    let frames = Frames::make(index, granule, place, parts.granules() + of_weights.len());
    let (Some(frames), Some(streams)) = (frames, CopyStreams::new()) else { return };
    say_cost(index, layout, streams.bus_time(&frames), granule);
    EXCHANGES.hold().push(Exchange {
        context: cache.context,
        granule,
        cache: cache.base,
        weights,
        parts,
        residence: Residence { cache: cache.residence.clone(), weights: of_weights },
        frames,
        streams,
        works: true,
    });
    // The thread that allocates need not be the one that computes.
    USER.store(0, Relaxed);
    SETTLED.store(0, Relaxed);
    ARMED.store(true, Release);
}

/// Reports what positions beyond the card's cost, by the time of this machine's bus.
fn say_cost(index: CardIndex, layout: &CacheLayout, bus_time: Option<u64>, granule: u64) {
    const TOKENS: u64 = 1000;
    let Some(time) = bus_time.filter(|time| *time > 0) else { return };
    let per_second = (granule >> 20).saturating_mul(1_000_000_000) / time;
    page().bus_rate.store(u32::try_from(per_second).unwrap_or(u32::MAX), Relaxed);
    let bytes = layout.position_bytes().saturating_mul(TOKENS);
    let tenths = bytes.saturating_mul(time) / granule.max(1) / 100_000;
    say!(
        "card {}: if the server reports the length of its conversations, guard moves weights to host \
            memory to make room for more KV cache: each {TOKENS} further positions delay each token by \
            {}.{} ms",
        index.number(),
        tenths / 10,
        tenths % 10,
    );
}

/// Notes the thread that uses the card; with a second one, nothing is exchanged any more.
#[inline]
pub(crate) fn note_thread() {
    if ARMED.load(Relaxed) {
        is_alone();
    }
}

fn is_alone() -> bool {
    // SAFETY: takes nothing. An address on every platform with glibc.
    let me = usize::try_from(unsafe { libc::pthread_self() }).unwrap_or(usize::MAX);
    match USER.compare_exchange(0, me, Relaxed, Relaxed) {
        Ok(_) => true,
        Err(user) if user == me => true,
        Err(_) => {
            if ARMED.swap(false, Relaxed) {
                say!("several threads use the card, so guard no longer swaps weights for KV cache on it");
            }
            false
        }
    }
}

/// Exchanges what the last report of depths asks for, as far as there is time. For a moment at which the
/// program has waited for its card.
#[inline]
pub(crate) fn at_safe_point() {
    if ARMED.load(Relaxed) && is_alone() {
        look();
    }
}

#[cold]
fn look() {
    page().waits.fetch_add(1, Relaxed);
    let reports = page().depth_reports.load(Acquire);
    if reports == SETTLED.load(Relaxed) || clock::now() < NEXT.load(Relaxed) {
        return;
    }
    let depths: [u32; DEPTHS] = core::array::from_fn(|stream| page().depths[stream].load(Relaxed));
    let mut settled = true;
    in_hand(|exchanges| {
        for exchange in exchanges.iter_mut().filter(|exchange| exchange.works) {
            settled &= exchange.step(&depths);
        }
    });
    if settled {
        SETTLED.store(reports, Relaxed);
    }
}

/// Calls `act` with the list, out of its lock: no lock is held across a call into the driver.
fn in_hand(act: impl FnOnce(&mut Vec<Exchange>)) {
    BUSY.fetch_add(1, Acquire);
    let mut exchanges = core::mem::take(&mut *EXCHANGES.hold());
    act(&mut exchanges);
    EXCHANGES.hold().append(&mut exchanges);
    BUSY.fetch_sub(1, Release);
}

/// Ends the exchange of a range that is about to be freed.
pub(super) fn stop(base: u64) {
    if ranges::none() {
        return;
    }
    let over = remove(|exchange| exchange.cache == base || exchange.weights == base);
    if !over.is_empty() {
        let _relaxed = RelaxedCapture::begin();
        drop(over);
    }
}

/// Ends the exchanges of a destroyed context, with which their streams are gone.
pub(super) fn forget(context: usize) {
    for exchange in remove(|exchange| exchange.context == context) {
        exchange.streams.forget();
    }
}

fn remove(is_over: impl Fn(&Exchange) -> bool) -> Vec<Exchange> {
    // A thread that frees memory which another one is exchanging waits for it: PAUSE at most.
    while BUSY.load(Acquire) > 0 {
        // SAFETY: takes nothing.
        unsafe { libc::sched_yield() };
    }
    EXCHANGES.hold().extract_if(.., |exchange| is_over(exchange)).collect()
}
