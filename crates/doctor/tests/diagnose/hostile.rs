//! Tests of the diagnosis with damaged logs (cut, mixed, endless, binary): none may panic, and memory stays
//! bounded.
//!
//! `PLIMSOLL_FUZZ=1000000 cargo test --release -p plimsoll-doctor diagnose::hostile` runs a million
//! mixtures; the ordinary tests run a few thousand.

use plimsoll_doctor::{Facts, LineSource, LogReader, diagnose};

use super::logs::logs;

/// Xorshift: the same mixtures everywhere.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % end).unwrap_or_default()
    }
}

fn read(log: &[u8]) -> Facts {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log);
    reader.finish()
}

/// A piece of one log, changed, behind a piece of another.
fn mixture(chance: &mut Chance, logs: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut mixed = Vec::new();
    for _ in 0..1 + chance.below(4) {
        let log = &logs[chance.below(logs.len())].1;
        let from = chance.below(log.len());
        let to = from + chance.below(log.len() - from + 1);
        mixed.extend_from_slice(&log[from..to]);
    }
    for _ in 0..chance.below(8) {
        if mixed.is_empty() {
            break;
        }
        let at = chance.below(mixed.len());
        match chance.below(5) {
            0 => mixed[at] = u8::try_from(chance.below(256)).unwrap_or_default(),
            1 => mixed.insert(at, b'9'),
            2 => {
                mixed.remove(at);
            }
            3 => mixed.splice(at..at, *b"\x1b[\0\xff\n").for_each(drop),
            _ => mixed.splice(at..at, *b"18446744073709551616.99999999999 GiB ").for_each(drop),
        }
    }
    mixed
}

#[test]
fn no_mixture_of_logs_can_hurt_however_it_is_cut() {
    let rounds = std::env::var("PLIMSOLL_FUZZ").ok().and_then(|rounds| rounds.parse().ok());
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let logs = logs();
    for round in 0..rounds.unwrap_or(2000_u64) {
        let log = mixture(&mut chance, &logs);
        let whole = diagnose(&read(&log));
        assert!((0.0..=0.99).contains(&whole.confidence));
        assert!(whole.evidence.len() <= 8 && whole.evidence.iter().all(|quote| quote.text.len() <= 1600));
        let mut reader = LogReader::new();
        let mut rest = log.as_slice();
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at(1 + chance.below(rest.len()));
            reader.feed(LineSource::Log, piece);
            rest = tail;
        }
        let pieces = diagnose(&reader.finish());
        assert_eq!(whole, pieces, "round {round}: {}", String::from_utf8_lossy(&log));
    }
}

#[test]
fn an_endless_line_is_read_in_bounded_memory_and_what_is_in_it_is_found() {
    let mut reader = LogReader::new();
    for _ in 0..100 {
        reader.feed(LineSource::Log, &vec![b'x'; 1 << 20]);
    }
    reader.feed(LineSource::Log, b" CUDA error: out of memory\n  in function alloc\n  cuMemCreate(\n");
    let diagnosis = diagnose(&reader.finish());
    assert_eq!(diagnosis.cause.code(), "pool_growth");
    let lines: Vec<u64> = diagnosis.evidence.iter().map(|quote| quote.line).collect();
    assert_eq!(lines, [3, 1], "the call that failed, and the end of the endless line");
}

#[test]
fn a_phrase_on_the_border_of_two_pieces_is_found() {
    let log = b"ggml: cudaMalloc failed: out of memory, failed to allocate compute pp buffers\n";
    for cut in 1..log.len() {
        let mut reader = LogReader::new();
        reader.feed(LineSource::Log, &log[..cut]);
        reader.feed(LineSource::Log, &log[cut..]);
        assert_eq!(diagnose(&reader.finish()).cause.code(), "compute_buffer_too_large", "cut at {cut}");
    }
}

#[test]
fn a_log_that_repeats_itself_leaves_no_more_than_a_short_one() {
    let line = b"allocating 1.00 MiB on device 0: cudaMalloc failed: out of memory\n";
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, &line.repeat(100_000));
    reader.feed(
        LineSource::Log,
        b"CUDA error: out of memory\n  current device: 0, in function alloc at x\n  cuMemCreate(&handle)\n",
    );
    let diagnosis = diagnose(&reader.finish());
    assert_eq!(diagnosis.cause.code(), "pool_growth", "the last refusal counts");
    assert!(diagnosis.evidence.len() <= 8);
    let tree = serde_json::to_string(&diagnosis).unwrap();
    assert!(tree.len() < 1 << 16, "{}", tree.len());
}
