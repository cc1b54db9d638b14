//! Tests of the simulated card: its memory count, its refusals, and its detection of every misuse.

use plimsoll_pool::{Address, Block, CapturedGraph, OutOfMemory, PoolDevice, Stream};

use super::simulated::{Faults, Latency, Simulated, Violation};

const A: Stream = Stream(1);
const B: Stream = Stream(2);
const G: u64 = 4;

fn device() -> Simulated {
    Simulated::new(64, G)
}

fn block(address: Address, size: u64) -> Block {
    Block { address, size }
}

#[test]
fn allocations_are_rounded_and_bounded_and_come_back() {
    let mut device = Simulated::new(10, 4);
    let first = device.allocate(1).unwrap();
    let second = device.allocate(4).unwrap();
    assert_ne!(first, second);
    assert_eq!(device.allocate(1), Err(OutOfMemory { requested: 1, free: 2 }));
    let requested = u64::MAX;
    assert_eq!(device.allocate(requested), Err(OutOfMemory { requested, free: 2 }));
    device.free(first);
    device.free(second);
    assert_eq!((device.available(), device.pieces(), device.peak_reserved()), (10, 0, 8));
    assert_eq!(device.driver_sizes(), &[1, 4]);
    assert_eq!(device.violations(), &[]);
}

#[test]
fn a_second_free_is_found_out() {
    let mut device = device();
    let address = device.allocate(4).unwrap();
    device.free(address);
    device.free(address);
    assert_eq!(device.violations(), &[Violation::NotOccupied { address }]);
}

#[test]
fn a_region_is_backed_piece_by_piece_and_only_once() {
    let mut device = device();
    let region = device.reserve(40).unwrap();
    device.map(region, 8).unwrap();
    device.map(region.offset(8), 4).unwrap();
    device.launch(A, 1, &[block(region.offset(2), 10)]);
    assert_eq!(device.violations(), &[]);
    device.synchronize();
    let (address, size) = (region.offset(4), 8);
    device.map(address, size).unwrap();
    assert_eq!(device.violations(), &[Violation::Misplaced { address, size }]);
}

#[test]
fn a_piece_is_unmapped_as_it_was_mapped_and_before_the_region_is_released() {
    let mut device = device();
    let address = device.reserve(8).unwrap();
    device.map(address, 8).unwrap();
    device.unmap(address, 4);
    device.release(address, 8);
    assert_eq!(
        device.violations(),
        &[Violation::NotOccupied { address }, Violation::StillBacked { address }]
    );
}

#[test]
fn addresses_run_out_where_there_are_few_or_none() {
    assert_eq!(device().without_virtual_memory().reserve(4), None);
    let mut device = device().with_addresses(8);
    let region = device.reserve(8).unwrap();
    assert_eq!(device.reserve(4), None);
    device.release(region, 8);
    assert!(device.reserve(4).is_some());
}

#[test]
fn blocks_in_flight_may_not_be_freed() {
    let mut device = device();
    let address = device.allocate(4).unwrap();
    device.launch(A, 10, &[block(address, 4)]);
    let event = device.record(A);
    assert!(!device.done(event));
    let mut early = device.clone();
    early.free(address);
    assert_eq!(early.violations(), &[Violation::InFlight { address, stream: A }]);
    device.wait(event);
    assert_eq!(device.now(), 10);
    device.forget(event);
    device.free(address);
    assert_eq!(device.violations(), &[]);
    assert!(!device.done(event), "a forgotten event is no event");
    assert_eq!(device.violations(), &[Violation::NoEvent { event }]);
}

#[test]
fn two_streams_in_one_range_are_found_out_unless_ordered() {
    let mut device = device();
    let address = device.allocate(4).unwrap();
    device.launch(A, 10, &[block(address, 4)]);
    let mut careless = device.clone();
    careless.launch(B, 10, &[block(address, 4)]);
    let (first, second) = (A, B);
    let found = Violation::UseAfterReuse { address, first, second };
    assert_eq!(careless.violations(), &[found]);
    let event = device.record(A);
    device.order(B, event);
    device.launch(B, 10, &[block(address, 4)]);
    device.synchronize();
    assert_eq!((device.now(), device.violations()), (20, &[][..]));
}

#[test]
fn a_graph_that_is_launched_into_memory_that_is_gone_is_found_out() {
    let mut device = device();
    let graph = CapturedGraph(1);
    let address = device.allocate(4).unwrap();
    device.begin_capture(A, graph);
    device.launch(A, 10, &[block(address, 4)]);
    device.end_capture(A);
    device.launch_graph(graph, A, 10);
    device.synchronize();
    assert_eq!(device.violations(), &[]);
    device.free(address);
    device.launch_graph(graph, A, 10);
    device.destroy_graph(graph);
    device.launch_graph(graph, A, 10);
    let graph_of_it = Some(graph);
    assert_eq!(
        device.violations(),
        &[Violation::Unbacked { address, graph: graph_of_it }, Violation::NoGraph { graph }]
    );
}

#[test]
fn calls_that_break_a_capture_are_found_out() {
    let mut device = device();
    let address = device.allocate(4).unwrap();
    device.begin_capture(A, CapturedGraph(1));
    assert!(device.capturing(A) && !device.capturing(B));
    assert!(device.allocate(4).is_ok());
    let event = device.record(A);
    device.wait(event);
    device.free(address);
    device.synchronize();
    let calls: Vec<Violation> =
        ["record", "wait", "free", "synchronize"].map(|call| Violation::DuringCapture { call }).to_vec();
    assert_eq!(device.violations(), calls);
}

#[test]
fn faults_refuse_what_they_name() {
    let mut device = device();
    let mut outcomes = |faults| {
        device.inject(faults);
        [4, 8, 4].map(|size| device.allocate(size).is_ok())
    };
    assert_eq!(outcomes(Faults::nth(2)), [true, false, true]);
    assert_eq!(outcomes(Faults::above(4)), [true, false, true]);
    assert_eq!(outcomes(Faults::next(2)), [false, false, true]);
    assert_eq!(outcomes(Faults::default()), [true, true, true]);
}

#[test]
fn calls_cost_what_the_latency_says() {
    let latency = Latency { allocate: 100, map: 20, reserve: 3, ..Latency::default() };
    let mut device = device().with_latency(latency);
    device.allocate(4).unwrap();
    let region = device.reserve(8).unwrap();
    device.map(region, 4).unwrap();
    assert_eq!(device.now(), 123);
    assert_eq!((device.calls().map, device.calls().reserve), (1, 1));
}
