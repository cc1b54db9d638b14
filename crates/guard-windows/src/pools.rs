//! Guard's own memory pools, one for each pool object of ggml that guard serves.
//!
//! DECISION: an object's address is only a key; the object is never read. The table has one lock, which is
//! held during calls of the driver: ggml calls a pool from one thread at a time, and the trim of idle memory
//! skips a table that is in use.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use plimsoll_pool::{Address, Block, CapturedGraph, Ours, OursOptions, Policy, ServedPolicy, Stream, Trim};

use crate::backing::Backing;
use crate::blocks::hold;
use crate::cards::{self, CardIndex};
use crate::{captures, settings};

/// Alignment of `cudaMalloc`.
const ALIGNMENT: usize = 256;
/// The one stream that a pool object is for, whichever that is.
const STREAM: Stream = Stream(0);
/// Frees between two readings of the clock, and time between two trims.
const FREES: u32 = 512;
const TRIMS: Duration = Duration::from_secs(1);
/// The fewest addresses of a region; those behind the arena's end are never used.
const ADDRESSES: u64 = 1 << 30;

static POOLS: Mutex<BTreeMap<usize, ServedPool>> = Mutex::new(BTreeMap::new());

/// Policies with the memory that they place blocks in.
#[derive(Debug)]
pub(crate) struct ServedPool {
    /// Places blocks in the arena of `--pool plan`.
    planned: Option<Ours>,
    policy: Ours,
    backing: Backing,
    frees: u32,
    trimmed: Instant,
}

/// Allocates at least `size` bytes for this object; returns address and size. `None` leaves the request to
/// ggml's own pool.
pub(crate) fn allocate(this: usize, size: usize) -> Option<(u64, usize)> {
    let size = size.max(1).checked_next_multiple_of(ALIGNMENT)?;
    let mut pools = hold(&POOLS);
    if let std::collections::btree_map::Entry::Vacant(place) = pools.entry(this) {
        place.insert(ServedPool::open(cards::current()?));
    }
    let address = pools.get_mut(&this)?.allocate(crate::driver::bytes(size))?;
    Some((address.0, size))
}

/// Takes a block back. False for an address that no pool of guard's handed out.
pub(crate) fn free(this: usize, pointer: u64) -> bool {
    let mut pools = hold(&POOLS);
    pools.get_mut(&this).is_some_and(|pool| pool.free(Address(pointer)))
        || pools.values_mut().any(|pool| pool.free(Address(pointer)))
}

/// Ends the pool of an object, which ggml destroys once its work is done.
pub(crate) fn close(this: usize) {
    if let Some(pool) = hold(&POOLS).remove(&this) {
        pool.close();
    }
}

/// Releases the idle memory of a card's pools, and returns the number of bytes.
pub(crate) fn trim(card: CardIndex) -> u64 {
    // try_lock: a pool asks for room with the table's lock held.
    let mut pools = match POOLS.try_lock() {
        Ok(pools) => pools,
        Err(TryLockError::Poisoned(error)) => PoisonError::into_inner(error),
        Err(TryLockError::WouldBlock) => return 0,
    };
    let own = pools.values_mut().filter(|pool| pool.backing.card() == card);
    own.map(|pool| pool.trim(Trim::All)).sum()
}

/// Passes every pool to `show`.
pub(crate) fn each(show: impl FnMut(&mut ServedPool)) {
    hold(&POOLS).values_mut().for_each(show);
}

impl ServedPool {
    fn open(card: CardIndex) -> Self {
        let planned = settings::options().and_then(|options| options.arena);
        let pool = |options| {
            let mut policy = Ours::new(options);
            captures::under_way().into_iter().for_each(|graph| policy.capture_begin(graph));
            policy
        };
        cards::count_pool();
        Self {
            planned: planned.map(|size| pool(OursOptions { regions: true, addresses: size.max(ADDRESSES) })),
            policy: pool(OursOptions { regions: false, addresses: 0 }),
            backing: Backing::new(card, planned.unwrap_or(0)),
            frees: 0,
            trimmed: Instant::now(),
        }
    }

    fn allocate(&mut self, size: u64) -> Option<Address> {
        let Self { planned, policy, backing, .. } = self;
        // What the plan did not foresee is served from allocations of its own.
        let planned = planned.as_mut().and_then(|planned| planned.allocate(backing, size, STREAM).ok());
        let block = planned.or_else(|| policy.allocate(backing, size, STREAM).ok());
        let block = block.or_else(|| {
            backing.insist(true);
            let block = policy.allocate(backing, size, STREAM).ok();
            backing.insist(false);
            block
        });
        block.map(|block| block.address)
    }

    fn free(&mut self, address: Address) -> bool {
        let Self { planned, policy, backing, .. } = self;
        let block = Block { address, size: 0 };
        if let Some(planned) = planned.as_mut().filter(|_| backing.is_in_arena(address)) {
            planned.deallocate(backing, block, STREAM);
            return true;
        }
        if !policy.owns(address) {
            return false;
        }
        policy.deallocate(backing, block, STREAM);
        self.frees += 1;
        if policy.live() == 0 && self.frees >= FREES {
            self.frees = 0;
            if self.trimmed.elapsed() >= TRIMS {
                self.trimmed = Instant::now();
                self.trim(Trim::Idle);
            }
        }
        true
    }

    /// Releases idle memory beside the arena.
    fn trim(&mut self, trim: Trim) -> u64 {
        self.policy.trim(&mut self.backing, trim)
    }

    fn close(mut self) {
        let Self { planned, policy, backing, .. } = &mut self;
        planned.iter_mut().for_each(|planned| planned.close(backing));
        policy.close(backing);
    }

    fn policies(&mut self) -> impl Iterator<Item = &mut Ours> {
        self.planned.iter_mut().chain([&mut self.policy])
    }

    pub(crate) fn capture_begin(&mut self, graph: CapturedGraph) {
        self.policies().for_each(|policy| policy.capture_begin(graph));
    }

    pub(crate) fn capture_end(&mut self, graph: CapturedGraph, is_kept: bool) {
        self.policies().for_each(|policy| policy.capture_end(graph));
        if !is_kept {
            self.graph_destroyed(graph);
        }
    }

    pub(crate) fn graph_destroyed(&mut self, graph: CapturedGraph) {
        self.policies().for_each(|policy| policy.graph_destroyed(graph));
    }
}
