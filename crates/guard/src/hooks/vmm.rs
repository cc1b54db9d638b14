//! Replaces the functions of virtual memory management, to count and limit physical memory and its mappings.
//!
//! Only memory on a card is counted. Memory imported from another process is counted by that process.

use core::ffi::{c_int, c_void};

use plimsoll_wire::size::ByteSize;

use crate::account::Substitute;
use crate::account::claim::ClaimOutcome;
use crate::account::physical::{self, BackingMemory};
use crate::driver::{AllocationHandle, DevicePointer, OUT_OF_MEMORY, SUCCESS};
use crate::hooks::hooks;
use crate::hooks::memory::bytes;
use crate::say::say_some;
use crate::spill::vmm::VmmProperties;
use crate::state::reservations;
use crate::{ladder, settings};

hooks! {
    in CUDA;

    fn cuMemCreate | hipMemCreate = "cuMemCreate" since 10020
        (handle: *mut AllocationHandle, size: usize, properties: *const VmmProperties, flags: u64) calls real
    {
        let ask = &mut || real(handle, size, properties, flags);
        let index = properties.as_ref().and_then(|properties| properties.location.index());
        let Some(index) = index.filter(|_| !handle.is_null()) else { return ask() };
        let outcome = ladder::ask(index, bytes(size), Substitute::Memory(handle, bytes(size)), ask);
        match outcome {
            ClaimOutcome::Given => physical::created(*handle, index, bytes(size), BackingMemory::Card),
            ClaimOutcome::Elsewhere => physical::created(*handle, index, bytes(size), BackingMemory::Host),
            ClaimOutcome::Failed(_) => {}
        }
        outcome.code()
    }

    fn cuMemRelease | hipMemRelease = "cuMemRelease" since 10020 (handle: AllocationHandle) calls real {
        physical::release(handle, || real(handle))
    }

    fn cuMemMap | hipMemMap = "cuMemMap" since 10020
        (address: DevicePointer, size: usize, offset: usize, handle: AllocationHandle, flags: u64) calls real
    {
        if reservations::beyond(address, bytes(size)) {
            say_some!("a mapping of {} at {address:#x} was refused: it is outside the addresses that the \
                driver reserved", ByteSize(bytes(size)));
            return OUT_OF_MEMORY;
        }
        let result = real(address, size, offset, handle, flags);
        if result == SUCCESS {
            physical::mapped(address, bytes(size), handle);
        }
        result
    }

    fn cuMemSetAccess | hipMemSetAccess = "cuMemSetAccess" since 10020
        (address: DevicePointer, size: usize, access: *const c_void, count: usize) calls real
    {
        let result = real(address, size, access, count);
        if result == SUCCESS {
            return result;
        }
        // A driver may refuse one call for mappings in two places; each by itself is what guard's own ranges
        // do.
        let Some(pieces) = physical::pieces_if_spilled(address, bytes(size)) else { return result };
        let mut grant = |(at, size)| real(at, usize::try_from(size).unwrap_or(usize::MAX), access, count);
        pieces.into_iter().map(&mut grant).find(|code| *code != SUCCESS).unwrap_or(SUCCESS)
    }

    fn cuMemAddressReserve | hipMemAddressReserve = "cuMemAddressReserve" since 10020
        (address: *mut DevicePointer, size: usize, alignment: usize, hint: DevicePointer, flags: u64) calls real
    {
        let result = real(address, size, alignment, hint, flags);
        if result != OUT_OF_MEMORY || address.is_null() || settings::options().chunk.is_none() {
            return result;
        }
        let given = reservations::smaller(bytes(size))
            .find(|given| real(address, usize::try_from(*given).unwrap_or(0), alignment, hint, flags) == SUCCESS);
        let Some(given) = given else { return result };
        reservations::remember(*address, bytes(size), given);
        say_some!("the driver refused to reserve {} of address space; {} were reserved instead", ByteSize(bytes(size)), ByteSize(given));
        SUCCESS
    }

    fn cuMemAddressFree | hipMemAddressFree = "cuMemAddressFree" since 10020 (address: DevicePointer, size: usize) calls real {
        let given = reservations::freed(address, bytes(size));
        real(address, usize::try_from(given).unwrap_or(size))
    }

    fn cuMemUnmap | hipMemUnmap = "cuMemUnmap" since 10020 (address: DevicePointer, size: usize) calls real {
        physical::unmap(address, bytes(size), || real(address, size))
    }

    fn cuMemRetainAllocationHandle | hipMemRetainAllocationHandle = "cuMemRetainAllocationHandle" since 11000
        (handle: *mut AllocationHandle, address: *mut c_void) calls real
    {
        let result = real(handle, address);
        if result == SUCCESS {
            physical::shared(*handle, Some(bytes(address.addr())));
        }
        result
    }

    fn cuMemImportFromShareableHandle | hipMemImportFromShareableHandle = "cuMemImportFromShareableHandle" since 10020
        (handle: *mut AllocationHandle, shared: *mut c_void, kind: c_int) calls real
    {
        let result = real(handle, shared, kind);
        if result == SUCCESS {
            physical::shared(*handle, None);
        }
        result
    }
}
