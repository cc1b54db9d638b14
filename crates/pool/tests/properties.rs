//! Property tests of Plimsoll's allocator policy for random programs on a simulated card, with and without
//! virtual memory management.
//!
//! The properties are P1 to P11 of the design notes, and P12. By P12, only a full trim, a refused request and
//! an outgrown slot wait for the card, and no event is left behind.
//!
//! [`machine`] runs a program. After each act it checks the laws that hold at every moment (P1, P2, P3, P6,
//! P8, P11, P12). The tests below add those that hold for a whole run. [`mutants`] inserts three real bugs
//! and shows that the laws find them.

mod machine;
mod mutants;
mod naive;
mod program;

use machine::{GRANULE, Machine, card};
use naive::Naive;
use plimsoll_pool::{Block, Ours, OursOptions, Policy, ServedPolicy, Stream, Trim};
use program::{Act, program, stack};
use proptest::prelude::*;

use super::simulated::Simulated;

const MIB: u64 = 1 << 20;

fn tier(regions: bool) -> Ours {
    Ours::new(OursOptions { regions, ..OursOptions::default() })
}

/// As many cases as `PROPTEST_CASES` says; one under miri, which takes a second for what takes a millisecond
/// without it.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: if cfg!(miri) { 1 } else { default.cases }, failure_persistence: None, ..default }
}

/// As many acts as this, a quarter of them under miri.
fn acts(most: usize) -> usize {
    if cfg!(miri) { most / 4 } else { most }
}

proptest! {
    #![proptest_config(config())]

    /// P1, P2, P3, P6, P8, P11, P12 after every act; P5 at the end; P7 at every refusal.
    #[test]
    fn the_laws_hold_for_any_program(acts in program(acts(120)), regions: bool) {
        let mut machine = Machine::new(tier(regions), card(256));
        for act in &acts {
            machine.act(act).map_err(TestCaseError::fail)?;
        }
        machine.end().map_err(TestCaseError::fail)?;
    }

    /// P9: the same program gives the same addresses and the same calls.
    #[test]
    fn a_run_is_repeated_exactly(acts in program(acts(80)), regions: bool) {
        let run = || {
            let mut machine = Machine::new(tier(regions), card(256));
            let addresses: Vec<_> = acts.iter().map(|act| machine.act(act)).collect();
            (addresses, machine.device().calls(), machine.device().driver_sizes().to_vec())
        };
        prop_assert_eq!(run(), run());
    }

    /// P10: where memory is plenty, a program cannot tell ours from a policy that asks the driver every time.
    #[test]
    fn ours_is_equivalent_to_the_naive_policy(acts in program(acts(80)), regions: bool) {
        let acts = acts.into_iter().filter(|act| !matches!(act, Act::Resize { .. } | Act::Refuse { .. }));
        let mut ours = Machine::new(tier(regions), card(1 << 20));
        let mut naive = Machine::of_naive(Naive::default(), card(1 << 20));
        for act in acts {
            let outcomes = (ours.act(&act), naive.act(&act));
            prop_assert_eq!(outcomes.0.map(drop), outcomes.1.map(drop));
            prop_assert_eq!(ours.live(), naive.live());
        }
    }

    /// P4 and P7 for a stack of blocks in a region: within a sixteenth and a granule of the peak, and refused
    /// only if it does not fit.
    #[test]
    fn a_stack_reserves_its_peak_and_is_refused_only_if_it_does_not_fit(steps in stack(acts(200)), budget in 16..256_u64) {
        let budget = budget * MIB / GRANULE * GRANULE;
        let mut device = Simulated::new(budget, GRANULE);
        let mut policy = tier(true);
        let mut peak = 0;
        let mut occupied: Vec<Block> = Vec::new();
        for step in steps {
            match step {
                Some(size) => match policy.allocate(&mut device, size, Stream(0)) {
                    Ok(block) => occupied.push(block),
                    Err(_) => prop_assert!(rounded(&occupied) + size.next_multiple_of(256) > budget),
                },
                None => {
                    let top = occupied.pop();
                    top.into_iter().for_each(|block| policy.deallocate(&mut device, block, Stream(0)));
                }
            }
            peak = peak.max(rounded(&occupied));
            prop_assert!(device.peak_reserved() <= peak + peak / 16 + GRANULE);
        }
    }

    /// P4 for slots: as many as were ever live at once, each at most a quarter larger than the largest
    /// request.
    #[test]
    fn slots_are_bounded_by_what_is_live_at_once(steps in stack(acts(200))) {
        let mut device = card(1 << 20).without_virtual_memory();
        let mut policy = tier(false);
        let mut occupied: Vec<Block> = Vec::new();
        let (mut count, mut largest) = (0, 0);
        for step in steps {
            match step {
                Some(size) => {
                    occupied.push(policy.allocate(&mut device, size, Stream(0)).unwrap());
                    largest = largest.max(size.max(1).next_multiple_of(GRANULE));
                }
                None => {
                    let top = occupied.pop();
                    top.into_iter().for_each(|block| policy.deallocate(&mut device, block, Stream(0)));
                }
            }
            count = count.max(u64::try_from(occupied.len()).unwrap());
            let slot = (largest + largest / 4).next_multiple_of(GRANULE);
            prop_assert!(policy.reserved() <= count * slot, "{} for {count} of {slot}", policy.reserved());
        }
    }
}

/// Bytes of the blocks as they lie in a region.
fn rounded(blocks: &[Block]) -> u64 {
    blocks.iter().map(|block| block.size.max(1).next_multiple_of(256)).sum()
}

/// P12 by itself: an idle trim with work in flight returns at once.
#[test]
fn an_idle_trim_never_waits() {
    for regions in [true, false] {
        let mut device = card(256);
        let mut policy = tier(regions);
        let block = policy.allocate(&mut device, 100 * MIB, Stream(0)).unwrap();
        device.launch(Stream(0), 1_000_000, &[block]);
        policy.deallocate(&mut device, block, Stream(0));
        for _ in 0..100 {
            policy.trim(&mut device, Trim::Idle);
        }
        assert_eq!((device.calls().wait, policy.reserved()), (0, 100 * MIB));
        assert_eq!(device.violations(), &[]);
    }
}
