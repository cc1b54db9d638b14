//! Tests of virtual memory management in the fake driver.

use super::*;
use crate::abi::{GraphExec, Host, Stream};
use crate::alone::{alone, broken, code, get, ok, start};
use crate::capture::{cuStreamBeginCapture_v2, cuStreamEndCapture};
use crate::code::INVALID_HANDLE;
use crate::copy::{cuMemcpyDtoD_v2, cuMemcpyDtoH_v2, cuMemcpyHtoD_v2};
use crate::fill::{cuMemsetD8_v2, cuMemsetD8Async};
use crate::graphs::{cuGraphInstantiateWithFlags, cuGraphLaunch};
use crate::streams::cuStreamCreate;

const PART: u64 = 2 * GRANULE;
const ON_CARD: Location = Location { kind: LOCATION_DEVICE, id: 0 };
const ON_NODE: Location = Location { kind: LOCATION_HOST_NUMA, id: 0 };
const ON_HOST: Location = Location { kind: LOCATION_HOST, id: 0 };

fn create(size: u64, location: Location) -> Result<Physical, Code> {
    let prop = AllocationProp { kind: PINNED, handle_types: 0, location, metadata: Host::new(0), flags: 0 };
    let mut handle = std::mem::MaybeUninit::uninit();
    match cuMemCreate(Out::to(&mut handle), size, In::from(&prop), 0) {
        // SAFETY: a call that succeeds has written its result.
        Code(0) => Ok(unsafe { handle.assume_init() }),
        code => Err(code),
    }
}

fn open(at: DevicePtr, size: u64, location: Location) -> Code {
    cuMemSetAccess(at, size, In::from(&AccessDesc { location, flags: 3 }), 1)
}

/// A range of two parts, mapped and open to the card.
fn mixed(second: Location) -> DevicePtr {
    let at = get(|at| cuMemAddressReserve(at, 2 * PART, 0, DevicePtr(0), 0));
    let tail = DevicePtr(at.0 + PART);
    for (part, location) in [(at, ON_CARD), (tail, second)] {
        let handle = create(PART, location).unwrap();
        ok(cuMemMap(part, PART, 0, handle, 0));
        ok(cuMemRelease(handle));
        ok(open(part, PART, ON_CARD));
    }
    at
}

#[test]
fn bytes_cross_the_border_of_device_and_host_memory() {
    alone("", || {
        start();
        let at = mixed(ON_NODE);
        let border = DevicePtr(at.0 + PART - 4);
        let (text, mut back) = (*b"overflow", [0_u8; 8]);
        ok(cuMemcpyHtoD_v2(border, Host::to(&text), 8));
        ok(cuMemcpyDtoD_v2(at, border, 8));
        ok(cuMemcpyDtoH_v2(Host::into(&mut back), at, 8));
        assert_eq!(back, text);
        ok(cuMemsetD8_v2(at, 1, 2 * PART));
        assert_eq!(cuMemsetD8_v2(at, 1, 2 * PART + 1), INVALID_VALUE);
    });
}

#[test]
fn only_memory_on_the_card_is_charged_until_the_last_mapping_goes() {
    alone("total=16M context=0", || {
        start();
        let free = || driver().unwrap().memory_of(0).0;
        let at = mixed(ON_HOST);
        assert_eq!(free(), 12 << 20);
        assert_eq!(create(14 << 20, ON_CARD), Err(OUT_OF_MEMORY));
        ok(cuMemUnmap(at, PART));
        assert_eq!(free(), 16 << 20);
    });
}

#[test]
fn host_code_reaches_only_host_memory_that_was_opened_to_it() {
    alone("", || {
        start();
        let at = mixed(ON_NODE);
        let tail = DevicePtr(at.0 + PART);
        assert_eq!(open(at, PART, ON_NODE), INVALID_VALUE, "device memory");
        assert_eq!(open(at, 2 * PART, ON_NODE), INVALID_VALUE, "device memory in it");
        ok(open(tail, PART, ON_NODE));
        ok(cuMemsetD8_v2(tail, 9, PART));
        assert_eq!(Host::new(tail.0).bytes(PART - 1, 1), [9]);
    });
}

#[test]
fn wrong_ranges_are_refused() {
    let log = alone("reserve=1G", || {
        start();
        let reserve = |size| code(|at| cuMemAddressReserve(at, size, 0, DevicePtr(0), 0));
        assert_eq!(reserve(32 << 30), OUT_OF_MEMORY);
        assert_eq!(reserve(GRANULE - 1), INVALID_VALUE);
        let at = mixed(ON_NODE);
        assert_eq!(cuMemUnmap(at, GRANULE), INVALID_VALUE, "half a mapping");
        assert_eq!(open(at, GRANULE, ON_CARD), INVALID_VALUE, "half a mapping");
        assert_eq!(cuMemAddressFree(at, 2 * PART), INVALID_VALUE, "it is mapped");
        let again = create(PART, ON_CARD).unwrap();
        assert_eq!(cuMemMap(at, PART, 0, again, 0), INVALID_VALUE, "it is mapped");
        ok(cuMemUnmap(at, 2 * PART));
        assert_eq!(cuMemMap(at, PART, GRANULE, again, 0), INVALID_VALUE, "an offset");
        assert_eq!(cuMemMap(at, 2 * PART, 0, again, 0), INVALID_VALUE, "more than the block");
        assert_eq!(cuMemAddressFree(at, PART), INVALID_VALUE, "half a reservation");
        ok(cuMemAddressFree(at, 2 * PART));
        assert_eq!(cuMemUnmap(at, PART), INVALID_VALUE);
        ok(cuMemRelease(again));
        assert_eq!(cuMemRelease(again), INVALID_VALUE);
    });
    assert_eq!(broken(&log), ["still-mapped"]);
}

#[test]
fn a_card_without_vmm_says_so() {
    alone("vmm=0", || {
        start();
        assert_eq!(get(|value| crate::device::cuDeviceGetAttribute(value, 102, 0)), 0);
        assert_eq!(create(PART, ON_CARD), Err(NOT_SUPPORTED));
    });
}

#[test]
fn places_that_the_test_refuses_are_refused() {
    alone("refuse=host,host_numa numa=-1", || {
        start();
        assert_eq!(get(|value| crate::device::cuDeviceGetAttribute(value, 134, 0)), -1);
        assert_eq!(create(PART, ON_NODE), Err(NOT_SUPPORTED));
        assert_eq!(create(PART, ON_HOST), Err(NOT_SUPPORTED));
        assert!(create(PART, ON_CARD).is_ok());
    });
}

#[test]
fn host_memory_that_kernels_cannot_touch_can_still_be_copied() {
    alone("host_touch=0", || {
        start();
        let at = mixed(ON_NODE);
        let byte = [1_u8];
        assert_eq!(cuMemsetD8_v2(at, 1, 2 * PART), INVALID_HANDLE);
        ok(cuMemsetD8_v2(at, 1, PART));
        ok(cuMemcpyHtoD_v2(DevicePtr(at.0 + PART), Host::to(&byte), 1));
    });
}

#[test]
fn an_operation_across_the_border_can_be_refused() {
    alone("across=0", || {
        start();
        let at = mixed(ON_NODE);
        assert_eq!(cuMemsetD8_v2(at, 1, PART + 1), INVALID_VALUE);
        ok(cuMemsetD8_v2(at, 1, PART));
        ok(cuMemsetD8_v2(DevicePtr(at.0 + PART), 1, PART));
    });
}

#[test]
fn unmapping_memory_that_work_still_uses_is_noted() {
    let log = alone("delay=5 clock=queries", || {
        start();
        let at = mixed(ON_NODE);
        ok(cuMemsetD8_v2(at, 1, PART));
        ok(cuMemUnmap(DevicePtr(at.0 + PART), PART));
        ok(cuMemUnmap(at, PART));
    });
    assert_eq!(broken(&log), ["in-use"], "only the first part was in use");
}

#[test]
fn a_retained_handle_keeps_the_memory() {
    alone("", || {
        start();
        let at = mixed(ON_NODE);
        let handle = get(|handle| cuMemRetainAllocationHandle(handle, DevicePtr(at.0 + 5)));
        ok(cuMemsetD8_v2(at, 3, PART));
        ok(cuMemUnmap(at, PART));
        ok(cuMemMap(at, PART, 0, handle, 0));
        let mut back = [0_u8];
        assert_eq!(
            cuMemcpyDtoH_v2(Host::into(&mut back), at, 1),
            INVALID_VALUE,
            "access went with the mapping"
        );
        ok(open(at, PART, ON_CARD));
        ok(cuMemcpyDtoH_v2(Host::into(&mut back), at, 1));
        assert_eq!(back, [3]);
        let prop = get(|prop| cuMemGetAllocationPropertiesFromHandle(prop, handle));
        assert_eq!(prop.location, ON_CARD);
    });
}

/// A granule of the card that a graph touches, and one of host memory, each filled with its value.
fn captured(values: [u8; 2]) -> ([DevicePtr; 2], [Physical; 2], GraphExec) {
    let at = [(); 2].map(|()| get(|at| cuMemAddressReserve(at, GRANULE, 0, DevicePtr(0), 0)));
    let handles = [ON_CARD, ON_NODE].map(|location| create(GRANULE, location).unwrap());
    for (number, value) in values.into_iter().enumerate() {
        ok(cuMemMap(at[number], GRANULE, 0, handles[number], 0));
        ok(open(at[number], GRANULE, ON_CARD));
        ok(cuMemsetD8_v2(at[number], value, GRANULE));
    }
    let stream = get(|stream| cuStreamCreate(stream, 1));
    ok(cuStreamBeginCapture_v2(stream, 2));
    ok(cuMemsetD8Async(at[0], 7, 16, stream));
    let graph = get(|graph| cuStreamEndCapture(stream, graph));
    let exec = get(|exec| cuGraphInstantiateWithFlags(exec, graph, 0));
    (at, handles, exec)
}

/// Replays the graph over the other granule, and once more without any.
fn replay_over_another(values: [u8; 2]) {
    start();
    let (at, handles, exec) = captured(values);
    ok(cuMemUnmap(at[0], GRANULE));
    ok(cuMemMap(at[0], GRANULE, 0, handles[1], 0));
    ok(open(at[0], GRANULE, ON_CARD));
    ok(cuGraphLaunch(exec, Stream(0)));
    ok(cuMemUnmap(at[0], GRANULE));
    assert_eq!(cuGraphLaunch(exec, Stream(0)), crate::code::ILLEGAL_ADDRESS);
}

#[test]
fn a_graph_may_use_other_memory_with_the_same_bytes() {
    let log = alone("", || replay_over_another([3, 3]));
    assert_eq!(broken(&log), ["graph-freed"]);
}

#[test]
fn a_graph_may_not_use_memory_with_other_bytes() {
    let log = alone("", || replay_over_another([3, 4]));
    assert_eq!(broken(&log), ["graph-stale", "graph-freed"]);
}

#[test]
fn a_graph_without_access_to_a_mapping_is_refused() {
    let log = alone("", || {
        start();
        let (at, handles, exec) = captured([3, 3]);
        ok(cuMemUnmap(at[0], GRANULE));
        ok(cuMemMap(at[0], GRANULE, 0, handles[1], 0));
        assert_eq!(cuGraphLaunch(exec, Stream(0)), INVALID_VALUE);
    });
    assert_eq!(broken(&log), ["no-access"]);
}
