//! The pools that are served, one for each of ggml's pool objects.
//!
//! DECISION: a fixed table, searched from its start: there are as many objects as cards and streams in use, nearly always one or
//! two, and finding one takes a comparison. A pool that ends leaves its place for the next; places are never freed, so that
//! nobody can hold a stale one. Each has its own lock, which in a steady state one thread alone ever takes. It is held while
//! the driver maps memory: nobody else but [`trim`] wants it then, and that passes by.
//!
//! A block's size is rounded up to the alignment that `cudaMalloc` gives, and that is what ggml is told it got.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use plimsoll_pool::{Address, Block, Graph, Options, Ours, Policy, Stream, Trim};

use super::backing::Backing;
use super::loaded::{long, wide};
use super::pace::Pace;
use crate::account::{self, CardIndex};
use crate::driver::{Device, DevicePointer};
use crate::graphs;
use crate::lock::Lock;
use crate::trace::{self, Kind};

/// Objects that can be served at once; further ones keep their own methods.
const PLACES: usize = 64;

/// What `cudaMalloc` aligns to.
const ALIGNMENT: usize = 256;

/// The one stream that a pool object is for, whichever that is.
const STREAM: Stream = Stream(0);

#[derive(Debug)]
pub(super) struct Pool {
    /// The object that it serves; 0 for none.
    this: AtomicUsize,
    /// Every block ever handed out lies between these.
    low: AtomicU64,
    high: AtomicU64,
    inside: Lock<Option<Inside>>,
}

#[derive(Debug)]
pub(crate) struct Inside {
    policy: Ours,
    backing: Backing,
    number: u8,
    pace: Pace,
    /// The blocks' numbers in the trace; empty without one.
    numbers: BTreeMap<Address, u64>,
}

/// How a pool ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// Nothing of it is left.
    Even,
    /// Blocks of it were never given back to us.
    Owing,
}

/// Pools whose objects are gone, and whose memory could not go yet.
static LEFT: Lock<Vec<Inside>> = Lock::new(Vec::new());

static POOLS: [Pool; PLACES] = [const { Pool::none() }; PLACES];
/// So many places from the start have ever been used; a process without such a pool searches none.
static USED: AtomicUsize = AtomicUsize::new(0);

fn used() -> impl Iterator<Item = &'static Pool> {
    POOLS.iter().take(USED.load(Acquire))
}

/// A block of at least `size` bytes for this object: its address and its size. `None`: ggml's own pool must do.
pub(super) fn allocate(this: usize, size: usize) -> Option<(usize, usize)> {
    let size = size.max(1).checked_next_multiple_of(ALIGNMENT)?;
    let pool = find(this).or_else(|| open(this))?;
    let mut held = pool.inside.hold();
    let block = held.as_mut()?.allocate(long(size))?;
    drop(held);
    pool.low.fetch_min(block.address.0, Relaxed);
    pool.high.fetch_max(block.end().0, Release);
    Some((wide(block.address.0), size))
}

/// Takes a block back. False if it is none of ours.
pub(super) fn free(this: usize, pointer: DevicePointer) -> bool {
    let own = find(this).is_some_and(|pool| pool.free(pointer));
    own || release(pointer)
}

/// Takes back a block of whatever pool. False if it is of none.
pub(super) fn release(pointer: DevicePointer) -> bool {
    used().any(|pool| pool.free(pointer))
}

/// Ends the pool of this object, if it has one.
pub(super) fn close(this: usize) -> Closed {
    let Some(pool) = find(this) else {
        return Closed::Even;
    };
    let inside = pool.inside.hold().take();
    pool.low.store(u64::MAX, Relaxed);
    pool.high.store(0, Relaxed);
    pool.this.store(0, Release);
    inside.map_or(Closed::Even, Inside::close)
}

pub(super) fn trim(card: CardIndex) -> u64 {
    let held = used().filter_map(|pool| pool.inside.try_hold());
    held.map(|mut held| match held.as_mut() {
        Some(inside) if inside.backing.card() == card => inside.trim(Trim::All),
        _ => 0,
    })
    .sum()
}

/// Ends the pools that ended while somebody was capturing.
pub(crate) fn settle() {
    let left = core::mem::take(&mut *LEFT.hold());
    let still = left
        .into_iter()
        .filter_map(|mut inside| (!inside.finish()).then_some(inside));
    let still: Vec<Inside> = still.collect();
    LEFT.hold().extend(still);
}

/// Shows every policy, with nobody else using it.
pub(crate) fn each(mut show: impl FnMut(&mut Inside)) {
    let open = used().filter(|pool| pool.this.load(Acquire) != 0);
    for mut held in open.map(|pool| pool.inside.hold()) {
        if let Some(inside) = held.as_mut() {
            show(inside);
        }
    }
}

fn find(this: usize) -> Option<&'static Pool> {
    (this != 0).then_some(())?;
    used().find(|pool| pool.this.load(Acquire) == this)
}

#[cold]
fn open(this: usize) -> Option<&'static Pool> {
    let free = |pool: &Pool| pool.this.compare_exchange(0, this, AcqRel, Relaxed).is_ok();
    let (place, pool) = (1..).zip(&POOLS).find(|(_, pool)| free(pool))?;
    // Before it asks what is being captured: a capture that begins either is told to it or finds it.
    USED.fetch_max(place, AcqRel);
    let mut held = pool.inside.hold();
    *held = Inside::open();
    if held.is_none() {
        pool.this.store(0, Release);
    }
    held.is_some().then_some(pool)
}

impl Pool {
    const fn none() -> Self {
        Self {
            this: AtomicUsize::new(0),
            low: AtomicU64::new(u64::MAX),
            high: AtomicU64::new(0),
            inside: Lock::new(None),
        }
    }

    fn free(&self, pointer: DevicePointer) -> bool {
        let inside = (self.low.load(Relaxed)..self.high.load(Acquire)).contains(&pointer);
        inside
            && self
                .inside
                .hold()
                .as_mut()
                .is_some_and(|inside| inside.free(pointer))
    }
}

impl Inside {
    fn open() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = u8::try_from(NUMBER.fetch_add(1, Relaxed)).unwrap_or(u8::MAX);
        let backing = Backing::here(number)?;
        account::page().pools.fetch_add(1, Relaxed);
        let total = account::card(backing.card()).total.load(Relaxed);
        let mut policy = Ours::new(Options {
            regions: backing.has_regions(),
            // Twice the card, so that holes never use the addresses up.
            addresses: total.saturating_mul(2),
        });
        for graph in graphs::open() {
            policy.capture_begin(graph);
        }
        Some(Self {
            policy,
            backing,
            number,
            pace: Pace::default(),
            numbers: BTreeMap::new(),
        })
    }

    fn allocate(&mut self, size: u64) -> Option<Block> {
        let block = self
            .policy
            .allocate(&mut self.backing, size, STREAM)
            .or_else(|_| self.insist(size))
            .ok()?;
        account::card(self.backing.card()).idle.fetch_sub(size, Relaxed);
        self.tell(Kind::Alloc, block);
        Some(block)
    }

    /// The policy has given back what it held idle and was refused all the same.
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
        account::card(self.backing.card()).idle.fetch_add(size, Relaxed);
        if size > 0 {
            self.tell(Kind::Free, Block { address, size });
        }
        if self.pace.due(self.policy.live()) {
            self.trim(Trim::Idle);
        }
        true
    }

    fn trim(&mut self, trim: Trim) -> u64 {
        self.policy.trim(&mut self.backing, trim)
    }

    fn close(mut self) -> Closed {
        let owing = self.policy.live();
        account::card(self.backing.card()).idle.fetch_add(owing, Relaxed);
        account::page().pools.fetch_sub(1, Relaxed);
        if !self.finish() {
            LEFT.hold().push(self);
        }
        if owing == 0 { Closed::Even } else { Closed::Owing }
    }

    /// Gives everything back, once the card is done. False if it may not be waited for now.
    fn finish(&mut self) -> bool {
        let may = self.backing.synchronize();
        if may {
            self.policy.close(&mut self.backing);
        }
        may
    }

    /// Traces are of blocks and not of addresses, so that a block's number is kept for as long as it lives.
    fn tell(&mut self, kind: Kind, block: Block) {
        if !trace::on() {
            return;
        }
        let id = match kind {
            Kind::Alloc => trace::number(),
            _ => self.numbers.remove(&block.address).unwrap_or(0),
        };
        if kind == Kind::Alloc {
            self.numbers.insert(block.address, id);
        }
        let event = trace::Event {
            id,
            size: block.size,
            pool: self.number,
            ..trace::Event::on(self.backing.card())
        };
        trace::emit(kind, event);
    }

    pub(super) fn grant(&self, user: Device, owner: Device) {
        if self.backing.card().device() == owner {
            self.backing.grant(user);
        }
    }

    pub(crate) fn capture_begin(&mut self, graph: Graph) {
        self.policy.capture_begin(graph);
    }

    pub(crate) fn capture_end(&mut self, graph: Graph, kept: bool) {
        self.policy.capture_end(graph);
        if !kept {
            self.policy.graph_destroyed(graph);
        }
    }

    pub(crate) fn graph_destroyed(&mut self, graph: Graph) {
        self.policy.graph_destroyed(graph);
    }
}
