//! Fault injection for tests: a device that refuses chosen requests for memory.

use crate::device::{Address, DeviceEvent, OutOfMemory, PoolDevice, Stream};
use crate::simulated::Faults;

/// Device that refuses the requests named by its faults and passes all others on.
#[derive(Clone, Debug)]
pub struct Failing<D> {
    device: D,
    faults: Faults,
}

impl<D: PoolDevice> Failing<D> {
    pub fn new(device: D, faults: Faults) -> Self {
        Self { device, faults }
    }

    pub fn into_inner(self) -> D {
        self.device
    }

    fn grant(&mut self, asked: u64) -> Result<(), OutOfMemory> {
        if self.faults.refuse(asked) {
            let free = self.device.available();
            // With the true figure: a policy that believes `free` must not be misled by an injected fault.
            return Err(OutOfMemory { asked, free });
        }
        Ok(())
    }
}

impl<D: PoolDevice> PoolDevice for Failing<D> {
    forward!(granule available allocate_host free reserve map_host unmap release events);

    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        self.grant(size)?;
        self.device.allocate(size)
    }

    fn map(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        self.grant(size)?;
        self.device.map(at, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ours, Policy, Simulated};

    #[test]
    fn a_policy_survives_the_refusal_of_any_one_request() {
        for nth in 1..8 {
            let mut device = Failing::new(Simulated::new(1 << 30, 1 << 20), Faults::nth(nth));
            let mut policy = Ours::default();
            let sizes = [1 << 20, 3 << 20, 100 << 20, 1 << 10];
            let blocks = sizes.map(|size| policy.allocate(&mut device, size, Stream(1)));
            assert!(blocks.iter().flatten().count() >= 3);
            for block in blocks.into_iter().flatten() {
                policy.deallocate(&mut device, block, Stream(1));
            }
            policy.close(&mut device);
            let device = device.into_inner();
            assert_eq!((device.reserved(), device.violations()), (0, &[][..]));
        }
    }
}
