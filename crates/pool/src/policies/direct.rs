//! Allocator policy without caching: every request goes to the device.
//!
//! It is the baseline for the other policies. Like `cudaFree`, it waits for the card before it frees.

use alloc::collections::BTreeMap;

use crate::device::{Address, OutOfMemory, PoolDevice, Stream};
use crate::policy::{Block, Policy};

#[derive(Clone, Debug, Default)]
pub struct Direct {
    /// Bytes asked for, and bytes taken, of each block.
    held: BTreeMap<Address, (u64, u64)>,
    reserved: u64,
    live: u64,
}

impl Policy for Direct {
    fn allocate(&mut self, device: &mut dyn PoolDevice, size: u64, _: Stream) -> Result<Block, OutOfMemory> {
        let address = device.allocate(size)?;
        // As the driver counts it, so that figures of policies with and without regions can be compared.
        let reserved = size.max(1).next_multiple_of(device.granule());
        self.held.insert(address, (size, reserved));
        self.reserved += reserved;
        self.live += size;
        Ok(Block { address, size })
    }

    fn deallocate(&mut self, device: &mut dyn PoolDevice, block: Block, stream: Stream) {
        if let Some((asked, reserved)) = self.held.remove(&block.address) {
            device.finish(stream);
            device.free(block.address);
            self.live -= asked;
            self.reserved -= reserved;
        }
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }

    fn live(&self) -> u64 {
        self.live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::Simulated;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    const STREAM: Stream = Stream(0);

    #[test]
    fn it_holds_what_is_live_to_the_granule_and_nothing_else() {
        let mut device = Simulated::new(1 << 20, 512);
        let mut policy = Direct::default();
        let blocks: Vec<Block> =
            (1..9).map(|n| policy.allocate(&mut device, n * 100, STREAM).unwrap()).collect();
        let live: u64 = blocks.iter().map(|block| block.size.next_multiple_of(512)).sum();
        assert_eq!((policy.reserved(), policy.live()), (live, 3600));
        for block in blocks {
            policy.deallocate(&mut device, block, STREAM);
        }
        assert_eq!((policy.reserved(), device.available()), (0, 1 << 20));
        let refused = policy.allocate(&mut device, 2 << 20, STREAM).unwrap_err();
        assert_eq!(refused.to_string(), "2097152 bytes were requested and 1048576 are free");
        assert_eq!(device.violations(), &[]);
    }
}
