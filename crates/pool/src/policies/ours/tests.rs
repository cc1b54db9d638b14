//! Tests of Plimsoll's own allocator policy, on simulated cards with and without virtual memory management.

use super::*;
use crate::runner::simulated::{Simulated, Violation};

const MIB: u64 = 1 << 20;
const GRANULE: u64 = 2 * MIB;
const A: Stream = Stream(1);
const B: Stream = Stream(2);

fn card(mib: u64) -> Simulated {
    Simulated::new(mib * MIB, GRANULE)
}

fn both_tiers() -> [Simulated; 2] {
    [card(1024), card(1024).without_virtual_memory()]
}

/// Takes a block and has work use it for ten microseconds.
fn take(policy: &mut Ours, device: &mut Simulated, size: u64, stream: Stream) -> Block {
    let block = policy.allocate(device, size, stream).unwrap();
    device.launch(stream, 10, &[block]);
    block
}

/// Difference between simulation and policy, and whether all events were forgotten after a full trim.
fn judge(policy: &mut Ours, device: &mut Simulated) {
    assert_eq!(device.violations(), &[]);
    assert_eq!(policy.reserved(), device.reserved());
    policy.trim(device, Trim::All);
    assert_eq!(device.violations(), &[]);
}

#[test]
fn a_stack_of_blocks_reserves_what_is_live_to_the_granule() {
    let mut device = card(1024);
    let mut policy = Ours::default();
    for _ in 0..100 {
        let blocks = [5 * MIB, 3 * MIB, 100].map(|size| take(&mut policy, &mut device, size, A));
        for block in blocks.into_iter().rev() {
            policy.deallocate(&mut device, block, A);
        }
    }
    assert_eq!(device.peak_reserved(), 10 * MIB);
    assert!(device.calls().map <= 3);
    judge(&mut policy, &mut device);
    assert_eq!(policy.reserved(), 0);
}

#[test]
fn growth_leaves_nothing_behind() {
    for mut device in both_tiers() {
        let mut policy = Ours::default();
        for step in 1..200 {
            let keys = take(&mut policy, &mut device, step * MIB / 2, A);
            let values = take(&mut policy, &mut device, step * MIB / 2, A);
            policy.deallocate(&mut device, values, A);
            policy.deallocate(&mut device, keys, A);
        }
        let peak_live = 199 * MIB;
        assert!(device.peak_reserved() <= peak_live * 5 / 4 + 2 * GRANULE, "{}", device.peak_reserved());
        assert!(device.driver_sizes().len() <= 60, "{}", device.driver_sizes().len());
        judge(&mut policy, &mut device);
    }
}

#[test]
fn a_block_freed_on_another_stream_comes_back_behind_an_event() {
    for mut device in both_tiers() {
        let mut policy = Ours::default();
        let block = take(&mut policy, &mut device, MIB, A);
        device.synchronize();
        device.launch(B, 1000, &[block]);
        policy.deallocate(&mut device, block, B);
        let again = take(&mut policy, &mut device, MIB, A);
        assert_eq!(again.address, block.address);
        policy.deallocate(&mut device, again, A);
        assert_eq!(device.calls().order, 1);
        judge(&mut policy, &mut device);
    }
}

#[test]
fn a_stream_gives_way_to_another_when_the_card_is_full() {
    for mut device in both_tiers() {
        let mut policy = Ours::default();
        let first = take(&mut policy, &mut device, 900 * MIB, A);
        policy.deallocate(&mut device, first, A);
        let second = take(&mut policy, &mut device, 900 * MIB, B);
        policy.deallocate(&mut device, second, B);
        judge(&mut policy, &mut device);
    }
}

#[test]
fn refused_allocation_reports_free_memory_and_leaves_the_pool_unchanged() {
    for mut device in both_tiers() {
        let mut policy = Ours::default();
        let occupied = take(&mut policy, &mut device, 600 * MIB, A);
        let requested = 600 * MIB;
        let refused = policy.allocate(&mut device, requested, A).unwrap_err();
        assert_eq!(refused, OutOfMemory { requested, free: 424 * MIB });
        assert!(policy.allocate(&mut device, u64::MAX, A).is_err());
        assert_eq!(policy.live(), 600 * MIB);
        policy.deallocate(&mut device, occupied, A);
        policy.deallocate(&mut device, occupied, A);
        assert_eq!(policy.live(), 0);
        judge(&mut policy, &mut device);
    }
}

#[test]
fn captured_blocks_stay_until_their_graph_is_destroyed() {
    for mut device in both_tiers() {
        let mut policy = Ours::default();
        let graph = CapturedGraph(1);
        device.begin_capture(A, graph);
        policy.capture_begin(graph);
        let seen = take(&mut policy, &mut device, 10 * MIB, A);
        policy.deallocate(&mut device, seen, A);
        policy.capture_end(graph);
        device.end_capture(A);
        let unseen = take(&mut policy, &mut device, 100 * MIB, A);
        policy.deallocate(&mut device, unseen, A);
        policy.trim(&mut device, Trim::All);
        assert!((10 * MIB..100 * MIB).contains(&policy.reserved()), "{}", policy.reserved());
        device.launch_graph(graph, A, 10);
        device.destroy_graph(graph);
        policy.graph_destroyed(graph);
        judge(&mut policy, &mut device);
        assert_eq!(policy.reserved(), 0);
    }
}

#[test]
fn nothing_is_given_back_while_a_graph_is_captured() {
    for mut device in both_tiers() {
        let mut policy = Ours::default();
        let idle = take(&mut policy, &mut device, 600 * MIB, A);
        policy.deallocate(&mut device, idle, A);
        device.begin_capture(A, CapturedGraph(1));
        policy.capture_begin(CapturedGraph(1));
        assert!(policy.allocate(&mut device, 900 * MIB, B).is_err());
        assert_eq!((policy.trim(&mut device, Trim::All), device.violations()), (0, &[] as &[Violation]));
        device.end_capture(A);
        policy.graph_destroyed(CapturedGraph(1));
        assert!(policy.allocate(&mut device, 900 * MIB, B).is_ok());
        assert_eq!(device.violations(), &[]);
    }
}

#[test]
fn idle_memory_rests_before_it_goes_and_goes_only_when_the_card_is_done() {
    for mut device in both_tiers() {
        let mut policy = Ours::default();
        let low = take(&mut policy, &mut device, 10 * MIB, A);
        let high = policy.allocate(&mut device, 100 * MIB, A).unwrap();
        device.launch(A, 1000, &[high]);
        policy.deallocate(&mut device, high, A);
        let mut trims = 0;
        while policy.reserved() > 10 * MIB {
            assert_eq!(device.violations(), &[]);
            policy.trim(&mut device, Trim::Idle);
            device.advance(100);
            trims += 1;
            assert!(trims < 100);
        }
        assert!(trims >= recent_use::WINDOWS && device.now() >= 1000, "{trims} {}", device.now());
        policy.deallocate(&mut device, low, A);
        judge(&mut policy, &mut device);
    }
}

#[test]
fn phases_that_come_and_go_are_not_mapped_and_unmapped_in_turn() {
    for mut device in both_tiers() {
        let mut policy = Ours::default();
        for phase in 0..100_u64 {
            let block = take(&mut policy, &mut device, (10 + phase % 2 * 90) * MIB, A);
            policy.deallocate(&mut device, block, A);
            device.synchronize();
            policy.trim(&mut device, Trim::Idle);
        }
        assert!(device.driver_sizes().len() <= 3, "{:?}", device.driver_sizes());
        judge(&mut policy, &mut device);
    }
}

#[test]
fn a_hole_under_a_long_lived_block_is_given_back() {
    let mut device = card(1024);
    let mut policy = Ours::default();
    let hole = take(&mut policy, &mut device, 500 * MIB, A);
    let kept = take(&mut policy, &mut device, MIB, A);
    policy.deallocate(&mut device, hole, A);
    policy.trim(&mut device, Trim::All);
    assert!(policy.reserved() <= 32 * MIB, "{}", policy.reserved());
    let again = take(&mut policy, &mut device, 400 * MIB, A);
    assert_eq!(again.address, hole.address);
    policy.deallocate(&mut device, kept, A);
    policy.deallocate(&mut device, again, A);
    judge(&mut policy, &mut device);
    assert_eq!(policy.reserved(), 0);
}

#[test]
fn close_gives_everything_back_whatever_its_state() {
    for mut device in both_tiers() {
        let mut policy = Ours::default();
        policy.capture_begin(CapturedGraph(1));
        take(&mut policy, &mut device, 10 * MIB, A);
        policy.capture_end(CapturedGraph(1));
        take(&mut policy, &mut device, 10 * MIB, B);
        let block = take(&mut policy, &mut device, MIB, B);
        assert!(policy.owns(block.address) && !policy.owns(Address(0)));
        device.synchronize();
        policy.close(&mut device);
        assert_eq!((device.reserved(), device.pieces(), device.events()), (0, 0, 0));
        assert_eq!((policy.reserved(), policy.live()), (0, 0));
        assert_eq!(device.violations(), &[]);
    }
}

#[test]
fn a_chunk_that_is_refused_is_asked_for_again_at_its_exact_size() {
    for mut device in both_tiers() {
        let mut policy = Ours::default();
        let mut blocks = Vec::new();
        for _ in 0..512 {
            blocks.push(take(&mut policy, &mut device, 2 * MIB, A));
        }
        assert_eq!(policy.reserved(), 1024 * MIB);
        assert!(policy.allocate(&mut device, 1, A).is_err());
        for block in blocks {
            policy.deallocate(&mut device, block, A);
        }
        judge(&mut policy, &mut device);
        assert_eq!(policy.reserved(), 0);
    }
}

/// A card on which waiting fails.
struct Deaf(Simulated);

impl PoolDevice for Deaf {
    fn granule(&self) -> u64 {
        self.0.granule()
    }
    fn available(&self) -> u64 {
        self.0.available()
    }
    fn allocate(&mut self, size: u64) -> Result<Address, OutOfMemory> {
        self.0.allocate(size)
    }
    fn free(&mut self, address: Address) {
        self.0.free(address);
    }
    fn record(&mut self, stream: Stream) -> crate::DeviceEvent {
        self.0.record(stream)
    }
    fn done(&mut self, event: crate::DeviceEvent) -> bool {
        self.0.done(event)
    }
    fn wait(&mut self, _: crate::DeviceEvent) {}
    fn order(&mut self, stream: Stream, event: crate::DeviceEvent) {
        self.0.order(stream, event);
    }
    fn forget(&mut self, event: crate::DeviceEvent) {
        self.0.forget(event);
    }
    fn capturing(&self, stream: Stream) -> bool {
        self.0.capturing(stream)
    }
}

#[test]
fn nothing_is_given_back_on_the_word_of_a_wait_that_failed() {
    let mut device = Deaf(card(1024));
    let mut policy = Ours::default();
    let block = policy.allocate(&mut device, 100 * MIB, A).unwrap();
    device.0.launch(A, 1000, &[block]);
    policy.deallocate(&mut device, block, A);
    assert_eq!(policy.trim(&mut device, Trim::All), 0);
    assert!(policy.allocate(&mut device, 1000 * MIB, A).is_err());
    device.0.synchronize();
    assert_eq!(policy.trim(&mut device, Trim::All), 100 * MIB);
    assert_eq!((device.0.violations(), device.0.events()), (&[][..], 0));
}

#[test]
fn an_event_says_nothing_of_a_block_that_was_live_when_it_was_recorded() {
    for mut device in both_tiers() {
        let mut policy = Ours::default();
        let old = take(&mut policy, &mut device, 100 * MIB, A);
        let idle = take(&mut policy, &mut device, 100 * MIB, A);
        policy.deallocate(&mut device, idle, A);
        device.synchronize();
        for _ in 0..=recent_use::WINDOWS {
            policy.trim(&mut device, Trim::Idle);
        }
        device.launch(A, 1000, &[old]);
        policy.deallocate(&mut device, old, A);
        policy.trim(&mut device, Trim::Idle);
        assert!(policy.reserved() >= 100 * MIB);
        judge(&mut policy, &mut device);
    }
}
