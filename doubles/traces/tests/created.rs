//! Tests of generated allocation traces, against the recorded requests of an engine on an H200 and published
//! figures.

use plimsoll_traces::trace::{Trace, TraceStep};
use plimsoll_traces::{
    CacheShape, DemandRules, GenerateError, GeneratedRun, GeneratorCard, ModelShape, Outputs, generate,
};

use super::recorded;

/// FNV-1a over the sizes of allocations, with 0 for a free.
fn digest(trace: &Trace) -> u64 {
    let sizes = trace.steps().iter().map(|step| match step {
        TraceStep::Allocate { size, .. } => *size,
        TraceStep::Free { .. } => 0,
    });
    sizes
        .flat_map(u64::to_le_bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[test]
fn the_traces_that_an_h200_was_seen_to_make_are_made_step_by_step() {
    // steps, peak and digest of the whole recordings, of which data/traces has the beginnings
    for (cache, steps, peak, known, head) in [
        (
            CacheShape::Quantised,
            37_404,
            251_658_240,
            0xd7c4_5495_6f9b_fcda,
            &include_bytes!("../../../data/traces/old-q8_0-ub512-head.csv")[..],
        ),
        (
            CacheShape::F16,
            33_548,
            16_926_720,
            0x3b26_a95a_4f9c_49da,
            &include_bytes!("../../../data/traces/old-f16-ub512-head.csv")[..],
        ),
    ] {
        let created = recorded(cache);
        let head = Trace::from_csv(head).unwrap();
        assert_eq!(created.steps()[..head.steps().len()], *head.steps());
        assert_eq!((created.steps().len(), created.peak_live()), (steps, peak));
        assert_eq!(digest(&created), known);
    }
}

#[test]
fn restored_heads_cost_what_issue_687_of_ik_says_per_token() {
    for (shape, cache, kib) in [
        (ModelShape::KIMI_K2, CacheShape::F16, 34),
        (ModelShape::KIMI_K2, CacheShape::Quantised, 35),
        (ModelShape::DEEPSEEK_V3, CacheShape::F16, 66),
        (ModelShape::DEEPSEEK_V3, CacheShape::Quantised, 67),
    ] {
        let peak = |context| {
            let run =
                GeneratedRun { micro_batch: 4096, ..GeneratedRun::prompt(DemandRules::Ik, cache, context) };
            generate(&shape, &run, &GeneratorCard::H200).unwrap().peak_live()
        };
        assert_eq!((peak(65_536) - peak(32_768)) / 32_768, kib << 10, "{}", shape.name);
    }
}

#[test]
fn an_engine_that_reserves_its_copies_asks_for_no_more_at_depth() {
    let peak = |engine, context| {
        let run = GeneratedRun::prompt(engine, CacheShape::Quantised, context);
        generate(&ModelShape::M8, &run, &GeneratorCard::H200).unwrap().peak_live()
    };
    assert_eq!(peak(DemandRules::Reserving, 4096), peak(DemandRules::Reserving, 65_536));
    assert!(peak(DemandRules::Copying, 65_536) > 8 * peak(DemandRules::Copying, 4096));
}

#[test]
fn without_flash_attention_the_probabilities_grow_with_depth() {
    // measured on l8: 152 MiB between 2000 and 7000 tokens, the f16 copy of 512 tokens' probabilities in 32
    // heads
    let run = |context| GeneratedRun {
        flash_attention: false,
        ..GeneratedRun::prompt(DemandRules::Reserving, CacheShape::F16, context)
    };
    let peak =
        |context| generate(&ModelShape::LLAMA3_8B, &run(context), &GeneratorCard::H200).unwrap().peak_live();
    assert_eq!((peak(7168) - peak(2048)) >> 20, 160);
    let quantised = GeneratedRun { cache: CacheShape::Quantised, ..run(512) };
    assert_eq!(
        generate(&ModelShape::M8, &quantised, &GeneratorCard::H200),
        Err(GenerateError::QuantisedWithoutFlashAttention)
    );
}

#[test]
fn invalid_generator_runs_are_rejected_before_allocation() {
    let plain = GeneratedRun::prompt(DemandRules::Copying, CacheShape::F16, 4096);
    let created = |run: &GeneratedRun| {
        generate(&ModelShape::GEMMA4_31B, run, &GeneratorCard::H200).map(|trace| trace.blocks())
    };
    assert_eq!(created(&GeneratedRun { context: 0, ..plain }), Err(GenerateError::Context { tokens: 0 }));
    assert_eq!(
        created(&GeneratedRun { micro_batch: 0, ..plain }),
        Err(GenerateError::MicroBatch { tokens: 0 })
    );
    let endless = GeneratedRun {
        context: 1 << 26,
        micro_batch: 1,
        answer: u64::MAX,
        outputs: Outputs::Layers,
        ..plain
    };
    assert_eq!(created(&endless), Err(GenerateError::TooLong));
}
