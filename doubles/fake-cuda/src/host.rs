//! Host memory in the fake CUDA driver that the device can access: page-locked, registered and managed
//! memory.
//!
//! Managed memory is not charged to a card. It moves by itself, and the real driver counts it only when it is
//! resident.

use crate::abi::structs::{LOCATION_HOST, Location};
use crate::abi::{DevicePtr, Host, Out, Stream};
use crate::blocks::Place;
use crate::call::driver;
use crate::capture::forbid_in_capture;
use crate::code::{
    Code, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_DEVICE, INVALID_VALUE, Outcome,
};
use crate::driver::{Driver, driver};
use crate::operation::Operation;
use crate::space::{Behind, Kind};
use crate::work::{Scope, synchronise};

const HOST: Place = Place::Host(Location { kind: LOCATION_HOST, id: 0 });
/// As the device number of `cuMemAdvise` and `cuMemPrefetchAsync`.
const CPU: i32 = -1;
/// `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`.
const ATTACH: std::ops::RangeInclusive<u32> = 1..=2;

impl Driver {
    /// Host memory at addresses of ours, which host code can follow.
    fn allocate_host(&mut self, length: u64, kind: Kind) -> Result<DevicePtr, Code> {
        if length == 0 {
            return Err(INVALID_VALUE);
        }
        let context = self.current()?;
        let card = self.contexts.open[&context].card;
        let physical = self.new_block(HOST, length, false)?;
        let at = self.place(physical, length, kind, card, Some(context))?;
        let block = self.blocks.get(physical)?;
        self.space.open_to_host(at.0, block, 0, length)?;
        Ok(at)
    }

    /// The start of a page-locked region.
    fn locked(&self, host: Host) -> Result<(u64, u32), Code> {
        let (start, region) = self.space.region(DevicePtr(host.address())).ok_or(INVALID_VALUE)?;
        match region.kind {
            Kind::HostAllocated(flags) | Kind::HostRegistered(flags) => Ok((start, flags)),
            _ => Err(INVALID_VALUE),
        }
    }

    /// A range of managed memory, and where it is to be.
    fn managed(&self, at: DevicePtr, length: u64, device: i32) -> Outcome {
        if device != CPU {
            self.device(device).map_err(|_| INVALID_DEVICE)?;
        }
        let (_, region) = self.space.region(at).ok_or(INVALID_VALUE)?;
        let inside = self.space.cover(at, length).is_some();
        if region.kind == Kind::Managed && inside && length > 0 { Ok(()) } else { Err(INVALID_VALUE) }
    }

    fn prefetch(&mut self, at: DevicePtr, length: u64, device: i32, stream: Stream) -> Outcome {
        self.managed(at, length, device)?;
        self.submit(stream, Operation::Nothing)
    }
}

/// The device number that a location means.
fn number(location: Location) -> i32 {
    match location.kind {
        crate::abi::structs::LOCATION_DEVICE => location.id,
        _ => CPU,
    }
}

fn allocate(pointer: Out<Host>, length: u64, flags: u32) -> Outcome {
    if pointer.is_null() {
        return Err(INVALID_VALUE);
    }
    forbid_in_capture()?;
    let at = driver()?.allocate_host(length, Kind::HostAllocated(flags))?;
    pointer.set(Host::new(at.0))
}

fn register(host: Host, length: u64, flags: u32) -> Outcome {
    let mut driver = driver()?;
    let context = driver.current()?;
    let card = driver.contexts.open[&context].card;
    if host.is_null() || length == 0 {
        return Err(INVALID_VALUE);
    }
    let at = host.address();
    let taken = driver.space.any_in(at..at.checked_add(length).ok_or(INVALID_VALUE)?);
    if taken {
        return Err(HOST_MEMORY_ALREADY_REGISTERED);
    }
    driver.settle(at, length, Kind::HostRegistered(flags), card, Some(context), Behind::Host);
    Ok(())
}

driver! {
    fn cuMemHostAlloc = "cuMemHostAlloc" since 2020 (pp: Out<Host>, bytesize: u64, Flags: u32) {
        allocate(pp, bytesize, Flags)
    }

    fn cuMemAllocHost_v2 = "cuMemAllocHost" since 3020 (pp: Out<Host>, bytesize: u64) {
        allocate(pp, bytesize, 0)
    }

    fn cuMemFreeHost = "cuMemFreeHost" since 2000 (p: Host) {
        forbid_in_capture()?;
        let region = driver()?.space.regions.get(&p.address()).copied().ok_or(INVALID_VALUE)?;
        if !matches!(region.kind, Kind::HostAllocated(_)) {
            return Err(INVALID_VALUE);
        }
        synchronise(Scope::Everything)?;
        driver()?.end_region(p.address())
    }

    fn cuMemHostGetDevicePointer_v2 = "cuMemHostGetDevicePointer" since 3020
        (pdptr: Out<DevicePtr>, p: Host, Flags: u32)
    {
        if Flags != 0 {
            return Err(INVALID_VALUE);
        }
        driver()?.locked(p)?;
        pdptr.set(DevicePtr(p.address()))
    }

    fn cuMemHostGetFlags = "cuMemHostGetFlags" since 2030 (pFlags: Out<u32>, p: Host) {
        let (_, flags) = driver()?.locked(p)?;
        pFlags.set(flags)
    }

    fn cuMemHostRegister = "cuMemHostRegister" since 4000 (p: Host, bytesize: u64, Flags: u32) {
        register(p, bytesize, Flags)
    }

    fn cuMemHostRegister_v2 = "cuMemHostRegister" since 6050 (p: Host, bytesize: u64, Flags: u32) {
        register(p, bytesize, Flags)
    }

    fn cuMemHostUnregister = "cuMemHostUnregister" since 4000 (p: Host) {
        let mut driver = driver()?;
        let registered = driver.space.regions.get(&p.address());
        if !registered.is_some_and(|region| matches!(region.kind, Kind::HostRegistered(_))) {
            return Err(HOST_MEMORY_NOT_REGISTERED);
        }
        driver.end_region(p.address())
    }

    fn cuMemAllocManaged = "cuMemAllocManaged" since 6000 (dptr: Out<DevicePtr>, bytesize: u64, flags: u32) {
        if dptr.is_null() || !ATTACH.contains(&flags) {
            return Err(INVALID_VALUE);
        }
        forbid_in_capture()?;
        let allocated = driver()?.allocate_host(bytesize, Kind::Managed)?;
        dptr.set(allocated)
    }

    fn cuMemAdvise = "cuMemAdvise" since 8000 (devPtr: DevicePtr, count: u64, advice: i32, device: i32) {
        let _ = advice;
        driver()?.managed(devPtr, count, device)
    }

    fn cuMemAdvise_v2 = "cuMemAdvise" since 12020
        (devPtr: DevicePtr, count: u64, advice: i32, location: Location)
    {
        let _ = advice;
        driver()?.managed(devPtr, count, number(location))
    }

    fn cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz = "cuMemPrefetchAsync" since 8000
        (devPtr: DevicePtr, count: u64, dstDevice: i32, hStream: Stream)
    {
        driver()?.prefetch(devPtr, count, dstDevice, hStream)
    }

    fn cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz = "cuMemPrefetchAsync" since 12020
        (devPtr: DevicePtr, count: u64, location: Location, flags: u32, hStream: Stream)
    {
        let _ = flags;
        driver()?.prefetch(devPtr, count, number(location), hStream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::In;
    use crate::alone::{alone, code, get, ok, start};
    use crate::copy::{cuMemcpy, cuMemcpyHtoD_v2};
    use crate::fill::cuMemsetD8_v2;
    use crate::linear::{cuMemAlloc_v2, cuMemFree_v2};
    use crate::pointer::{cuPointerGetAttribute, cuPointerGetAttributes};

    const MIB: u64 = 1 << 20;

    fn attribute<T>(number: i32, at: DevicePtr) -> T {
        get(|value: Out<T>| cuPointerGetAttribute(value.cast(), number, at))
    }

    #[test]
    fn managed_memory_is_reached_from_both_sides() {
        alone("total=8M context=0", || {
            start();
            let at = get(|at| cuMemAllocManaged(at, 64 * MIB, 1));
            ok(cuMemsetD8_v2(at, 7, MIB));
            assert_eq!(Host::new(at.0).bytes(MIB - 1, 2), [7, 0]);
            Host::new(at.0).bytes_mut(0, 1)[0] = 9;
            let on_card = get(|at| cuMemAlloc_v2(at, MIB));
            ok(cuMemcpy(on_card, at, 1));
            ok(cuMemAdvise(at, MIB, 3, CPU));
            ok(cuMemPrefetchAsync(at, MIB, 0, Stream(0)));
            assert_eq!(cuMemAdvise(on_card, 1, 3, CPU), INVALID_VALUE, "not managed");
            assert_eq!(cuMemAdvise(at, MIB, 3, 5), INVALID_DEVICE);
            assert_eq!((attribute::<u32>(2, at), attribute::<bool>(8, at)), (2, true));
            ok(cuMemFree_v2(at));
        });
    }

    #[test]
    fn page_locked_memory_has_one_address_on_both_sides() {
        alone("", || {
            start();
            let host = get(|pointer| cuMemHostAlloc(pointer, MIB, 2));
            host.bytes_mut(0, 4).copy_from_slice(b"host");
            let at = get(|at| cuMemHostGetDevicePointer_v2(at, host, 0));
            assert_eq!(at.0, host.address());
            let on_card = get(|at| cuMemAlloc_v2(at, MIB));
            ok(cuMemcpyHtoD_v2(on_card, host, 4));
            ok(cuMemsetD8_v2(at, 1, 1));
            ok(cuMemcpy(DevicePtr(at.0 + 4), on_card, 4));
            assert_eq!(host.bytes(0, 8), b"\x01osthost");
            assert_eq!(attribute::<u32>(2, at), 1);
            assert_eq!(get(|flags| cuMemHostGetFlags(flags, host)), 2);
            assert_eq!(cuMemFree_v2(at), INVALID_VALUE);
            ok(cuMemFreeHost(host));
            assert_eq!(cuMemFreeHost(host), INVALID_VALUE);
        });
    }

    #[test]
    fn the_programs_own_memory_can_be_registered_once() {
        alone("", || {
            start();
            let mut own = vec![0_u8; 4096];
            let host = Host::into(&mut own);
            let at = DevicePtr(host.address());
            assert_eq!(cuMemsetD8_v2(at, 1, 4096), INVALID_VALUE, "not registered yet");
            ok(cuMemHostRegister_v2(host, 4096, 0));
            assert_eq!(cuMemHostRegister_v2(host, 1, 0), HOST_MEMORY_ALREADY_REGISTERED);
            ok(cuMemsetD8_v2(at, 1, 4096));
            ok(cuMemHostUnregister(host));
            assert_eq!(cuMemHostUnregister(host), HOST_MEMORY_NOT_REGISTERED);
            assert_eq!(own, [1; 4096]);
        });
    }

    #[test]
    fn an_unknown_pointer_has_no_attribute_alone_and_empty_ones_in_a_list() {
        alone("", || {
            let context = start();
            let at = get(|at| cuMemAlloc_v2(at, 3 * MIB));
            let inside = DevicePtr(at.0 + 100);
            assert_eq!((attribute::<u64>(11, inside), attribute::<u64>(12, inside)), (at.0, 3 * MIB));
            assert_eq!(attribute::<u64>(1, inside), context.0);
            let unknown = DevicePtr(4096);
            assert_eq!(
                code(|value: Out<u32>| cuPointerGetAttribute(value.cast(), 2, unknown)),
                INVALID_VALUE
            );
            let kind = get(|kind: Out<u32>| {
                let places: [Out<u8>; 1] = [kind.cast()];
                cuPointerGetAttributes(1, In::from(&2), In::from(&places[0]), unknown)
            });
            assert_eq!(kind, 0);
        });
    }
}
