//! Tests that the laws (invariants) for allocator policies detect real bugs: three bugs of real pools are
//! inserted into the policy.

use plimsoll_pool::{
    Address, Block, CapturedGraph, DeviceEvent, Ours, OutOfMemory, Policy, PoolDevice, ServedPolicy, Stream,
    Trim,
};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::machine::{Machine, card};
use super::program::program;
use super::tier;

/// One whose first two programs find every bug although they are short: miri has time for no more.
const SEED: [u8; 32] = [226; 32];
const ACTS: usize = if cfg!(miri) { 40 } else { 120 };
const CASES: u32 = if cfg!(miri) { 2 } else { 400 };

/// What the laws say of a policy on a fixed series of random programs.
fn verdict<P: ServedPolicy>(policy: impl Fn() -> P) -> String {
    let config = Config { cases: CASES, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &SEED);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&program(ACTS), |acts| {
        let mut machine = Machine::new(policy(), card(256));
        for act in &acts {
            machine.act(act).map_err(TestCaseError::fail)?;
        }
        Ok(())
    });
    outcome.map_or_else(|error| error.to_string(), |()| "lawful".to_owned())
}

/// A policy over ours that does what `wrong` says.
struct Mutant {
    policy: Ours,
    wrong: Wrong,
    /// The blocks in the order in which they were handed out.
    stack: Vec<Address>,
}

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    /// llama.cpp issue 26738: memory that a graph has seen is flushed.
    FlushesWithoutPin,
    /// llama.cpp PR 22155, first version: memory is freed without waiting for the card.
    FreesWithoutEvent,
    /// llama.cpp issue 28660: a block that is not the last one is not expected back.
    AssertsOrder,
}

impl Mutant {
    fn new(regions: bool, wrong: Wrong) -> Self {
        Self { policy: tier(regions), wrong, stack: Vec::new() }
    }

    fn over<T>(
        &mut self,
        device: &mut dyn PoolDevice,
        act: impl FnOnce(&mut Ours, &mut dyn PoolDevice) -> T,
    ) -> T {
        match self.wrong {
            Wrong::FreesWithoutEvent => act(&mut self.policy, &mut Hasty(device)),
            _ => act(&mut self.policy, device),
        }
    }
}

impl Policy for Mutant {
    fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        size: u64,
        stream: Stream,
    ) -> Result<Block, OutOfMemory> {
        let block = self.over(device, |policy, device| policy.allocate(device, size, stream))?;
        self.stack.push(block.address);
        Ok(block)
    }

    fn deallocate(&mut self, device: &mut dyn PoolDevice, block: Block, stream: Stream) {
        let last = self.stack.last() == Some(&block.address);
        assert!(last || self.wrong != Wrong::AssertsOrder, "freed out of order");
        self.stack.retain(|&address| address != block.address);
        self.over(device, |policy, device| policy.deallocate(device, block, stream));
    }

    fn reserved(&self) -> u64 {
        self.policy.reserved()
    }

    fn live(&self) -> u64 {
        self.policy.live()
    }
}

impl ServedPolicy for Mutant {
    fn trim(&mut self, device: &mut dyn PoolDevice, trim: Trim) -> u64 {
        self.over(device, |policy, device| policy.trim(device, trim))
    }

    fn capture_begin(&mut self, graph: CapturedGraph) {
        self.policy.capture_begin(graph);
    }

    fn capture_end(&mut self, graph: CapturedGraph) {
        self.policy.capture_end(graph);
        if self.wrong == Wrong::FlushesWithoutPin {
            self.policy.graph_destroyed(graph);
        }
    }

    fn graph_destroyed(&mut self, graph: CapturedGraph) {
        self.policy.graph_destroyed(graph);
    }

    fn close(&mut self, device: &mut dyn PoolDevice) {
        self.policy.close(device);
    }
}

/// A device whose events are always done.
struct Hasty<'a>(&'a mut dyn PoolDevice);

impl PoolDevice for Hasty<'_> {
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
    fn reserve(&mut self, size: u64) -> Option<Address> {
        self.0.reserve(size)
    }
    fn map(&mut self, at: Address, size: u64) -> Result<(), OutOfMemory> {
        self.0.map(at, size)
    }
    fn unmap(&mut self, at: Address, size: u64) {
        self.0.unmap(at, size);
    }
    fn release(&mut self, at: Address, size: u64) {
        self.0.release(at, size);
    }
    fn record(&mut self, stream: Stream) -> DeviceEvent {
        self.0.record(stream)
    }
    fn done(&mut self, _: DeviceEvent) -> bool {
        true
    }
    fn wait(&mut self, _: DeviceEvent) {}
    fn order(&mut self, stream: Stream, event: DeviceEvent) {
        self.0.order(stream, event);
    }
    fn forget(&mut self, event: DeviceEvent) {
        self.0.forget(event);
    }
    fn capturing(&self, stream: Stream) -> bool {
        self.0.capturing(stream)
    }
}

fn found(wrong: Wrong, sign: &str) {
    for regions in [true, false] {
        let verdict = verdict(|| Mutant::new(regions, wrong));
        assert!(verdict.contains(sign), "regions {regions}: {verdict}");
    }
}

#[test]
fn without_a_bug_the_same_programs_are_lawful() {
    found(Wrong::Nothing, "lawful");
}

#[test]
fn flushing_what_a_graph_has_seen_is_found() {
    found(Wrong::FlushesWithoutPin, "Unbacked");
}

#[test]
fn freeing_without_an_event_is_found() {
    found(Wrong::FreesWithoutEvent, "InFlight");
}

#[test]
fn insisting_on_the_order_of_a_stack_is_found() {
    found(Wrong::AssertsOrder, "freed out of order");
}
