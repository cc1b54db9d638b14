//! Wrappers of the driver's virtual memory functions. A wrapper that fails leaves nothing allocated.
//!
//! Cards with peer access also get access to each mapping, as to memory of `cuMemAlloc`.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{null, null_mut, without_provenance_mut};

use crate::driver::{AllocationHandle, CuResult, DeviceOrdinal, DevicePointer, SUCCESS};
use crate::state::ranges::SpillPlace;
use crate::state::{CardIndex, peers};

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

const DEVICE: c_int = 1;
const HOST: c_int = 2;
const NODE: c_int = 3;

impl Location {
    pub(crate) const fn card(device: DeviceOrdinal) -> Self {
        Self { kind: DEVICE, id: device }
    }

    /// The card, if it is one.
    pub(crate) fn index(self) -> Option<CardIndex> {
        (self.kind == DEVICE).then(|| CardIndex::of(self.id)).flatten()
    }

    /// The location of a range's tail; None for memory that cannot be mapped.
    pub(crate) const fn of(place: SpillPlace) -> Option<Self> {
        match place {
            SpillPlace::Node(id) => Some(Self { kind: NODE, id }),
            SpillPlace::Host => Some(Self { kind: HOST, id: 0 }),
            SpillPlace::Managed | SpillPlace::Pinned => None,
        }
    }
}

// DECISION: a handle is released as soon as it is mapped, because the mapping keeps the memory. So only the
// mapping must be stored.
/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct VmmProperties {
    pub(crate) kind: c_int,
    pub(crate) handle_types: c_int,
    pub(crate) location: Location,
    windows: *const c_void,
    pub(crate) flags: u64,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Access {
    location: Location,
    flags: c_int,
}

const PINNED: c_int = 1;
const READ_WRITE: c_int = 3;
const MINIMUM: c_uint = 0;
/// The granule of every card by CUDA. HIP's is a page of 4 KiB, of which a cache would be a million mappings.
const SMALLEST: u64 = 2 << 20;

const _: () = assert!(size_of::<VmmProperties>() == 32 && size_of::<Access>() == 12);

mod real {
    use super::*;

    crate::driver::real! {
        by INTERFACE;
        cuMemGetAllocationGranularity = hipMemGetAllocationGranularity(granule: *mut u64, properties: *const VmmProperties, option: c_uint);
        cuMemAddressReserve = hipMemAddressReserve(base: *mut DevicePointer, size: u64, alignment: u64, hint: DevicePointer, flags: u64);
        cuMemAddressFree = hipMemAddressFree(base: DevicePointer, size: u64);
        cuMemCreate = hipMemCreate(handle: *mut AllocationHandle, size: u64, properties: *const VmmProperties, flags: u64);
        cuMemRelease = hipMemRelease(handle: AllocationHandle);
        cuMemRetainAllocationHandle = hipMemRetainAllocationHandle(handle: *mut AllocationHandle, at: *mut c_void);
        cuMemMap = hipMemMap(at: DevicePointer, size: u64, offset: u64, handle: AllocationHandle, flags: u64);
        cuMemUnmap = hipMemUnmap(at: DevicePointer, size: u64);
        cuMemSetAccess = hipMemSetAccess(at: DevicePointer, size: u64, access: *const Access, count: u64);
    }
}

impl VmmProperties {
    pub(crate) const fn at(location: Location) -> Self {
        Self { kind: PINNED, handle_types: 0, location, windows: null(), flags: 0 }
    }
}

fn check(code: CuResult) -> Result<(), CuResult> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// Granule of mappings of a card's memory.
pub(crate) fn granule(device: DeviceOrdinal) -> Result<u64, CuResult> {
    granule_at(Location::card(device))
}

/// Granule of mappings of memory in this place.
pub(crate) fn granule_at(location: Location) -> Result<u64, CuResult> {
    let properties = VmmProperties::at(location);
    let mut granule = 0;
    // SAFETY: the places are ours.
    check(unsafe { real::cuMemGetAllocationGranularity(&raw mut granule, &raw const properties, MINIMUM) })?;
    Ok(granule.max(SMALLEST))
}

/// Reserves addresses.
pub(crate) fn reserve(size: u64) -> Result<DevicePointer, CuResult> {
    let mut base = 0;
    // SAFETY: the place is ours.
    check(unsafe { real::cuMemAddressReserve(&raw mut base, size, 0, 0, 0) })?;
    Ok(base)
}

/// Frees addresses from which everything was unmapped.
pub(crate) fn free_addresses(base: DevicePointer, size: u64) -> Result<(), CuResult> {
    // SAFETY: addresses that `reserve` gave, from which everything was unmapped.
    check(unsafe { real::cuMemAddressFree(base, size) })
}

/// Creates physical memory.
pub(crate) fn create(size: u64, properties: &VmmProperties) -> Result<AllocationHandle, CuResult> {
    let mut handle = 0;
    // SAFETY: the places are ours.
    check(unsafe { real::cuMemCreate(&raw mut handle, size, &raw const *properties, 0) })?;
    Ok(handle)
}

/// Creates physical memory at `location` and maps it, accessible to `device` and its peers.
pub(crate) fn attach(
    at: DevicePointer,
    size: u64,
    location: Location,
    device: DeviceOrdinal,
) -> Result<(), CuResult> {
    attach_occupied(at, size, location, device).map(release)
}

/// The same, with a handle of the memory, by which it can be mapped elsewhere.
pub(crate) fn attach_occupied(
    at: DevicePointer,
    size: u64,
    location: Location,
    device: DeviceOrdinal,
) -> Result<AllocationHandle, CuResult> {
    let handle = create(size, &VmmProperties::at(location))?;
    put(at, size, handle, device).map(|()| handle).inspect_err(|_| release(handle))
}

/// Maps memory of which the caller has a handle, accessible to `device` and its peers.
pub(crate) fn put(
    at: DevicePointer,
    size: u64,
    handle: AllocationHandle,
    device: DeviceOrdinal,
) -> Result<(), CuResult> {
    map(at, size, handle)?;
    allow(at, size, device)
}

fn map(at: DevicePointer, size: u64, handle: AllocationHandle) -> Result<(), CuResult> {
    // SAFETY: addresses of a reservation of ours.
    check(unsafe { real::cuMemMap(at, size, 0, handle, 0) })
}

/// Lets a card and its peers read and write a new mapping, which is undone if the card itself may not.
fn allow(at: DevicePointer, size: u64, device: DeviceOrdinal) -> Result<(), CuResult> {
    let access = grant(at, size, device).and_then(|()| {
        // A peer that gets no access finds out when it touches the memory, as with any memory that is not
        // shared.
        peers::of(device).try_for_each(|peer| grant(at, size, peer).or(Ok(())))
    });
    access.inspect_err(|_| {
        let _ = detach(at, size);
    })
}

/// A new handle of the memory behind an address.
pub(crate) fn retain(at: DevicePointer) -> Result<AllocationHandle, CuResult> {
    let mut handle = 0;
    let address = usize::try_from(at).map_or(null_mut(), without_provenance_mut);
    // SAFETY: the place is ours; the address is not read.
    check(unsafe { real::cuMemRetainAllocationHandle(&raw mut handle, address) })?;
    Ok(handle)
}

/// Gives a handle back; a mapping keeps its memory.
pub(crate) fn release(handle: AllocationHandle) {
    // SAFETY: a handle that `create` or `retain` gave, once.
    unsafe { real::cuMemRelease(handle) };
}

/// Lets a card read and write a mapping.
pub(crate) fn grant(at: DevicePointer, size: u64, device: DeviceOrdinal) -> Result<(), CuResult> {
    let access = Access { location: Location::card(device), flags: READ_WRITE };
    // SAFETY: a mapping of ours.
    check(unsafe { real::cuMemSetAccess(at, size, &raw const access, 1) })
}

/// Unmaps the memory of one [`attach`], which frees it. Does not wait for the card.
pub(crate) fn detach(at: DevicePointer, size: u64) -> Result<(), CuResult> {
    // SAFETY: a mapping of ours, whole.
    check(unsafe { real::cuMemUnmap(at, size) })
}
