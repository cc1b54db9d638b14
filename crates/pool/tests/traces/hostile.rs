//! Damaged traces do no harm: an error or a trace, never a panic, and no more memory than the input is worth.

use plimsoll_pool::replay::{PolicyKind, UNLIMITED, Unwatched, replay};
use plimsoll_pool::trace::Trace;
use plimsoll_wire::trace::{Header, Record};
use proptest::prelude::*;

const CSV: &[u8] = include_bytes!("../../../../data/traces/old-q8_0-ub512-head.csv");

/// The first requests of the recorded trace as guard would have written them.
fn record() -> Vec<u8> {
    let mut file = Header::new(1, 1, 0, 0).to_bytes().to_vec();
    for (id, kind) in (0..200_u64).flat_map(|id| [(id, 1), (id, 2)]) {
        let record = Record {
            time: id,
            id,
            size: 4096 * (id + 1),
            kind,
            card: 0,
            pool: 1,
            detail: 0,
            stream: 0,
            thread: 0,
        };
        file.extend(record.to_bytes());
    }
    file
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
        replay(trace, kind, UNLIMITED, &mut Unwatched);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

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
    fn whatever_the_bytes_they_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = Trace::from_csv(&bytes);
        let _ = Trace::from_record(&bytes, None);
        let headed = [b"Thread,Time,Action,Pointer,Size,Stream\n", &bytes[..]].concat();
        let _ = Trace::from_csv(&headed);
        let mut headed = Header::new(1, 1, 0, 0).to_bytes().to_vec();
        headed.extend(&bytes);
        let _ = Trace::from_record(&headed, None);
    }
}
