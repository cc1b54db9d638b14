//! Generated traces against what an H200 was seen to ask for and what others have published.
#![allow(clippy::unwrap_used)]

use plimsoll_pool::generate::{Cache, Card, Engine, Run, Shape, generate};
use plimsoll_pool::trace::{Step, Trace};

/// The run of `data/traces`: thirty parts of 2048 tokens, two tokens decoded after each.
fn recorded(cache: Cache) -> Trace {
    let run = Run {
        part: 2048,
        answer: 2,
        warm_up: true,
        ..Run::prompt(Engine::Copying, cache, 61_440)
    };
    generate(&Shape::M8, &run, &Card::H200).unwrap()
}

/// FNV-1a over sizes of allocations, and 0 for a free.
fn digest(trace: &Trace) -> u64 {
    let mut sizes = trace.steps().iter().map(|step| match step {
        Step::Allocate { size, .. } => *size,
        Step::Free { .. } => 0,
    });
    sizes
        .try_fold(0xcbf2_9ce4_8422_2325_u64, |hash, size| {
            let bytes = size.to_le_bytes();
            Some(bytes.iter().fold(hash, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            }))
        })
        .unwrap()
}

#[test]
fn xx() {
    for (cache, name) in [(Cache::Quantised, "q8_0"), (Cache::F16, "f16")] {
        let trace = recorded(cache);
        let real =
            Trace::from_csv(&std::fs::read(format!("/work/shared/traces/old-{name}-ub512.csv")).unwrap())
                .unwrap();
        for (i, (a, b)) in trace.steps().iter().zip(real.steps()).enumerate() {
            assert_eq!(a, b, "{i}");
        }
        assert_eq!(trace.steps().len(), real.steps().len());
        println!(
            "{} {} {:#x} {}",
            trace.steps().len(),
            trace.peak_live(),
            digest(&real),
            trace == real
        );
    }
}
