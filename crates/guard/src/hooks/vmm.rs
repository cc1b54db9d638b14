//! Virtual memory management: physical memory, its handles and its mappings.
//!
//! Only memory that is to lie on a card is counted. Handles that came from another process are that process's memory.

use core::ffi::{c_int, c_uchar, c_ushort, c_void};

use crate::account::physical;
use crate::account::request::{self, Outcome};
use crate::driver::{DevicePointer, Handle, SUCCESS};
use crate::hooks::hooks;
use crate::hooks::memory::bytes;
use crate::hooks::pools::Location;

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    pub(crate) kind: c_int,
    pub(crate) handles: c_int,
    pub(crate) location: Location,
    pub(crate) security: *mut c_void,
    pub(crate) compression: c_uchar,
    pub(crate) direct: c_uchar,
    pub(crate) usage: c_ushort,
    pub(crate) reserved: [c_uchar; 4],
}

const _: () = assert!(size_of::<Properties>() == 32);

hooks! {
    in CUDA;

    fn cuMemCreate = "cuMemCreate" since 10020
        (handle: *mut Handle, size: usize, properties: *const Properties, flags: u64) calls real
    {
        let ask = &mut || real(handle, size, properties, flags);
        let index = properties.as_ref().and_then(|properties| properties.location.card());
        let Some(index) = index.filter(|_| !handle.is_null()) else { return ask() };
        let outcome = request::ask(index, bytes(size), None, ask);
        if outcome == Outcome::Given {
            physical::created(*handle, index, bytes(size));
        }
        outcome.code()
    }

    fn cuMemRelease = "cuMemRelease" since 10020 (handle: Handle) calls real {
        let leaving = physical::leaving(handle);
        let result = real(handle);
        if let Some(leaving) = leaving {
            if result == SUCCESS {
                physical::released(leaving);
            } else {
                physical::kept(leaving);
            }
        }
        result
    }

    fn cuMemMap = "cuMemMap" since 10020
        (address: DevicePointer, size: usize, offset: usize, handle: Handle, flags: u64) calls real
    {
        let result = real(address, size, offset, handle, flags);
        if result == SUCCESS {
            physical::mapped(address, bytes(size), handle);
        }
        result
    }

    fn cuMemUnmap = "cuMemUnmap" since 10020 (address: DevicePointer, size: usize) calls real {
        let mappings = physical::unmapping(address, bytes(size));
        let result = real(address, size);
        if result == SUCCESS {
            physical::unmapped(mappings);
        } else {
            physical::remapped(mappings);
        }
        result
    }

    fn cuMemRetainAllocationHandle = "cuMemRetainAllocationHandle" since 11000
        (handle: *mut Handle, address: *mut c_void) calls real
    {
        let result = real(handle, address);
        if result == SUCCESS {
            physical::shared(*handle, Some(bytes(address.addr())));
        }
        result
    }

    fn cuMemImportFromShareableHandle = "cuMemImportFromShareableHandle" since 10020
        (handle: *mut Handle, shared: *mut c_void, kind: c_int) calls real
    {
        let result = real(handle, shared, kind);
        if result == SUCCESS {
            physical::shared(*handle, None);
        }
        result
    }
}
