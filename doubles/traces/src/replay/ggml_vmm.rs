//! Models ggml's pool with virtual memory management (`ggml-cuda.cu:ggml_cuda_pool_vmm @ b8799, b10605`), for
//! replays of traces.
//!
//! The pool reserves 32 GiB of addresses, maps only as much as was ever needed at once, and never unmaps it.

use plimsoll_pool::{Address, Block, OutOfMemory, Policy, PoolDevice, Stream};

use super::ReplayPolicy;

const ADDRESSES: u64 = 1 << 35;
const ALIGNMENT: u64 = 128;

/// Condition under which the original allocator aborts its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Broken {
    #[error("a block other than the last allocated one was freed, which this pool does not allow")]
    OutOfOrder,
    /// The card may have memory left.
    #[error("the pool's address range is exhausted")]
    AddressesUsedUp,
}

// DECISION: the interface is that of RAPIDS RMM's `device_memory_resource`; a second trait adds trims
// (releases of idle memory) and graphs. The device is passed to every call, so several policies can share a
// card.
/// A block that was handed out.
#[derive(Clone, Copy, Debug)]
struct VmmBlock {
    address: Address,
    size: u64,
    requested: u64,
}

// DECISION: the model is exact. Where the original aborts, the model refuses all later requests
// (`ReplayPolicy::broken`).
/// Model of ggml's pool on virtual memory.
#[derive(Clone, Debug, Default)]
pub struct GgmlVmm {
    region: Option<Address>,
    reserved: u64,
    used: u64,
    lent: Vec<VmmBlock>,
    live: u64,
    broken: Option<Broken>,
}

impl GgmlVmm {
    /// Maps the region as far as `end`.
    fn back(&mut self, device: &mut dyn PoolDevice, end: u64) -> Result<Address, OutOfMemory> {
        let refused = |device: &dyn PoolDevice| OutOfMemory { requested: end, free: device.available() };
        let region = match self.region {
            Some(region) => region,
            None => device.reserve(ADDRESSES).ok_or(refused(device))?,
        };
        self.region = Some(region);
        if end <= self.reserved {
            return Ok(region);
        }
        // reserve_size in the original: exactly the missing bytes in whole granules, never ahead.
        let more = (end - self.reserved).next_multiple_of(device.granule());
        if self.reserved + more > ADDRESSES {
            self.broken = Some(Broken::AddressesUsedUp);
            return Err(refused(device));
        }
        device.map(region.offset(self.reserved), more)?;
        self.reserved += more;
        Ok(region)
    }
}

impl Policy for GgmlVmm {
    fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        requested: u64,
        _: Stream,
    ) -> Result<Block, OutOfMemory> {
        let refused = OutOfMemory { requested, free: device.available() };
        if self.broken.is_some() {
            return Err(refused);
        }
        // All blocks are rounded to 128 bytes, so that the next one is aligned too.
        let size = requested.checked_next_multiple_of(ALIGNMENT).ok_or(refused)?;
        let end = self
            .used
            .checked_add(size)
            // Keeps the sums in `back` far from the end of u64.
            .filter(|end| *end <= 2 * ADDRESSES)
            .ok_or(refused)?;
        let address = self.back(device, end)?.offset(self.used);
        self.used = end;
        self.lent.push(VmmBlock { address, size, requested });
        self.live += requested;
        Ok(Block { address, size: requested })
    }

    fn deallocate(&mut self, _: &mut dyn PoolDevice, block: Block, _: Stream) {
        let Some(at) = self.lent.iter().rposition(|lent| lent.address == block.address) else {
            return;
        };
        // GGML_ASSERT(ptr == pool_addr + pool_used) in the original.
        if at + 1 != self.lent.len() {
            self.broken = Some(Broken::OutOfOrder);
        }
        let lent = self.lent.remove(at);
        self.used -= lent.size;
        self.live -= lent.requested;
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }

    fn live(&self) -> u64 {
        self.live
    }
}

impl ReplayPolicy for GgmlVmm {
    fn broken(&self) -> Option<Broken> {
        self.broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::simulated::Simulated;

    const STREAM: Stream = Stream(0);
    const GRANULE: u64 = 2 << 20;

    #[test]
    fn blocks_lie_one_behind_the_other_in_whole_granules() {
        let mut device = Simulated::new(1 << 30, GRANULE);
        let mut pool = GgmlVmm::default();
        let first = pool.allocate(&mut device, 100, STREAM).unwrap();
        let second = pool.allocate(&mut device, 3 << 20, STREAM).unwrap();
        assert_eq!(second.address, first.address.offset(128));
        assert_eq!(device.driver_sizes(), [GRANULE, GRANULE]);
        pool.deallocate(&mut device, second, STREAM);
        pool.deallocate(&mut device, first, STREAM);
        assert_eq!((pool.live(), pool.reserved(), pool.broken()), (0, 2 * GRANULE, None));
        assert_eq!((device.reserved(), device.violations().len()), (2 * GRANULE, 0));
    }

    #[test]
    fn a_block_freed_out_of_order_breaks_it_and_is_no_panic() {
        let mut device = Simulated::new(1 << 30, GRANULE);
        let mut pool = GgmlVmm::default();
        let first = pool.allocate(&mut device, 100, STREAM).unwrap();
        pool.allocate(&mut device, 100, STREAM).unwrap();
        pool.deallocate(&mut device, first, STREAM);
        assert_eq!(pool.broken(), Some(Broken::OutOfOrder));
        assert!(pool.allocate(&mut device, 1, STREAM).is_err());
    }

    #[test]
    fn more_than_its_addresses_break_it() {
        let mut device = Simulated::new(1 << 40, GRANULE);
        let mut pool = GgmlVmm::default();
        pool.allocate(&mut device, ADDRESSES, STREAM).unwrap();
        assert!(pool.allocate(&mut device, 1, STREAM).is_err());
        assert_eq!(pool.broken(), Some(Broken::AddressesUsedUp));
    }
}
