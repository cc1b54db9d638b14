//! Where policies get their memory from.

use std::collections::BTreeMap;
use std::fmt;

/// A position on a device, in bytes. Not a pointer: policies compute, they do not touch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

/// The device has not got that much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    pub asked: u64,
    pub free: u64,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes were asked for and {} are free",
            self.asked, self.free
        )
    }
}

impl std::error::Error for OutOfMemory {}

/// Memory by whole allocations, as `cudaMalloc` and `cudaFree` give it.
pub trait Device {
    /// What the device rounds every allocation up to.
    fn granule(&self) -> u64;

    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory>;

    /// Gives an allocation back; the address must be one that `allocate` returned and nobody has freed.
    fn free(&mut self, address: Address);
}

/// A device of so many bytes that remembers what it gave out. Addresses are never used twice, so that whoever
/// holds on to a freed one is found out.
#[derive(Clone, Debug)]
pub struct Simulated {
    granule: u64,
    free: u64,
    next: u64,
    live: BTreeMap<Address, u64>,
}

impl Simulated {
    /// A device of `total` bytes that are given out in multiples of `granule`, which must not be 0.
    pub fn new(total: u64, granule: u64) -> Self {
        Self {
            granule: granule.max(1),
            free: total,
            next: 0,
            live: BTreeMap::new(),
        }
    }

    /// Bytes not given out.
    pub fn available(&self) -> u64 {
        self.free
    }

    /// Allocations not given back.
    pub fn live(&self) -> usize {
        self.live.len()
    }
}

impl Device for Simulated {
    fn granule(&self) -> u64 {
        self.granule
    }

    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        let refused = OutOfMemory {
            asked: size,
            free: self.free,
        };
        let rounded = size
            .max(1)
            .checked_next_multiple_of(self.granule)
            .ok_or(refused)?;
        let address = Address(self.next);
        let next = self.next.checked_add(rounded).ok_or(refused)?;
        self.free = self.free.checked_sub(rounded).ok_or(refused)?;
        self.next = next;
        self.live.insert(address, rounded);
        Ok(address)
    }

    /// # Panics
    ///
    /// If the address is not live: a policy that frees twice is wrong, and a simulation exists to say so.
    fn free(&mut self, address: Address) {
        let size = self
            .live
            .remove(&address)
            .unwrap_or_else(|| panic!("{address:?} is not live"));
        self.free += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_rounded_and_bounded_and_come_back() {
        let mut device = Simulated::new(10, 4);
        let first = device.allocate(1).unwrap();
        let second = device.allocate(4).unwrap();
        assert_ne!(first, second);
        assert_eq!(device.allocate(1), Err(OutOfMemory { asked: 1, free: 2 }));
        assert_eq!(
            device.allocate(u64::MAX),
            Err(OutOfMemory {
                asked: u64::MAX,
                free: 2
            })
        );
        device.free(first);
        device.free(second);
        assert_eq!((device.available(), device.live()), (10, 0));
    }

    #[test]
    #[should_panic(expected = "Address(0) is not live")]
    fn a_second_free_is_found_out() {
        let mut device = Simulated::new(4, 4);
        let address = device.allocate(4).unwrap();
        device.free(address);
        device.free(address);
    }
}
