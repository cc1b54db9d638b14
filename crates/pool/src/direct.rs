//! Every request goes to the device: nothing is kept, nothing is wasted but granules, and every call is a call to the
//! driver.

use std::collections::HashMap;

use crate::device::{Address, Device, OutOfMemory};
use crate::policy::{Block, Policy, Stream};

#[derive(Clone, Debug, Default)]
pub struct Direct {
    held: HashMap<Address, u64>,
    reserved: u64,
}

impl Policy for Direct {
    fn allocate(&mut self, device: &mut dyn Device, size: u64, _: Stream) -> Result<Block, OutOfMemory> {
        let address = device.allocate(size)?;
        let held = size.max(1).next_multiple_of(device.granule());
        self.held.insert(address, held);
        self.reserved += held;
        Ok(Block { address, size })
    }

    fn deallocate(&mut self, device: &mut dyn Device, block: Block, _: Stream) {
        self.reserved -= self.held.remove(&block.address).unwrap_or_default();
        device.free(block.address);
    }

    fn trim(&mut self, _: &mut dyn Device) {}

    fn reserved(&self) -> u64 {
        self.reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Simulated;

    #[test]
    fn it_holds_what_is_live_to_the_granule_and_nothing_else() {
        let mut device = Simulated::new(1 << 20, 512);
        let mut policy = Direct::default();
        let blocks: Vec<Block> = (1..9)
            .map(|n| policy.allocate(&mut device, n * 100, Stream(0)).unwrap())
            .collect();
        let live: u64 = blocks.iter().map(|block| block.size.next_multiple_of(512)).sum();
        assert_eq!(policy.reserved(), live);
        blocks
            .into_iter()
            .for_each(|block| policy.deallocate(&mut device, block, Stream(0)));
        assert_eq!((policy.reserved(), device.available()), (0, 1 << 20));
        let refused = policy.allocate(&mut device, 2 << 20, Stream(0)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "2097152 bytes were asked for and 1048576 are free"
        );
    }
}
