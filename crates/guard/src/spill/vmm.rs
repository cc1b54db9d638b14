//! The driver's virtual memory management, as the few acts that guard needs, each of which leaves nothing behind when it fails.
//!
//! A handle is released as soon as it is mapped: the mapping keeps the memory, and unmapping frees it, so there is one thing to
//! remember and not two. Access is given per mapping, because a host part may be given less than a device part (CUDA programming
//! guide, virtual memory management); cards that were made peers of the owner get it too, as they would for cuMemAlloc.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::null;

use super::cascade::Place;
use super::{peers, quiet};
use crate::driver::{CuResult, Device, DevicePointer, Handle, SUCCESS};

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

pub(crate) const DEVICE: c_int = 1;
const HOST: c_int = 2;
const NODE: c_int = 3;

impl Location {
    pub(crate) const fn card(device: Device) -> Self {
        Self {
            kind: DEVICE,
            id: device,
        }
    }

    /// Where the tail of a range lies; None for what cannot be mapped.
    pub(crate) const fn of(place: Place) -> Option<Self> {
        match place {
            Place::Node(id) => Some(Self { kind: NODE, id }),
            Place::Host => Some(Self { kind: HOST, id: 0 }),
            Place::Managed | Place::Pinned => None,
        }
    }
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
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

const _: () = assert!(size_of::<Properties>() == 32 && size_of::<Access>() == 12);

mod real {
    use super::*;

    crate::driver::real! {
        in CUDA;
        cuMemGetAllocationGranularity(granule: *mut u64, properties: *const Properties, option: c_uint);
        cuMemAddressReserve(base: *mut DevicePointer, size: u64, alignment: u64, hint: DevicePointer, flags: u64);
        cuMemAddressFree(base: DevicePointer, size: u64);
        cuMemCreate(handle: *mut Handle, size: u64, properties: *const Properties, flags: u64);
        cuMemRelease(handle: Handle);
        cuMemMap(at: DevicePointer, size: u64, offset: u64, handle: Handle, flags: u64);
        cuMemUnmap(at: DevicePointer, size: u64);
        cuMemSetAccess(at: DevicePointer, size: u64, access: *const Access, count: u64);
        cuMemGetInfo_v2(free: *mut u64, total: *mut u64);
    }
}

impl Properties {
    pub(crate) const fn at(location: Location) -> Self {
        Self {
            kind: PINNED,
            handle_types: 0,
            location,
            windows: null(),
            flags: 0,
        }
    }
}

fn check(code: CuResult) -> Result<(), CuResult> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// What mappings of a card's memory are multiples of.
pub(crate) fn granule(device: Device) -> Result<u64, CuResult> {
    granule_at(Location::card(device))
}

/// What mappings of memory in this place are multiples of.
pub(crate) fn granule_at(location: Location) -> Result<u64, CuResult> {
    let properties = Properties::at(location);
    let mut granule = 0;
    // SAFETY: the places are ours.
    check(unsafe { real::cuMemGetAllocationGranularity(&raw mut granule, &raw const properties, MINIMUM) })?;
    Ok(granule.max(1))
}

pub(crate) fn reserve(size: u64) -> Result<DevicePointer, CuResult> {
    let mut base = 0;
    // SAFETY: the place is ours.
    check(unsafe { real::cuMemAddressReserve(&raw mut base, size, 0, 0, 0) })?;
    Ok(base)
}

pub(crate) fn free_addresses(base: DevicePointer, size: u64) -> Result<(), CuResult> {
    // SAFETY: addresses that `reserve` gave, from which everything was unmapped.
    check(unsafe { real::cuMemAddressFree(base, size) })
}

/// Physical memory.
pub(crate) fn create(size: u64, properties: &Properties) -> Result<Handle, CuResult> {
    let mut handle = 0;
    // SAFETY: the places are ours.
    check(unsafe { real::cuMemCreate(&raw mut handle, size, &raw const *properties, 0) })?;
    Ok(handle)
}

/// Makes physical memory at `location` and maps it, so that `device` and its peers can use it.
pub(crate) fn attach(
    at: DevicePointer,
    size: u64,
    location: Location,
    device: Device,
) -> Result<(), CuResult> {
    let handle = create(size, &Properties::at(location))?;
    // SAFETY: addresses of a reservation of ours; the handle is let go of once, whether it was mapped or not.
    let mapped = unsafe {
        let mapped = real::cuMemMap(at, size, 0, handle, 0);
        real::cuMemRelease(handle);
        mapped
    };
    check(mapped)?;
    let access = grant(at, size, device).and_then(|()| {
        // A peer that gets no access finds out when it touches the memory, as with any memory that is not shared.
        peers::of(device).try_for_each(|peer| grant(at, size, peer).or(Ok(())))
    });
    access.inspect_err(|_| {
        let _ = detach(at, size);
    })
}

/// Lets a card read and write a mapping.
pub(crate) fn grant(at: DevicePointer, size: u64, device: Device) -> Result<(), CuResult> {
    let access = Access {
        location: Location::card(device),
        flags: READ_WRITE,
    };
    // SAFETY: a mapping of ours.
    check(unsafe { real::cuMemSetAccess(at, size, &raw const access, 1) })
}

/// Unmaps what one [`attach`] mapped, which frees it. Does not wait for the GPU.
pub(crate) fn detach(at: DevicePointer, size: u64) -> Result<(), CuResult> {
    // SAFETY: a mapping of ours, whole.
    check(unsafe { real::cuMemUnmap(at, size) })
}

/// What the driver has free on a card and what the card has in all, if the calling thread's context is on it.
pub(crate) fn memory_of(device: Device) -> Option<(u64, u64)> {
    (quiet::device() == Some(device)).then(memory).flatten()
}

/// What the driver has free on the card of the calling thread's context, and what the card has in all.
pub(crate) fn memory() -> Option<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the places are ours.
    let code = unsafe { real::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    (code == SUCCESS).then_some((free, total))
}
