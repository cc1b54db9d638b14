//! Tests of damaged allocation traces: the result is an error or a trace, never a panic, and memory is
//! bounded by the input.

use plimsoll_fuzz::mutants;
use plimsoll_traces::replay::{PolicyKind, UNLIMITED, replay};
use plimsoll_traces::trace::Trace;
use plimsoll_wire::trace::{TraceHeader, TraceRecord};
use proptest::prelude::*;

const CSV: &[u8] = include_bytes!("../../../data/traces/old-q8_0-ub512-head.csv");

/// The first requests of the recorded trace as guard would have written them.
fn record() -> Vec<u8> {
    let mut file = TraceHeader::new(1, 1, 0, 0).to_bytes().to_vec();
    for (id, kind) in (0..200_u64).flat_map(|id| [(id, 1), (id, 2)]) {
        file.extend(request(kind, id, 4096 * (id + 1)).to_bytes());
    }
    file
}

fn request(kind: u8, id: u64, size: u64) -> TraceRecord {
    TraceRecord { time: id, id, size, kind, card: 0, pool: 1, detail: 0, stream: 0, thread: 0 }
}

/// Bytes replaced, then the end cut off.
fn damaged(whole: &[u8], damage: &[(prop::sample::Index, u8)], end: prop::sample::Index) -> Vec<u8> {
    let mut file = whole.to_vec();
    for (at, byte) in damage {
        let at = at.index(file.len());
        file[at] = *byte;
    }
    file.truncate(end.index(whole.len() * 4).min(whole.len()));
    file
}

fn check(trace: &Trace, bytes: usize) {
    assert!(trace.steps().len() <= bytes / 8);
    for kind in PolicyKind::ALL {
        replay(trace, kind, UNLIMITED);
    }
}

/// A program that gives back its oldest block first, with very many live: no policy may take a time that
/// grows with the square of them.
#[test]
fn many_live_blocks_freed_in_any_order_are_no_trouble() {
    const BLOCKS: u64 = 40_000;
    let mut file = TraceHeader::new(1, 1, 0, 0).to_bytes().to_vec();
    let steps = (0..BLOCKS).map(|id| (1, id)).chain((0..BLOCKS).map(|n| (2, n * 7919 % BLOCKS)));
    for (kind, id) in steps {
        file.extend(request(kind, id, 256 * (1 + id % 97)).to_bytes());
    }
    let trace = Trace::from_record(&file, None).unwrap();
    let started = std::time::Instant::now();
    for kind in PolicyKind::ALL {
        if kind != PolicyKind::GgmlVmm {
            assert!(replay(&trace, kind, UNLIMITED).completed(), "{kind}");
        }
    }
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}

#[test]
fn million_traces_of_allocators() {
    let csv = b"Thread,Time,Action,Pointer,Size,Stream\n1,10,allocate,0x10,256,0\n1,11,free,0x10,256,0\n1,12,allocate failure,0x0,99,0\n";
    mutants(&[csv], &[b"allocate", b"free", b"0x", b",,"], |mutant| {
        let _ = Trace::from_csv(mutant);
        if Trace::is_record(mutant) {
            let _ = Trace::from_record(mutant, None);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn damaged_logs_do_no_harm(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let file = damaged(&CSV[..8000], &damage, end);
        if let Ok(trace) = Trace::from_csv(&file) {
            check(&trace, file.len());
        }
    }

    #[test]
    fn damaged_records_do_no_harm(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let file = damaged(&record(), &damage, end);
        if let Ok(trace) = Trace::from_record(&file, None) {
            check(&trace, file.len());
        }
    }

    #[test]
    fn arbitrary_trace_bytes_are_parsed_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = Trace::from_csv(&bytes);
        let _ = Trace::from_record(&bytes, None);
        let headed = [b"Thread,Time,Action,Pointer,Size,Stream\n", &bytes[..]].concat();
        let _ = Trace::from_csv(&headed);
        let mut headed = TraceHeader::new(1, 1, 0, 0).to_bytes().to_vec();
        headed.extend(&bytes);
        let _ = Trace::from_record(&headed, None);
    }
}
