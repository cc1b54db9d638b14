//! Stream-ordered allocation in the fake CUDA driver: pools that keep freed memory up to their release
//! threshold.
//!
//! A pool holds whole granules; freed blocks are kept whole and reused for requests of the same number of
//! granules. If a stream gets a block that another stream freed, it waits for that stream. As in the real
//! driver, memory above the threshold is released at the next synchronisation. Until then a card's used
//! memory is higher than the program's need.

use std::collections::BTreeMap;

use crate::abi::structs::{AccessDesc, LOCATION_DEVICE, Location, PoolProps};
use crate::abi::{DevicePtr, In, Out, Pool, Stream};
use crate::blocks::{GRANULE, Place, round_up};
use crate::call::driver;
use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, Outcome, STREAM_CAPTURE_UNSUPPORTED};
use crate::driver::{Driver, driver};
use crate::log::violation;
use crate::operation::Operation;
use crate::settings::settings;
use crate::space::{Access, Kind, Region};

#[derive(Debug, Default)]
pub(crate) struct Pools {
    live: BTreeMap<Pool, State>,
    /// The default and the current pool of each card, once made.
    defaults: BTreeMap<usize, Pool>,
    current: BTreeMap<usize, Pool>,
}

#[derive(Debug)]
struct State {
    card: usize,
    threshold: u64,
    most: u64,
    reserved: Meter,
    used: Meter,
    idle: Vec<Idle>,
    /// It was destroyed, and goes when it holds nothing any more.
    destroyed: bool,
}

/// A freed block.
#[derive(Debug, Clone, Copy)]
struct Idle {
    at: DevicePtr,
    length: u64,
    /// When the stream that freed it gets that far.
    ready: u64,
}

/// A figure, and the highest that it was.
#[derive(Debug, Default, Clone, Copy)]
struct Meter {
    now: u64,
    high: u64,
}

impl Meter {
    fn add(&mut self, bytes: u64) {
        self.now += bytes;
        self.high = self.high.max(self.now);
    }

    fn subtract(&mut self, bytes: u64) {
        self.now = self.now.saturating_sub(bytes);
    }
}

impl Pools {
    fn get(&mut self, pool: Pool) -> Result<&mut State, Code> {
        self.live.get_mut(&pool).ok_or(INVALID_VALUE)
    }

    /// Forgets destroyed pools that hold nothing.
    fn bury(&mut self) {
        self.live.retain(|_, state| !state.destroyed || state.reserved.now > 0);
    }
}

impl Driver {
    fn new_pool(&mut self, card: usize, most: u64) -> Pool {
        let pool = Pool(self.new_handle());
        let state = State {
            card,
            threshold: 0,
            most: if most == 0 { u64::MAX } else { most },
            reserved: Meter::default(),
            used: Meter::default(),
            idle: Vec::new(),
            destroyed: false,
        };
        self.pools.live.insert(pool, state);
        pool
    }

    fn default_pool(&mut self, card: usize) -> Pool {
        match self.pools.defaults.get(&card) {
            Some(pool) => *pool,
            None => {
                let pool = self.new_pool(card, 0);
                self.pools.defaults.insert(card, pool);
                pool
            }
        }
    }

    fn current_pool(&mut self, card: usize) -> Pool {
        match self.pools.current.get(&card) {
            Some(pool) => *pool,
            None => self.default_pool(card),
        }
    }

    /// A block of a pool, and when it may be used.
    fn allocate_from(&mut self, pool: Pool, length: u64) -> Result<(DevicePtr, u64), Code> {
        let granules = round_up(length, GRANULE)?;
        let state = self.pools.get(pool)?;
        let card = state.card;
        if let Some(index) = state.idle.iter().position(|idle| idle.length == granules) {
            let Idle { at, ready, .. } = state.idle.swap_remove(index);
            state.used.add(granules);
            self.reopen(at);
            return Ok((at, ready));
        }
        if state.reserved.now.saturating_add(granules) > state.most {
            return Err(OUT_OF_MEMORY);
        }
        let at = self.new_pooled(pool, card, granules)?;
        let state = self.pools.get(pool)?;
        state.reserved.add(granules);
        state.used.add(granules);
        Ok((at, 0))
    }

    /// Makes idle memory a new allocation.
    fn reopen(&mut self, at: DevicePtr) {
        let id = self.new_handle();
        if let Some(region) = self.space.regions.get_mut(&at.0) {
            region.id = id;
        }
        self.grant_all(at, Access::EVERY_CARD);
    }

    fn grant_all(&mut self, at: DevicePtr, access: Access) {
        if let Some(segment) = self.space.segments.get_mut(&at.0) {
            segment.access = access;
        }
    }

    fn new_pooled(&mut self, pool: Pool, card: usize, granules: u64) -> Result<DevicePtr, Code> {
        let physical = self.new_block(Place::Card(card), granules, false)?;
        self.place(physical, granules, Kind::Pooled(pool), card, None)
    }

    /// Takes a freed allocation back into its pool, where nobody may touch it.
    pub(crate) fn return_to(&mut self, pool: Pool, at: DevicePtr, length: u64, ready: u64) -> Outcome {
        let state = self.pools.get(pool)?;
        if state.idle.iter().any(|idle| idle.at == at) {
            return Err(INVALID_VALUE);
        }
        state.used.subtract(length);
        state.idle.push(Idle { at, length, ready });
        self.grant_all(at, Access::default());
        Ok(())
    }

    /// Gives idle memory that nothing waits for back, until no more than `keep` is reserved.
    fn trim(&mut self, pool: Pool, keep: u64) -> Outcome {
        let now = self.work.now();
        while self.pools.get(pool)?.reserved.now > keep {
            let state = self.pools.get(pool)?;
            let Some(index) = state.idle.iter().position(|idle| idle.ready <= now) else {
                break;
            };
            let Idle { at, length, .. } = state.idle.swap_remove(index);
            state.reserved.subtract(length);
            self.end_region(at.0)?;
        }
        Ok(())
    }

    /// What a synchronisation does to the pools.
    pub(crate) fn trim_pools(&mut self) -> Outcome {
        let thresholds = self.pools.live.iter().map(|(pool, state)| (*pool, state.threshold));
        let thresholds: Vec<_> = thresholds.collect();
        thresholds.into_iter().try_for_each(|(pool, threshold)| self.trim(pool, threshold))?;
        self.pools.bury();
        Ok(())
    }

    fn allocate_async(&mut self, pool: Option<Pool>, length: u64, handle: Stream) -> Result<DevicePtr, Code> {
        if !settings().pools {
            return Err(NOT_SUPPORTED);
        }
        if length == 0 {
            return Err(INVALID_VALUE);
        }
        let stream = self.stream(handle)?;
        if let Some(graph) = self.work.streams[&stream].capture {
            let at = self.allocate(round_up(length, GRANULE)?, Kind::InGraph)?;
            self.capture_operation(graph, Operation::Nothing)?;
            self.graphs.own_memory(graph, at);
            return Ok(at);
        }
        let card = self.contexts.open[&self.work.streams[&stream].context].card;
        let pool = pool.unwrap_or_else(|| self.current_pool(card));
        let (at, ready) = self.allocate_from(pool, length)?;
        self.work.wait_until(stream, ready);
        self.submit(handle, Operation::Nothing)?;
        Ok(at)
    }

    fn free_async(&mut self, at: DevicePtr, handle: Stream) -> Outcome {
        let stream = self.stream(handle)?;
        let region = *self.space.regions.get(&at.0).ok_or(INVALID_VALUE)?;
        if self.work.streams[&stream].capture.is_some() {
            return match region.kind {
                Kind::InGraph => self.submit(handle, Operation::Nothing),
                _ => Err(STREAM_CAPTURE_UNSUPPORTED),
            };
        }
        self.submit(handle, Operation::Nothing)?;
        self.expect_ordered(at, &region, stream);
        match region.kind {
            Kind::Pooled(pool) => {
                let ready = self.work.streams[&stream].finish;
                self.return_to(pool, at, region.length, ready)
            }
            Kind::Linear | Kind::Small | Kind::InGraph => self.end_region(at.0),
            _ => Err(INVALID_VALUE),
        }
    }

    /// Notes a free that does not come after another stream's work on the memory.
    fn expect_ordered(&self, at: DevicePtr, region: &Region, stream: Stream) {
        let range = at.0..at.0 + region.length;
        if let Some(other) = self.work.using_after(&range, stream) {
            violation(
                "unordered-free",
                format_args!(
                    "cuMemFreeAsync of {at} in stream {:#x} while stream {:#x} still uses it",
                    stream.0, other.0
                ),
            );
        }
    }

    fn destroy_pool(&mut self, pool: Pool) -> Outcome {
        if self.pools.defaults.values().any(|default| *default == pool) {
            return Err(INVALID_VALUE);
        }
        self.trim(pool, 0)?;
        self.pools.current.retain(|_, current| *current != pool);
        // Memory in use stays until it is freed and something waits: then the pool keeps nothing.
        let state = self.pools.get(pool)?;
        state.threshold = 0;
        state.most = 0;
        state.destroyed = true;
        self.pools.bury();
        Ok(())
    }

    fn pool_attribute(&mut self, pool: Pool, attribute: i32, value: Out<u8>) -> Outcome {
        let state = self.pools.get(pool)?;
        let wide = match attribute {
            1..=3 => return value.cast().set(1_i32),
            4 => state.threshold,
            5 => state.reserved.now,
            6 => state.reserved.high,
            7 => state.used.now,
            8 => state.used.high,
            _ => return Err(INVALID_VALUE),
        };
        value.cast().set(wide)
    }

    fn set_pool_attribute(&mut self, pool: Pool, attribute: i32, value: Out<u8>) -> Outcome {
        let state = self.pools.get(pool)?;
        match attribute {
            1..=3 => {}
            4 => {
                let threshold = value.cast::<u64>().get()?;
                state.threshold = threshold;
            }
            6 => state.reserved.high = state.reserved.now,
            8 => state.used.high = state.used.now,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }
}

driver! {
    fn cuDeviceGetDefaultMemPool = "cuDeviceGetDefaultMemPool" since 11020 (pool_out: Out<Pool>, dev: i32) {
        let mut driver = driver()?;
        let card = driver.device(dev)?;
        pool_out.set(driver.default_pool(card))
    }

    fn cuDeviceGetMemPool = "cuDeviceGetMemPool" since 11020 (pool: Out<Pool>, dev: i32) {
        let mut driver = driver()?;
        let card = driver.device(dev)?;
        pool.set(driver.current_pool(card))
    }

    fn cuDeviceSetMemPool = "cuDeviceSetMemPool" since 11020 (dev: i32, pool: Pool) {
        let mut driver = driver()?;
        let card = driver.device(dev)?;
        driver.pools.get(pool)?;
        driver.pools.current.insert(card, pool);
        Ok(())
    }

    fn cuMemPoolCreate = "cuMemPoolCreate" since 11020 (pool: Out<Pool>, poolProps: In<PoolProps>) {
        let props = poolProps.get()?;
        if pool.is_null() || props.location.kind != LOCATION_DEVICE {
            return Err(INVALID_VALUE);
        }
        let mut driver = driver()?;
        let card = driver.device(props.location.id)?;
        pool.set(driver.new_pool(card, props.max_size as u64))
    }

    fn cuMemPoolDestroy = "cuMemPoolDestroy" since 11020 (pool: Pool) {
        driver()?.destroy_pool(pool)
    }

    fn cuMemPoolTrimTo = "cuMemPoolTrimTo" since 11020 (pool: Pool, minBytesToKeep: u64) {
        driver()?.trim(pool, minBytesToKeep)
    }

    fn cuMemPoolGetAttribute = "cuMemPoolGetAttribute" since 11020 (pool: Pool, attr: i32, value: Out<u8>) {
        driver()?.pool_attribute(pool, attr, value)
    }

    fn cuMemPoolSetAttribute = "cuMemPoolSetAttribute" since 11020 (pool: Pool, attr: i32, value: Out<u8>) {
        driver()?.set_pool_attribute(pool, attr, value)
    }

    fn cuMemPoolSetAccess = "cuMemPoolSetAccess" since 11020 (pool: Pool, map: In<AccessDesc>, count: usize) {
        map.list(count)?;
        driver()?.pools.get(pool).map(drop)
    }

    fn cuMemPoolGetAccess = "cuMemPoolGetAccess" since 11020
        (flags: Out<i32>, memPool: Pool, location: In<Location>)
    {
        location.get()?;
        driver()?.pools.get(memPool)?;
        flags.set(3)
    }

    fn cuMemAllocAsync / cuMemAllocAsync_ptsz = "cuMemAllocAsync" since 11020
        (dptr: Out<DevicePtr>, bytesize: u64, hStream: Stream)
    {
        let allocated = driver()?.allocate_async(None, bytesize, hStream)?;
        dptr.set(allocated)
    }

    fn cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz = "cuMemAllocFromPoolAsync" since 11020
        (dptr: Out<DevicePtr>, bytesize: u64, pool: Pool, hStream: Stream)
    {
        let allocated = driver()?.allocate_async(Some(pool), bytesize, hStream)?;
        dptr.set(allocated)
    }

    fn cuMemFreeAsync / cuMemFreeAsync_ptsz = "cuMemFreeAsync" since 11020 (dptr: DevicePtr, hStream: Stream) {
        driver()?.free_async(dptr, hStream)
    }
}

#[cfg(test)]
mod tests;
