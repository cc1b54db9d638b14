//! Tests of stream-ordered allocation in the fake driver.

use super::*;
use crate::alone::{alone, broken, code, get, ok, start};
use crate::fill::cuMemsetD8Async;
use crate::linear::cuMemFree_v2;
use crate::streams::{cuStreamCreate, cuStreamSynchronize};

const MIB: u64 = 1 << 20;

fn attribute(pool: Pool, attribute: i32) -> u64 {
    get(|value: Out<u64>| cuMemPoolGetAttribute(pool, attribute, value.cast()))
}

fn keep(pool: Pool, bytes: u64) {
    let mut threshold = std::mem::MaybeUninit::new(bytes);
    ok(cuMemPoolSetAttribute(pool, 4, Out::to(&mut threshold).cast()));
}

#[test]
fn a_pool_keeps_freed_memory_up_to_its_threshold() {
    alone("", || {
        start();
        let stream = get(|stream| cuStreamCreate(stream, 1));
        let pool = get(|pool| cuDeviceGetDefaultMemPool(pool, 0));
        let allocate = || get(|at| cuMemAllocAsync(at, 3 * MIB, stream));
        keep(pool, 4 * MIB);
        let (first, second) = (allocate(), allocate());
        assert_eq!((attribute(pool, 5), attribute(pool, 7)), (8 * MIB, 8 * MIB));
        ok(cuMemFreeAsync(first, stream));
        assert_eq!((attribute(pool, 5), attribute(pool, 7)), (8 * MIB, 4 * MIB), "until something waits");
        ok(cuStreamSynchronize(stream));
        assert_eq!(attribute(pool, 5), 4 * MIB, "the threshold");
        ok(cuMemFreeAsync(second, stream));
        assert_eq!((attribute(pool, 5), attribute(pool, 7)), (4 * MIB, 0));
        assert_eq!(cuMemFreeAsync(second, stream), INVALID_VALUE, "it is free");
        assert_eq!(allocate(), second);
        ok(cuMemFree_v2(second));
        ok(cuMemPoolTrimTo(pool, 0));
        assert_eq!((attribute(pool, 5), attribute(pool, 6)), (0, 8 * MIB));
    });
}

#[test]
fn a_pool_of_its_own_has_its_own_limit() {
    alone("", || {
        start();
        let stream = get(|stream| cuStreamCreate(stream, 1));
        let props = PoolProps {
            kind: 1,
            handle_types: 0,
            location: Location { kind: LOCATION_DEVICE, id: 0 },
            attributes: crate::abi::Host::new(0),
            max_size: 8 << 20,
            usage: 0,
            reserved: [0; 54],
        };
        let pool = get(|pool| cuMemPoolCreate(pool, In::from(&props)));
        let at = get(|at| cuMemAllocFromPoolAsync(at, 6 * MIB, pool, stream));
        assert_eq!(code(|at| cuMemAllocFromPoolAsync(at, 4 * MIB, pool, stream)), OUT_OF_MEMORY);
        ok(cuMemPoolDestroy(pool));
        ok(cuMemFreeAsync(at, stream));
    });
}

#[test]
fn a_free_that_does_not_come_after_another_stream_is_noted() {
    let log = alone("delay=5 clock=queries", || {
        start();
        let [owner, other] = [(); 2].map(|()| get(|stream| cuStreamCreate(stream, 1)));
        let at = get(|at| cuMemAllocAsync(at, MIB, owner));
        ok(crate::streams::cuStreamSynchronize(owner));
        ok(cuMemsetD8Async(at, 1, MIB, other));
        ok(cuMemsetD8Async(at, 1, MIB, other));
        ok(cuMemFreeAsync(at, owner));
    });
    assert_eq!(broken(&log), ["unordered-free"]);
}

#[test]
fn a_card_without_pools_says_so() {
    alone("pools=0", || {
        start();
        assert_eq!(code(|at| cuMemAllocAsync(at, MIB, Stream(0))), NOT_SUPPORTED);
    });
}

#[test]
fn a_stream_that_gets_freed_memory_waits_for_the_one_that_freed_it() {
    let log = alone("delay=5 clock=queries", || {
        start();
        let [first, second] = [(); 2].map(|()| get(|stream| cuStreamCreate(stream, 1)));
        let at = get(|at| cuMemAllocAsync(at, MIB, first));
        ok(cuMemsetD8Async(at, 1, MIB, first));
        ok(cuMemFreeAsync(at, first));
        assert_eq!(cuMemsetD8Async(at, 1, MIB, first), INVALID_VALUE, "it is freed");
        assert_eq!(get(|at| cuMemAllocAsync(at, MIB, second)), at);
        ok(cuMemsetD8Async(at, 2, MIB, second));
        ok(cuStreamSynchronize(second));
    });
    assert_eq!(broken(&log), Vec::<&str>::new());
}
