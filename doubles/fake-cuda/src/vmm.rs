//! Virtual memory management in the fake CUDA driver: address ranges, physical blocks and mappings as
//! separate objects.
//!
//! The documented requirements are enforced. Ranges are in granules, mappings start at offset 0 of a block,
//! and access is set for whole mappings. Host access is only for host memory. `cuMemUnmap` does not wait for
//! the GPU. If it should have waited, it returns no error, but the log has a violation.

use crate::abi::structs::{
    AccessDesc, AllocationProp, LOCATION_DEVICE, LOCATION_HOST, LOCATION_HOST_NUMA, Location,
};
use crate::abi::{DevicePtr, In, Out, Physical};
use crate::blocks::{GRANULE, Place};
use crate::call::driver;
use crate::code::{Code, INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, Outcome};
use crate::driver::{Driver, driver};
use crate::log::violation;
use crate::settings::settings;
use crate::space::{Access, Behind, Kind, Region, Segment};

/// The only kind of allocation: pinned.
const PINNED: i32 = 1;
const POSIX_DESCRIPTOR: i32 = 1;
const NODES: i32 = 64;

fn supported() -> Outcome {
    if settings().vmm { Ok(()) } else { Err(NOT_SUPPORTED) }
}

fn in_granules(values: &[u64]) -> Outcome {
    let whole = values.iter().all(|value| value.is_multiple_of(GRANULE));
    if whole { Ok(()) } else { Err(INVALID_VALUE) }
}

impl Driver {
    pub(crate) fn place_of(&self, location: Location) -> Result<Place, Code> {
        let place = match location.kind {
            LOCATION_DEVICE => Place::Card(self.device(location.id)?),
            LOCATION_HOST => Place::Host(Location { id: 0, ..location }),
            LOCATION_HOST_NUMA if (0..NODES).contains(&location.id) => Place::Host(location),
            LOCATION_HOST_NUMA => return Err(INVALID_DEVICE),
            _ => return Err(INVALID_VALUE),
        };
        if settings().refuse.contains(&location.kind) { Err(NOT_SUPPORTED) } else { Ok(place) }
    }

    /// The reservation that a range lies in.
    fn reservation(&self, at: DevicePtr, length: u64) -> Result<Region, Code> {
        let (start, region) = self.space.region(at).ok_or(INVALID_VALUE)?;
        let inside = at.0.checked_add(length).is_some_and(|end| end <= start + region.length);
        if region.kind == Kind::Reserved && inside && length > 0 { Ok(*region) } else { Err(INVALID_VALUE) }
    }

    fn unmap(&mut self, at: DevicePtr, length: u64) -> Outcome {
        self.reservation(at, length)?;
        let range = at.0..at.0 + length;
        let segments = self.space.exactly(range.clone()).ok_or(INVALID_VALUE)?;
        self.expect_idle("cuMemUnmap", range);
        for (start, segment) in segments {
            self.space.segments.remove(&start);
            if segment.access.host != 0 {
                self.space.close_to_host(start, segment.length)?;
            }
            if let Behind::Block(physical, _) = segment.behind {
                self.note_unmapped(start, physical, segment.length);
                self.release_mapping(physical);
            }
        }
        Ok(())
    }

    /// One grant for one mapping.
    fn grant(&self, at: u64, segment: &Segment, desc: &AccessDesc) -> Result<Access, Code> {
        let mut access = segment.access;
        let (reads, writes) = match desc.flags {
            0 => (false, false),
            1 => (true, false),
            3 => (true, true),
            _ => return Err(INVALID_VALUE),
        };
        let Behind::Block(physical, offset) = segment.behind else {
            return Err(INVALID_VALUE);
        };
        let block = self.blocks.get(physical)?;
        match desc.location.kind {
            LOCATION_DEVICE => {
                let bit = 1 << self.device(desc.location.id)?;
                access.readers = if reads { access.readers | bit } else { access.readers & !bit };
                access.writers = if writes { access.writers | bit } else { access.writers & !bit };
            }
            LOCATION_HOST | LOCATION_HOST_NUMA if block.is_host() => {
                if reads {
                    self.space.open_to_host(at, block, offset, segment.length)?
                } else {
                    self.space.close_to_host(at, segment.length)?
                }
                access.host = desc.flags;
            }
            _ => return Err(INVALID_VALUE),
        }
        Ok(access)
    }
}

driver! {
    fn cuMemGetAllocationGranularity = "cuMemGetAllocationGranularity" since 10020
        (granularity: Out<u64>, prop: In<AllocationProp>, option: i32)
    {
        supported()?;
        driver()?.place_of(prop.get()?.location)?;
        match option {
            0 | 1 => granularity.set(GRANULE),
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuMemAddressReserve = "cuMemAddressReserve" since 10020
        (ptr: Out<DevicePtr>, size: u64, alignment: u64, addr: DevicePtr, flags: u64)
    {
        supported()?;
        in_granules(&[size])?;
        if ptr.is_null() || size == 0 || flags != 0 || !(alignment == 0 || alignment.is_power_of_two()) {
            return Err(INVALID_VALUE);
        }
        if size > settings().reserve {
            return Err(OUT_OF_MEMORY);
        }
        let mut driver = driver()?;
        let at = driver.space.take(size, alignment.max(GRANULE), addr.0)?;
        let region = Region { length: size, kind: Kind::Reserved, card: 0, context: None, id: driver.new_handle() };
        driver.space.regions.insert(at, region);
        ptr.set(DevicePtr(at))
    }

    fn cuMemAddressFree = "cuMemAddressFree" since 10020 (ptr: DevicePtr, size: u64) {
        let mut driver = driver()?;
        let whole = |region: &&Region| region.kind == Kind::Reserved && region.length == size;
        driver.space.regions.get(&ptr.0).filter(whole).ok_or(INVALID_VALUE)?;
        if driver.space.any_in(ptr.0..ptr.0 + size) {
            violation("still-mapped", format_args!("cuMemAddressFree of {ptr} with mappings in it"));
            return Err(INVALID_VALUE);
        }
        driver.space.regions.remove(&ptr.0);
        driver.space.give(ptr.0)
    }

    fn cuMemCreate = "cuMemCreate" since 10020
        (handle: Out<Physical>, size: u64, prop: In<AllocationProp>, flags: u64)
    {
        supported()?;
        let prop = prop.get()?;
        in_granules(&[size])?;
        if handle.is_null() || size == 0 || flags != 0 || prop.kind != PINNED {
            return Err(INVALID_VALUE);
        }
        let mut driver = driver()?;
        let place = driver.place_of(prop.location)?;
        let physical = driver.new_block(place, size, prop.handle_types & POSIX_DESCRIPTOR != 0)?;
        driver.blocks.get_mut(physical)?.prop = Some(prop);
        handle.set(physical)
    }

    fn cuMemRelease = "cuMemRelease" since 10020 (handle: Physical) {
        driver()?.release_handle(handle)
    }

    fn cuMemMap = "cuMemMap" since 10020
        (ptr: DevicePtr, size: u64, offset: u64, handle: Physical, flags: u64)
    {
        in_granules(&[ptr.0, size])?;
        let mut driver = driver()?;
        driver.reservation(ptr, size)?;
        let block = driver.blocks.get(handle)?;
        if offset != 0 || flags != 0 || size > block.size || block.handles == 0 {
            return Err(INVALID_VALUE);
        }
        if driver.space.any_in(ptr.0..ptr.0 + size) {
            return Err(INVALID_VALUE);
        }
        driver.blocks.get_mut(handle)?.mapped += 1;
        let behind = Behind::Block(handle, offset);
        driver.space.segments.insert(ptr.0, Segment { length: size, behind, access: Access::default() });
        driver.note_mapped(ptr.0, handle, size);
        Ok(())
    }

    fn cuMemUnmap = "cuMemUnmap" since 10020 (ptr: DevicePtr, size: u64) {
        driver()?.unmap(ptr, size)
    }

    fn cuMemSetAccess = "cuMemSetAccess" since 10020
        (ptr: DevicePtr, size: u64, desc: In<AccessDesc>, count: usize)
    {
        let wanted = desc.list(count)?;
        let mut driver = driver()?;
        driver.reservation(ptr, size)?;
        for (at, mut segment) in driver.space.exactly(ptr.0..ptr.0 + size).ok_or(INVALID_VALUE)? {
            for desc in &wanted {
                segment.access = driver.grant(at, &segment, desc)?;
            }
            driver.space.segments.insert(at, segment);
        }
        Ok(())
    }

    fn cuMemGetAccess = "cuMemGetAccess" since 10020
        (flags: Out<u64>, location: In<Location>, ptr: DevicePtr)
    {
        let location = location.get()?;
        let driver = driver()?;
        let covering = driver.space.cover(ptr, 1).ok_or(INVALID_VALUE)?;
        let access = covering.first().ok_or(INVALID_VALUE)?.1.access;
        let granted = match location.kind {
            LOCATION_DEVICE => {
                let card = driver.device(location.id)?;
                u64::from(access.permits(card, false)) | u64::from(access.permits(card, true)) << 1
            }
            _ => u64::try_from(access.host).unwrap_or(0),
        };
        flags.set(granted)
    }

    fn cuMemRetainAllocationHandle = "cuMemRetainAllocationHandle" since 11000
        (handle: Out<Physical>, addr: DevicePtr)
    {
        let mut driver = driver()?;
        let (_, region) = driver.space.region(addr).ok_or(INVALID_VALUE)?;
        let covering = driver.space.cover(addr, 1).filter(|_| region.kind == Kind::Reserved);
        let Some((_, Segment { behind: Behind::Block(physical, _), .. })) =
            covering.ok_or(INVALID_VALUE)?.first().copied()
        else {
            return Err(INVALID_VALUE);
        };
        driver.blocks.get_mut(physical)?.handles += 1;
        handle.set(physical)
    }

    fn cuMemGetAllocationPropertiesFromHandle = "cuMemGetAllocationPropertiesFromHandle" since 10020
        (prop: Out<AllocationProp>, handle: Physical)
    {
        prop.set(driver()?.blocks.get(handle)?.prop.ok_or(INVALID_VALUE)?)
    }
}

#[cfg(test)]
mod tests;
