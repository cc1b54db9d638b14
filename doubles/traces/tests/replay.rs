//! Tests of replayed allocation traces, against recordings of real pools and published figures.

use plimsoll_pool::{GgmlLegacy, GgmlLegacyOptions, Policy, Stream};
use plimsoll_traces::replay::{Broken, Cause, PolicyKind, UNLIMITED, replay, smallest_budget};
use plimsoll_traces::trace::{Trace, TraceStep};
use plimsoll_traces::{CacheShape, DemandRules, GeneratedRun, GeneratorCard, ModelShape, Outputs, generate};

use super::recorded;
use super::simulated::Simulated;

const STREAM: Stream = Stream(0);

fn mib(bytes: u64) -> f64 {
    // far below 2^53
    let whole = u32::try_from(bytes >> 10).unwrap();
    f64::from(whole) / 1024.0
}

/// Copies of K and V that grow by `step` bytes each, `steps` times, K before V.
fn grow(pool: &mut GgmlLegacy, device: &mut Simulated, step: u64, steps: u64) {
    for n in 1..=steps {
        let [key, value] = [(); 2].map(|()| pool.allocate(device, n * step, STREAM).unwrap());
        pool.deallocate(device, value, STREAM);
        pool.deallocate(device, key, STREAM);
    }
}

#[test]
fn the_legacy_pool_asks_the_driver_for_exactly_what_the_real_one_asked_for() {
    for (cache, real) in [
        (CacheShape::Quantised, include_str!("../../../data/traces/old-q8_0-ub512.legacy-driver.txt")),
        (CacheShape::F16, include_str!("../../../data/traces/old-f16-ub512.legacy-driver.txt")),
    ] {
        let real: Vec<u64> = real.lines().map(|line| line.parse().unwrap()).collect();
        let outcome = replay(&recorded(cache), PolicyKind::GgmlLegacy, UNLIMITED);
        assert_eq!(outcome.driver_sizes, real);
        assert_eq!(outcome.peak_reserved, real.iter().sum::<u64>());
    }
}

#[test]
fn the_vmm_pool_reserves_what_the_real_one_reserved() {
    let outcome = replay(&recorded(CacheShape::Quantised), PolicyKind::GgmlVmm, UNLIMITED);
    assert_eq!(outcome.peak_reserved, 251_658_240);
}

/// llama.cpp PR 22732 prints the slots after a smaller and after a larger prompt; only the growth is
/// predicted.
#[test]
fn the_slots_of_pull_request_22732_come_out() {
    let hundredths = |n: u64| (n << 20) / 100;
    let smaller = [1, 0, 0, 105, 420, 6720, 5040, 840, 5040].map(|n| hundredths(n).max(2048));
    let mut device = Simulated::new(UNLIMITED, 256);
    let options = GgmlLegacyOptions::default();
    let mut pool = GgmlLegacy::holding(options, &mut device, &smaller).unwrap();
    grow(&mut pool, &mut device, 1 << 19, 162);
    let mut slots: Vec<f64> = pool.idle().map(mib).collect();
    slots.sort_by(f64::total_cmp);
    let published = [
        0.0, 0.0, 0.01, 1.05, 4.20, 8.40, 50.40, 50.40, 53.02, 56.17, 59.32, 62.47, 65.62, 67.20, 69.30,
        70.88, 72.97, 74.55, 76.65, 78.75, 80.85, 82.95, 85.05,
    ];
    assert_eq!(slots.len(), published.len());
    for (slot, published) in slots.iter().zip(published) {
        assert!((slot - published).abs() < 0.011, "{slot} {published}");
    }
    assert!((mib(pool.reserved()) - 1170.24).abs() < 0.05, "{}", mib(pool.reserved()));
}

/// Decoding with a head of 512 copies the cache for every token, and the copies grow every 256 tokens.
#[test]
fn a_legacy_pool_holds_twenty_times_what_decoding_to_128k_needs() {
    for (growth, reserved) in [(105, 20_164.0), (200, 4052.0)] {
        let mut device = Simulated::new(UNLIMITED, 256);
        let mut pool = GgmlLegacy::new(GgmlLegacyOptions { growth, ..GgmlLegacyOptions::default() });
        grow(&mut pool, &mut device, 1 << 20, 512);
        assert_eq!(mib(pool.reserved()).round(), reserved);
    }
}

/// One prompt of 131072 tokens, layers only, on a card with 82 multiprocessors whose attention kernel always
/// streams: blocks, peak live (MiB), and peak reserved (MiB) of legacy, legacy with doubling and VMM.
/// Published figures are rounded to one MiB, halves to the even one. Those of Gemma 4 were published with two
/// blocks a multiprocessor of the kernel for heads of 512, which holds one
/// (`fattn-mma-f16.cuh:ggml_cuda_fattn_mma_get_config_ampere @ b8799`): 10 MiB of partial results less.
#[test]
fn a_prompt_of_128k_takes_what_it_was_computed_to_take() {
    const POLICIES: [PolicyKind; 3] =
        [PolicyKind::GgmlLegacy, PolicyKind::GgmlLegacyDouble, PolicyKind::GgmlVmm];
    let quantised = CacheShape::Quantised;
    for (shape, cache, blocks, live, reserved) in [
        (ModelShape::LLAMA3_8B, quantised, 139_264, 517.3, [9363, 1504, 518]),
        (ModelShape::QWEN3_30B_A3B, quantised, 319_488, 261.3, [4600, 655, 262]),
        (ModelShape::GEMMA3_12B, quantised, 208_896, 1034.4, [18_768, 3013, 1036]),
        (ModelShape::GEMMA4_31B, quantised, 261_120, 1034.3, [18_762, 3015, 1036]),
        (ModelShape::LLAMA3_8B, CacheShape::F16, 122_880, 13.0, [16, 25, 14]),
        (ModelShape::GEMMA4_31B, CacheShape::F16, 230_400, 17.0, [32, 37, 18]),
    ] {
        let trace = published(&shape, GeneratedRun::prompt(DemandRules::Copying, cache, 131_072));
        assert_eq!(trace.blocks(), blocks);
        assert!(
            (mib(trace.peak_live()) - live).abs() <= 0.05,
            "{} {live}: {}",
            shape.name,
            mib(trace.peak_live())
        );
        let found = POLICIES.map(|kind| {
            let outcome = replay(&trace, kind, UNLIMITED);
            mib(outcome.peak_reserved).round_ties_even()
        });
        assert_eq!(found, reserved.map(f64::from), "{}", shape.name);
    }
}

/// Driver calls of the first row.
#[test]
fn a_prompt_of_128k_makes_as_many_driver_calls_as_it_was_computed_to_make() {
    let trace = published(
        &ModelShape::LLAMA3_8B,
        GeneratedRun::prompt(DemandRules::Copying, CacheShape::Quantised, 131_072),
    );
    for (kind, calls) in
        [(PolicyKind::GgmlLegacy, 117), (PolicyKind::GgmlLegacyDouble, 14), (PolicyKind::GgmlVmm, 255)]
    {
        let outcome = replay(&trace, kind, UNLIMITED);
        assert_eq!(outcome.driver_sizes.len(), calls, "{kind}");
    }
}

/// Kimi-K2, micro-batches of 4096. The published figures are those of 31 of them, at 126976 tokens.
#[test]
fn restored_heads_strand_what_they_were_computed_to_strand() {
    for (pass, live, legacy) in [(None, 4232, 45_721), (Some(512), 497, 2142), (Some(1024), 746, 1369)] {
        let run = GeneratedRun {
            micro_batch: 4096,
            attention_pass: pass,
            ..GeneratedRun::prompt(DemandRules::Ik, CacheShape::F16, 126_976)
        };
        let trace = published(&ModelShape::KIMI_K2, run);
        assert_eq!(trace.peak_live(), live << 20);
        let outcome = replay(&trace, PolicyKind::GgmlLegacy, UNLIMITED);
        assert_eq!(mib(outcome.peak_reserved).round(), f64::from(legacy));
    }
}

fn published(shape: &ModelShape, run: GeneratedRun) -> Trace {
    let card = GeneratorCard { capability: plimsoll_pool::demand::ADA, ..GeneratorCard::RTX3090 };
    let run = GeneratedRun { outputs: Outputs::Layers, ..run };
    generate(shape, &run, &card).unwrap()
}

#[test]
fn the_smallest_budget_is_enough_and_legacy_needs_all_that_it_strands() {
    let trace = recorded(CacheShape::Quantised);
    let live = trace.peak_live();
    for (kind, at_least, at_most) in [
        (PolicyKind::GgmlLegacy, 4_261_820_928, 4_261_820_928),
        (PolicyKind::GgmlLegacyFlush, live, live + live / 20),
        (PolicyKind::GgmlVmm, live, live),
    ] {
        let budget = smallest_budget(&trace, kind).unwrap();
        assert!((at_least..=at_most).contains(&budget), "{kind} {budget}");
        assert!(replay(&trace, kind, budget).completed());
        let failure = replay(&trace, kind, live - 1).failure.unwrap();
        assert!(matches!(failure.cause, Cause::Refused { .. }), "{kind}");
    }
}

#[test]
fn a_pool_that_would_abort_is_a_failure_that_no_budget_helps() {
    let text = concat!(
        "Thread,Time,Action,Pointer,Size,Stream\n",
        "1,0,allocate,0x1,512,0x0\n1,1,allocate,0x2,512,0x0\n1,2,free,0x1,512,0x0\n1,3,free,0x2,512,0x0\n",
    );
    let trace = Trace::from_csv(text.as_bytes()).unwrap();
    let failure = replay(&trace, PolicyKind::GgmlVmm, UNLIMITED).failure.unwrap();
    assert_eq!((failure.step, failure.cause), (2, Cause::Broken(Broken::OutOfOrder)));
    assert_eq!(smallest_budget(&trace, PolicyKind::GgmlVmm), None);
    assert!(failure.to_string().contains("a block other than the last allocated one was freed"));
}

#[test]
fn replays_of_one_trace_are_equal_and_break_no_rule_of_the_card() {
    let trace = recorded(CacheShape::F16);
    for kind in PolicyKind::ALL {
        let [first, second] = [(); 2].map(|()| replay(&trace, kind, UNLIMITED));
        assert_eq!(first, second, "{kind}");
        assert!(first.completed() && first.peak_reserved >= trace.peak_live(), "{kind}");
        assert_eq!(checked(&trace, kind), first.driver_sizes, "{kind}");
    }
}

/// The same on the card that finds every broken rule: sizes of its requests.
fn checked(trace: &Trace, kind: PolicyKind) -> Vec<u64> {
    let mut device = Simulated::new(UNLIMITED, kind.granule());
    let mut policy = kind.policy();
    let mut blocks = Vec::new();
    for step in trace.steps() {
        match *step {
            TraceStep::Allocate { size, stream, .. } => {
                blocks.push(policy.allocate(&mut device, size, stream).unwrap());
            }
            TraceStep::Free { block, stream } => {
                policy.deallocate(&mut device, blocks[usize::try_from(block).unwrap()], stream);
            }
        }
    }
    assert_eq!(device.violations(), &[], "{kind}");
    device.driver_sizes().to_vec()
}
