//! Linear device memory in the fake CUDA driver: `cuMemAlloc` and related functions.

use crate::abi::{DevicePtr, Out};
use crate::call::driver;
use crate::capture::forbid_in_capture;
use crate::chunks::ALIGNMENT;
use crate::code::{INVALID_VALUE, NOT_FOUND, OUT_OF_MEMORY, Outcome};
use crate::driver::driver;
use crate::space::Kind;
use crate::work::{Scope, synchronise};

fn allocate(address: Out<DevicePtr>, length: u64) -> Outcome {
    if address.is_null() {
        return Err(INVALID_VALUE);
    }
    forbid_in_capture()?;
    let allocated = driver()?.allocate(length, Kind::Linear)?;
    address.set(allocated)
}

/// Waits for the work of the memory's context, then frees: `cuMemFree` promises both.
fn free(address: DevicePtr) -> Outcome {
    forbid_in_capture()?;
    if address.0 == 0 {
        return Ok(());
    }
    let region = driver()?.space.regions.get(&address.0).copied().ok_or(INVALID_VALUE)?;
    let scope = match region.kind {
        Kind::Linear | Kind::Small | Kind::Managed | Kind::Pooled(_) | Kind::InGraph => {
            region.context.map_or(Scope::Everything, Scope::Context)
        }
        _ => return Err(INVALID_VALUE),
    };
    synchronise(scope)?;
    let mut driver = driver()?;
    match region.kind {
        Kind::Pooled(pool) => driver.return_to(pool, address, region.length, 0),
        _ => driver.end_region(address.0),
    }
}

fn memory_info(free: Out<u64>, total: Out<u64>) -> Outcome {
    let driver = driver()?;
    let (left, all) = driver.memory_of(driver.current_card()?);
    // The driver takes null for what is not of interest; OptiX passes it.
    free.set_if_wanted(left);
    total.set_if_wanted(all);
    Ok(())
}

driver! {
    fn cuMemGetInfo = "cuMemGetInfo" since 2000 (free: Out<u32>, total: Out<u32>) {
        let driver = driver()?;
        let (left, all) = driver.memory_of(driver.current_card()?);
        free.set(u32::try_from(left).unwrap_or(u32::MAX))?;
        total.set(u32::try_from(all).unwrap_or(u32::MAX))
    }

    fn cuMemGetInfo_v2 = "cuMemGetInfo" since 3020 (free: Out<u64>, total: Out<u64>) {
        memory_info(free, total)
    }

    fn cuMemAlloc = "cuMemAlloc" since 2000 (dptr: Out<u32>, bytesize: u32) {
        let _ = (dptr, bytesize);
        // Our addresses do not fit into the 32 bits of this ABI.
        Err(OUT_OF_MEMORY)
    }

    fn cuMemAlloc_v2 = "cuMemAlloc" since 3020 (dptr: Out<DevicePtr>, bytesize: u64) {
        allocate(dptr, bytesize)
    }

    fn cuMemAllocPitch_v2 = "cuMemAllocPitch" since 3020
        (dptr: Out<DevicePtr>, pPitch: Out<u64>, WidthInBytes: u64, Height: u64, ElementSizeBytes: u32)
    {
        if pPitch.is_null() || !matches!(ElementSizeBytes, 4 | 8 | 16) {
            return Err(INVALID_VALUE);
        }
        let pitch = WidthInBytes.checked_next_multiple_of(ALIGNMENT).ok_or(OUT_OF_MEMORY)?;
        allocate(dptr, pitch.checked_mul(Height).ok_or(OUT_OF_MEMORY)?)?;
        pPitch.set(pitch)
    }

    fn cuMemFree = "cuMemFree" since 2000 (dptr: u32) {
        free(DevicePtr(dptr.into()))
    }

    fn cuMemFree_v2 = "cuMemFree" since 3020 (dptr: DevicePtr) {
        free(dptr)
    }

    fn cuMemGetAddressRange_v2 = "cuMemGetAddressRange" since 3020
        (pbase: Out<DevicePtr>, psize: Out<u64>, dptr: DevicePtr)
    {
        let driver = driver()?;
        let (start, region) = driver.space.region(dptr).ok_or(NOT_FOUND)?;
        let (base, size) = match region.kind {
            // The driver answers with the bounds of the one handle that is mapped there.
            Kind::Reserved => {
                let covering = driver.space.cover(dptr, 1).ok_or(NOT_FOUND)?;
                covering.first().map(|(at, segment)| (*at, segment.length)).ok_or(NOT_FOUND)?
            }
            _ => (start, region.length),
        };
        pbase.set_if_wanted(DevicePtr(base));
        psize.set_if_wanted(size);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Stream;
    use crate::alone::{alone, broken, code, get, ok, start};
    use crate::code::SUCCESS;
    use crate::fill::cuMemsetD8Async;
    use crate::streams::cuStreamCreate;

    const MIB: u64 = 1 << 20;

    fn free_mib() -> u64 {
        let total = &mut std::mem::MaybeUninit::uninit();
        get(|free| cuMemGetInfo_v2(free, Out::to(total))) / MIB
    }

    #[test]
    fn small_allocations_share_chunks_and_large_ones_take_granules() {
        alone("total=1G context=24M", || {
            start();
            assert_eq!(free_mib(), 1000);
            let small: Vec<DevicePtr> = (0..3).map(|_| get(|at| cuMemAlloc_v2(at, MIB / 2))).collect();
            assert_eq!(free_mib(), 998);
            let large = get(|at| cuMemAlloc_v2(at, MIB + 1));
            assert_eq!(free_mib(), 996);
            small.into_iter().for_each(|at| ok(cuMemFree_v2(at)));
            assert_eq!(free_mib(), 998);
            ok(cuMemFree_v2(large));
            assert_eq!(free_mib(), 1000);
            assert_eq!(cuMemFree_v2(large), INVALID_VALUE, "it is freed already");
        });
    }

    #[test]
    fn the_card_gives_its_last_byte_and_no_more() {
        alone("total=64M context=0", || {
            start();
            let all = get(|at| cuMemAlloc_v2(at, 64 * MIB));
            assert_eq!(code(|at| cuMemAlloc_v2(at, 1)), OUT_OF_MEMORY);
            ok(cuMemFree_v2(all));
            assert_eq!(code(|at| cuMemAlloc_v2(at, 64 * MIB + 1)), OUT_OF_MEMORY);
            assert_eq!(code(|at| cuMemAlloc_v2(at, u64::MAX)), OUT_OF_MEMORY);
            assert_eq!(code(|at| cuMemAlloc_v2(at, 0)), INVALID_VALUE);
            assert_eq!(free_mib(), 64);
        });
    }

    #[test]
    fn one_large_request_can_be_refused_though_much_is_free() {
        alone("largest=32M fail=2", || {
            start();
            assert_eq!(code(|at| cuMemAlloc_v2(at, 33 * MIB)), OUT_OF_MEMORY);
            assert_eq!(code(|at| cuMemAlloc_v2(at, 2 * MIB)), OUT_OF_MEMORY, "the second fails");
            assert_eq!(code(|at| cuMemAlloc_v2(at, 32 * MIB)), SUCCESS);
        });
    }

    #[test]
    fn a_free_waits_for_the_work_on_the_memory() {
        let log = alone("delay=1000 clock=queries", || {
            start();
            let stream: Stream = get(|stream| cuStreamCreate(stream, 1));
            let memory = get(|at| cuMemAlloc_v2(at, 4 * MIB));
            ok(cuMemsetD8Async(memory, 1, 4 * MIB, stream));
            ok(cuMemFree_v2(memory));
        });
        assert_eq!(broken(&log), Vec::<&str>::new());
    }

    #[test]
    fn a_pitch_is_a_multiple_of_the_alignment() {
        alone("", || {
            start();
            let pitch = get(|pitch| {
                let memory = &mut std::mem::MaybeUninit::uninit();
                cuMemAllocPitch_v2(Out::to(memory), pitch, 1000, 10, 4)
            });
            assert_eq!(pitch, 1024);
        });
    }
}
