//! `plimsoll_pool.h`: the pool for engines in C and C++.
//!
//! DECISION: one opaque pool behind a lock, our policy over the engine's own driver calls, within a budget if one is set.
//! Every function checks what C can get wrong and can be checked (null, a structure's size, an address that is not live)
//! and returns a status; none unwinds. This crate holds no logic of its own.

use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_pool::{Address, Block, Budget, Graph, Limited, Options, Ours, Policy, Stream, Trim};

mod engine;
mod status;

pub use engine::DeviceTable;
use engine::Engine;
use status::Status;

/// `plimsoll_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OptionsTable {
    size: usize,
    budget: u64,
    addresses: u64,
    no_ranges: i32,
    reserved: i32,
}

/// `plimsoll_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    size: usize,
    reserved: u64,
    live: u64,
    peak_reserved: u64,
    peak_live: u64,
    refused: u64,
}

/// `plimsoll_pool`.
#[derive(Debug)]
pub struct Pool {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    policy: Ours,
    device: Limited<Engine, Arc<Budget>>,
    peak_reserved: u64,
    peak_live: u64,
    refused: u64,
}

impl Inner {
    fn allocate(&mut self, size: u64, stream: u64) -> Option<Address> {
        let block = self.policy.allocate(&mut self.device, size, Stream(stream)).ok();
        self.refused += u64::from(block.is_none());
        self.peak_reserved = self.peak_reserved.max(self.policy.reserved());
        self.peak_live = self.peak_live.max(self.policy.live());
        block.map(|block| block.address)
    }

    fn free(&mut self, address: u64, stream: u64) -> Status {
        let address = Address(address);
        let Some(size) = self.policy.asked(address) else {
            return Status::NotLive;
        };
        let block = Block { address, size };
        self.policy.deallocate(&mut self.device, block, Stream(stream));
        Status::Ok
    }
}

impl Pool {
    fn new(engine: Engine, options: Option<&OptionsTable>) -> Self {
        let budget = options.map_or(0, |options| options.budget);
        let limit = if budget == 0 { u64::MAX } else { budget };
        let mut chosen = Options::default();
        if let Some(options) = options {
            chosen.regions = options.no_ranges == 0;
            chosen.addresses = if options.addresses == 0 {
                chosen.addresses
            } else {
                options.addresses
            };
        }
        let inner = Mutex::new(Inner {
            policy: Ours::new(chosen),
            device: Limited::new(engine, Arc::new(Budget::new(limit))),
            peak_reserved: 0,
            peak_live: 0,
            refused: 0,
        });
        Self { inner }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs an act on the pool behind a pointer from C.
///
/// # Safety
///
/// The pointer is null or came from [`plimsoll_pool_create`] and is not destroyed.
unsafe fn with(pool: *const Pool, act: impl FnOnce(&mut Inner) -> Status) -> i32 {
    // SAFETY: by the contract of this function.
    let pool = unsafe { pool.as_ref() };
    pool.map_or(Status::InvalidArgument, |pool| act(&mut pool.lock())) as i32
}

/// # Safety
///
/// As the header says: pointers are null or point to what their type says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_pool_create(
    device: *const DeviceTable,
    options: *const OptionsTable,
    pool: *mut *mut Pool,
) -> i32 {
    // SAFETY: by the contract of this function.
    let (device, options, pool) = unsafe { (device.as_ref(), options.as_ref(), pool.as_mut()) };
    let (Some(device), Some(pool)) = (device, pool) else {
        return Status::InvalidArgument as i32;
    };
    if !device.has_its_size() || options.is_some_and(|options| options.size != size_of::<OptionsTable>()) {
        return Status::InvalidArgument as i32;
    }
    let Some(engine) = Engine::new(device) else {
        return Status::InvalidDevice as i32;
    };
    *pool = Box::into_raw(Box::new(Pool::new(engine, options)));
    Status::Ok as i32
}

/// # Safety
///
/// The pointer is null or came from [`plimsoll_pool_create`], and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_pool_destroy(pool: *mut Pool) {
    if pool.is_null() {
        return;
    }
    // SAFETY: it was made by `Box::into_raw` in `plimsoll_pool_create`, and by contract is destroyed once.
    let pool = unsafe { Box::from_raw(pool) };
    let inner = &mut *pool.lock();
    inner.policy.close(&mut inner.device);
}

/// # Safety
///
/// The pool is null or live, and `address` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_pool_allocate(
    pool: *mut Pool,
    size: u64,
    stream: u64,
    address: *mut u64,
) -> i32 {
    // SAFETY: by the contract of this function.
    let Some(address) = (unsafe { address.as_mut() }) else {
        return Status::InvalidArgument as i32;
    };
    let act = |inner: &mut Inner| match inner.allocate(size, stream) {
        Some(found) => {
            *address = found.0;
            Status::Ok
        }
        None => Status::OutOfMemory,
    };
    // SAFETY: by the contract of this function.
    unsafe { with(pool, act) }
}

/// # Safety
///
/// The pool is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_pool_free(pool: *mut Pool, address: u64, stream: u64) -> i32 {
    // SAFETY: by the contract of this function.
    unsafe { with(pool, |inner| inner.free(address, stream)) }
}

/// # Safety
///
/// The pool is null or live, and `freed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_pool_trim(pool: *mut Pool, all: i32, freed: *mut u64) -> i32 {
    // SAFETY: by the contract of this function.
    let freed = unsafe { freed.as_mut() };
    let trim = if all == 0 { Trim::Idle } else { Trim::All };
    let act = |inner: &mut Inner| {
        let bytes = inner.policy.trim(&mut inner.device, trim);
        if let Some(freed) = freed {
            *freed = bytes;
        }
        Status::Ok
    };
    // SAFETY: by the contract of this function.
    unsafe { with(pool, act) }
}

/// The calls that tell the pool of a graph.
macro_rules! of_graph {
    ($($name:ident => $act:ident),*) => { $(
        /// # Safety
        ///
        /// The pool is null or live.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(pool: *mut Pool, graph: u64) -> i32 {
            let act = |inner: &mut Inner| {
                inner.policy.$act(Graph(graph));
                Status::Ok
            };
            // SAFETY: by the contract of this function.
            unsafe { with(pool, act) }
        }
    )* };
}

of_graph!(
    plimsoll_pool_capture_begin => capture_begin,
    plimsoll_pool_capture_end => capture_end,
    plimsoll_pool_graph_destroyed => graph_destroyed
);

/// # Safety
///
/// The pool is null or live, and `stats` is null or points to a `plimsoll_stats` whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_pool_stats(pool: *mut Pool, stats: *mut Stats) -> i32 {
    // SAFETY: by the contract of this function.
    let stats = unsafe { stats.as_mut() };
    let Some(stats) = stats.filter(|stats| stats.size == size_of::<Stats>()) else {
        return Status::InvalidArgument as i32;
    };
    let act = |inner: &mut Inner| {
        *stats = Stats {
            size: stats.size,
            reserved: inner.policy.reserved(),
            live: inner.policy.live(),
            peak_reserved: inner.peak_reserved,
            peak_live: inner.peak_live,
            refused: inner.refused,
        };
        Status::Ok
    };
    // SAFETY: by the contract of this function.
    unsafe { with(pool, act) }
}

#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_status_message(status: i32) -> *const c_char {
    status::message(status).as_ptr()
}
