//! Keeps guard's own memory pools, one for each ggml pool object that guard has replaced.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use plimsoll_pool::{Address, Block, CapturedGraph, Ours, OursOptions, Policy, ServedPolicy, Stream, Trim};

use plimsoll_nostd::lock::Lock;

use super::backing::Backing;
use super::mapped_objects::{long, wide};
use super::trim_interval::TrimInterval;
use crate::driver::{DeviceOrdinal, DevicePointer};
use crate::ladder::reuse;
use crate::state::{self, CardIndex, captures};
use crate::trace::{self, TraceEvent, TraceKind};

/// Objects that can be served at once; further ones keep their own methods.
const PLACES: usize = 64;

/// Alignment of `cudaMalloc`.
const ALIGNMENT: usize = 256;

/// The one stream that a pool object is for, whichever that is.
const STREAM: Stream = Stream(0);

/// Entry of the pool table.
#[derive(Debug)]
pub(super) struct PoolEntry {
    /// The object that it serves; 0 for a free entry.
    this: AtomicUsize,
    /// Every block ever handed out lies between these.
    low: AtomicU64,
    high: AtomicU64,
    served: Lock<Option<ServedPool>>,
}

/// A pool policy with its memory.
#[derive(Debug)]
pub(crate) struct ServedPool {
    policy: Ours,
    backing: Backing,
    number: u8,
    interval: TrimInterval,
    /// Numbers of the blocks in the trace; empty without a trace.
    numbers: BTreeMap<Address, u64>,
}

/// State of a pool at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolEnd {
    /// All blocks were given back.
    Even,
    /// Some blocks were never given back to guard.
    Owing,
}

/// Pools whose objects have ended and whose memory could not be released yet.
static LEFT: Lock<Vec<ServedPool>> = Lock::new(Vec::new());

// DECISION: the table has a fixed size and is searched from its start. Entries are reused and never freed, so
// no reference becomes stale.
//
// DECISION: each pool has its own lock, which is held during driver calls and for up to `wait=SECONDS`. ggml
// calls a pool object from one thread at a time, so no other `alloc` waits. No deadlock is possible: a thread
// takes a pool's lock while it holds no other, and the trim of idle memory skips a locked pool.
static POOLS: [PoolEntry; PLACES] = [const { PoolEntry::none() }; PLACES];
/// Entries from the start that have ever been used; a process without such a pool searches none.
static USED: AtomicUsize = AtomicUsize::new(0);

fn used() -> impl Iterator<Item = &'static PoolEntry> {
    POOLS.iter().take(USED.load(Acquire))
}

/// Allocates at least `size` bytes for this object; returns address and size. `None` leaves the request to
/// ggml's own pool.
pub(super) fn allocate(this: usize, size: usize) -> Option<(usize, usize)> {
    let size = size.max(1).checked_next_multiple_of(ALIGNMENT)?;
    let pool = find(this).or_else(|| open(this))?;
    let mut occupied = pool.served.hold();
    let block = occupied.as_mut()?.allocate(long(size))?;
    drop(occupied);
    pool.low.fetch_min(block.address.0, Relaxed);
    pool.high.fetch_max(block.end().0, Release);
    Some((wide(block.address.0), size))
}

/// Takes a block back. False for an address that no served pool handed out.
pub(super) fn free(this: usize, pointer: DevicePointer) -> bool {
    let own = find(this).is_some_and(|pool| pool.free(pointer));
    own || release(pointer)
}

/// Takes back a block of any served pool.
pub(super) fn release(pointer: DevicePointer) -> bool {
    used().any(|pool| pool.free(pointer))
}

/// Ends the pool of this object, if it has one.
pub(super) fn close(this: usize) -> PoolEnd {
    let Some(pool) = find(this) else {
        return PoolEnd::Even;
    };
    let served = pool.served.hold().take();
    pool.low.store(u64::MAX, Relaxed);
    pool.high.store(0, Relaxed);
    pool.this.store(0, Release);
    served.map_or(PoolEnd::Even, ServedPool::close)
}

/// Releases the idle memory of this card's pools, and returns the number of bytes. Skips pools that are in
/// use now.
fn trim(card: CardIndex) -> u64 {
    // try_hold: this is called on a rung of the ladder, which a pool climbs with its own lock held.
    let occupied = used().filter_map(|pool| pool.served.try_hold());
    occupied
        .map(|mut occupied| match occupied.as_mut() {
            Some(served) if served.backing.card() == card => served.trim(Trim::All),
            _ => 0,
        })
        .sum()
}

/// Releases the pools whose objects ended during a capture.
pub(crate) fn settle() {
    let left = core::mem::take(&mut *LEFT.hold());
    let still = left.into_iter().filter_map(|mut served| (!served.finish()).then_some(served));
    let still: Vec<ServedPool> = still.collect();
    LEFT.hold().extend(still);
}

/// Passes every served pool to `show`, under its lock.
pub(crate) fn each(mut show: impl FnMut(&mut ServedPool)) {
    let open = used().filter(|pool| pool.this.load(Acquire) != 0);
    for mut occupied in open.map(|pool| pool.served.hold()) {
        if let Some(served) = occupied.as_mut() {
            show(served);
        }
    }
}

fn find(this: usize) -> Option<&'static PoolEntry> {
    (this != 0).then_some(())?;
    used().find(|pool| pool.this.load(Acquire) == this)
}

#[cold]
fn open(this: usize) -> Option<&'static PoolEntry> {
    let free = |pool: &PoolEntry| pool.this.compare_exchange(0, this, AcqRel, Relaxed).is_ok();
    let (place, pool) = (1..).zip(&POOLS).find(|(_, pool)| free(pool))?;
    reuse::also_trim(trim);
    // Before `ServedPool::open` reads the captures under way: one that begins now either is in that list or
    // finds this entry.
    USED.fetch_max(place, AcqRel);
    let mut occupied = pool.served.hold();
    *occupied = ServedPool::open();
    if occupied.is_none() {
        pool.this.store(0, Release);
    }
    occupied.is_some().then_some(pool)
}

impl PoolEntry {
    const fn none() -> Self {
        Self {
            this: AtomicUsize::new(0),
            low: AtomicU64::new(u64::MAX),
            high: AtomicU64::new(0),
            served: Lock::new(None),
        }
    }

    fn free(&self, pointer: DevicePointer) -> bool {
        // The bounds first: frees of all other memory pass through here and must not take the lock.
        let possible = (self.low.load(Relaxed)..self.high.load(Acquire)).contains(&pointer);
        possible && self.served.hold().as_mut().is_some_and(|served| served.free(pointer))
    }
}

impl ServedPool {
    fn open() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = u8::try_from(NUMBER.fetch_add(1, Relaxed)).unwrap_or(u8::MAX);
        let backing = Backing::here(number)?;
        state::page().pools.fetch_add(1, Relaxed);
        let total = state::card(backing.card()).total.load(Relaxed);
        let mut policy = Ours::new(OursOptions {
            regions: backing.has_regions(),
            // Twice the card, so that holes never use up the addresses.
            addresses: total.saturating_mul(2),
        });
        for graph in captures::under_way() {
            policy.capture_begin(graph);
        }
        Some(Self { policy, backing, number, interval: TrimInterval::default(), numbers: BTreeMap::new() })
    }

    fn allocate(&mut self, size: u64) -> Option<Block> {
        let block =
            self.policy.allocate(&mut self.backing, size, STREAM).or_else(|_| self.insist(size)).ok()?;
        state::card(self.backing.card()).idle.fetch_sub(size, Relaxed);
        self.notify(TraceKind::Alloc, block);
        Some(block)
    }

    /// Allocates with the ladder behind it, after the policy has given back all idle memory and was refused
    /// all the same.
    #[cold]
    fn insist(&mut self, size: u64) -> Result<Block, plimsoll_pool::OutOfMemory> {
        self.backing.insist(true);
        let block = self.policy.allocate(&mut self.backing, size, STREAM);
        self.backing.insist(false);
        block
    }

    fn free(&mut self, pointer: DevicePointer) -> bool {
        let address = Address(pointer);
        let before = self.policy.live();
        if !self.policy.owns(address) {
            return false;
        }
        let block = Block { address, size: 0 };
        self.policy.deallocate(&mut self.backing, block, STREAM);
        let size = before - self.policy.live();
        state::card(self.backing.card()).idle.fetch_add(size, Relaxed);
        if size > 0 {
            self.notify(TraceKind::Free, Block { address, size });
        }
        if self.interval.due(self.policy.live()) {
            self.trim(Trim::Idle);
        }
        true
    }

    fn trim(&mut self, trim: Trim) -> u64 {
        self.policy.trim(&mut self.backing, trim)
    }

    fn close(mut self) -> PoolEnd {
        let owing = self.policy.live();
        state::card(self.backing.card()).idle.fetch_add(owing, Relaxed);
        state::page().pools.fetch_sub(1, Relaxed);
        if !self.finish() {
            LEFT.hold().push(self);
        }
        if owing == 0 { PoolEnd::Even } else { PoolEnd::Owing }
    }

    /// Waits for the card and gives everything back. False if a capture forbids the wait now.
    fn finish(&mut self) -> bool {
        let may = self.backing.synchronize();
        if may {
            self.policy.close(&mut self.backing);
        }
        may
    }

    /// Records an event. A trace names blocks by number, so a block's number is kept as long as it lives.
    fn notify(&mut self, kind: TraceKind, block: Block) {
        if !trace::on() {
            return;
        }
        let id = match kind {
            TraceKind::Alloc => trace::number(),
            _ => self.numbers.remove(&block.address).unwrap_or(0),
        };
        if kind == TraceKind::Alloc {
            self.numbers.insert(block.address, id);
        }
        let event = TraceEvent::on(self.backing.card()).of(id, block.size);
        let pool = self.number;
        TraceEvent { pool, ..event }.emit(kind);
    }

    pub(super) fn grant(&self, user: DeviceOrdinal, owner: DeviceOrdinal) {
        if self.backing.card().device() == owner {
            self.backing.grant(user);
        }
    }

    pub(crate) fn capture_begin(&mut self, graph: CapturedGraph) {
        self.policy.capture_begin(graph);
    }

    pub(crate) fn capture_end(&mut self, graph: CapturedGraph, kept: bool) {
        self.policy.capture_end(graph);
        if !kept {
            self.policy.graph_destroyed(graph);
        }
    }

    pub(crate) fn graph_destroyed(&mut self, graph: CapturedGraph) {
        self.policy.graph_destroyed(graph);
    }
}
