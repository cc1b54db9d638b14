//! Fuzz target for the doctor's log reader with arbitrary bytes: no panic, bounded evidence, and the same
//! verdict however the log is divided.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_doctor::{Diagnosis, Reader, Source, diagnose};

fn read(pieces: &[&[u8]]) -> Diagnosis {
    let mut reader = Reader::new();
    for piece in pieces {
        reader.feed(Source::Log, piece);
    }
    diagnose(&reader.finish())
}

fuzz_target!(|log: &[u8]| {
    let whole = read(&[log]);
    assert!((0.0..=0.99).contains(&whole.confidence));
    assert!(whole.evidence.len() <= 8);
    // A line above 64 KiB is read in pieces, whose borders depend on the cut.
    if log.len() < 1 << 16 {
        let (head, tail) = log.split_at(log.len() / 2);
        assert_eq!(whole, read(&[head, tail]));
    }
});
