//! Replaces the memory functions of CUDA's driver (`nvcuda.dll`).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use plimsoll_wire::page::UNLIMITED;

use super::{hooks, replacement_asked};
use crate::cards::{self, CardIndex};
use crate::driver::{CuResult, DevicePointer, Handle, SUCCESS, bytes};
use crate::{blocks, refusal, settings, takeover};

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: c_int = 1;
/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
const VIRTUAL_MEMORY: c_int = 102;
/// The driver rounds rows up to this, on every card there has been.
const ROW: u64 = 512;

/// First fields of `CUmemAllocationProp` (cuda.h @ 12.4).
#[repr(C)]
#[derive(Debug)]
struct ChunkProperties {
    kind: c_int,
    handles: c_int,
    location: c_int,
    device: c_int,
}

hooks! {
    fn cuMemAlloc_v2 = "cuMemAlloc" (pointer: *mut DevicePointer, size: usize) calls real {
        linear(cards::current(), pointer, bytes(size), &mut || real(pointer, size))
    }

    fn cuMemAllocPitch_v2 = "cuMemAllocPitch"
        (pointer: *mut DevicePointer, pitch: *mut usize, width: usize, height: usize, element: c_uint) calls real
    {
        let row = bytes(width).checked_next_multiple_of(ROW).unwrap_or(u64::MAX);
        let size = row.saturating_mul(bytes(height));
        linear(cards::current(), pointer, size, &mut || real(pointer, pitch, width, height, element))
    }

    fn cuMemFree_v2 = "cuMemFree" (pointer: DevicePointer) calls real {
        blocks::free(pointer, || real(pointer))
    }

    fn cuMemAllocAsync = "cuMemAllocAsync" (pointer: *mut DevicePointer, size: usize, stream: Handle) calls real {
        linear(cards::current(), pointer, bytes(size), &mut || real(pointer, size, stream))
    }

    fn cuMemFreeAsync = "cuMemFreeAsync" (pointer: DevicePointer, stream: Handle) calls real {
        blocks::free(pointer, || real(pointer, stream))
    }

    fn cuMemCreate = "cuMemCreate" (handle: *mut u64, size: usize, properties: *const c_void, flags: u64) calls real {
        let mut ask = || real(handle, size, properties, flags);
        let asked = properties.cast::<ChunkProperties>().as_ref().filter(|asked| asked.location == DEVICE);
        match asked.and_then(|asked| cards::of(asked.device)) {
            Some(card) => {
                let code = refusal::ask(card, bytes(size), &mut ask);
                if code == SUCCESS {
                    blocks::chunk_created(*handle, card, bytes(size));
                }
                code
            }
            None => ask(),
        }
    }

    fn cuMemRelease = "cuMemRelease" (handle: u64) calls real {
        let code = real(handle);
        if code == SUCCESS {
            blocks::chunk_released(handle);
        }
        code
    }

    fn cuMemMap = "cuMemMap" (at: DevicePointer, size: usize, offset: usize, handle: u64, flags: u64) calls real {
        let code = real(at, size, offset, handle, flags);
        if code == SUCCESS {
            blocks::chunk_mapped(at, handle);
        }
        code
    }

    fn cuMemUnmap = "cuMemUnmap" (at: DevicePointer, size: usize) calls real {
        let code = real(at, size);
        if code == SUCCESS {
            blocks::chunks_unmapped(at, bytes(size));
        }
        code
    }

    fn cuMemGetInfo_v2 = "cuMemGetInfo" (free: *mut usize, total: *mut usize) calls real {
        let code = real(free, total);
        if code == SUCCESS {
            show_budget(free, total);
        }
        code
    }

    fn cuDeviceTotalMem_v2 = "cuDeviceTotalMem" (total: *mut usize, device: c_int) calls real {
        let code = real(total, device);
        if code == SUCCESS && let Some(card) = cards::of(device) {
            lower(total, card.budget());
        }
        code
    }

    fn cuDeviceGetAttribute = "cuDeviceGetAttribute" (value: *mut c_int, attribute: c_int, device: c_int) calls real {
        let code = real(value, attribute, device);
        let hides = settings::options().is_some_and(|options| options.hide_vmm);
        if code == SUCCESS && hides && attribute == VIRTUAL_MEMORY {
            *value = 0;
        }
        code
    }

    fn cuGetProcAddress_v2 = "cuGetProcAddress"
        (name: *const c_char, function: *mut usize, version: c_int, flags: u64, status: *mut c_int) calls real
    {
        hand_out(name, function, real(name, function, version, flags, status))
    }

    fn cuGetProcAddress = "" (name: *const c_char, function: *mut usize, version: c_int, flags: u64) calls real {
        hand_out(name, function, real(name, function, version, flags))
    }
}

/// A request for memory of a card, which is charged with it.
///
/// # Safety
/// After `ask` succeeds, `pointer` can be read.
pub(super) unsafe fn linear(
    card: Option<CardIndex>,
    pointer: *mut DevicePointer,
    size: u64,
    ask: &mut dyn FnMut() -> CuResult,
) -> CuResult {
    takeover::say_absent();
    // Without a place or a context the driver has its own answer.
    let Some(card) = card.filter(|_| !pointer.is_null()) else { return ask() };
    let code = refusal::ask(card, size, ask);
    if code == SUCCESS {
        // SAFETY: as the caller promises.
        blocks::insert(unsafe { *pointer }, card, size);
    }
    code
}

/// Replaces free and total memory by those of the budget.
///
/// # Safety
/// Null, or sizes that the driver has written.
pub(super) unsafe fn show_budget(free: *mut usize, total: *mut usize) {
    if let Some(card) = cards::current() {
        // SAFETY: as the caller promises.
        unsafe {
            lower(free, card.headroom());
            lower(total, card.budget());
        }
    }
}

/// Lowers a size to a limit.
///
/// # Safety
/// Null, or a size that the driver has written.
pub(super) unsafe fn lower(place: *mut usize, limit: u64) {
    // SAFETY: as the caller promises.
    if let Some(size) = unsafe { place.as_mut() }.filter(|_| limit != UNLIMITED) {
        *size = (*size).min(usize::try_from(limit).unwrap_or(usize::MAX));
    }
}

/// Replaces a function that the driver has handed out.
///
/// # Safety
/// A name that ends in zero and, after success, an address.
unsafe fn hand_out(name: *const c_char, function: *mut usize, code: CuResult) -> CuResult {
    // SAFETY: as the caller promises.
    let (name, function) = unsafe { (CStr::from_ptr(name), function.as_mut()) };
    if code == SUCCESS
        && let (Ok(name), Some(function)) = (name.to_str(), function)
        && let Some(replacement) = replacement_asked(name, *function)
    {
        *function = replacement;
    }
    code
}
