//! Tests of long lines that consist of known phrases only.

use std::time::Duration;

use plimsoll_doctor::{LineSource, LogReader};
use rustix::time::{ClockId, clock_gettime};

const SIZE: usize = 128 << 10;

/// Processor time of this thread: a busy machine takes the long reading off its processor, and not the short
/// one.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a time after zero")
}

/// The shortest of a few readings of one line of these words.
fn cost(words: &str) -> Duration {
    let line = words.repeat(SIZE / words.len());
    let once = || {
        let begun = now();
        let mut reader = LogReader::new();
        reader.feed(LineSource::Log, line.as_bytes());
        drop(reader);
        now() - begun
    };
    once().min(once()).min(once())
}

#[test]
fn a_line_full_of_phrases_costs_the_search_and_little_more() {
    let plain = cost("the quick brown fox jumps over the lazy dog; ");
    // The second has the phrases that cost most, in half the bytes.
    for (phrases, times) in [
        ("CUDA error: out of memory GGML_ASSERT( couldn't bind torch.OutOfMemoryError ", 40),
        ("cudaMalloc failed: out of memory; CUDA error: out of memory ", 100),
    ] {
        let hostile = cost(phrases);
        assert!(hostile < times * plain, "{plain:?} without a phrase, {hostile:?} with {phrases}");
    }
}
