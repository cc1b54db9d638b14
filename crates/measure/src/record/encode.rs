//! Encodes a memory recording, from samples to bytes. The caller writes the bytes to the file.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::about::About;
use super::figure::{Figure, Pace};
use super::read::{Entry, MOST_EVENT, MOST_FIGURES, Source, VERSION, cut};

/// Bytes that a sample may take on average: 24 hours at two samples a second are 172 800, and 20 MB are
/// promised.
const SAMPLE_BYTES: u64 = 110;
/// Bytes that a record may exceed its allowance by: declarations come at the beginning.
const CREDIT: u64 = 512 << 10;
/// While a record is ahead of that, slow figures are written in one sample of so many.
const SLOW_EVERY: u64 = 20;
/// Bytes of events in a row that are written whatever the allowance; kernels can talk a lot.
const EVENT_CREDIT: u64 = 2 << 20;

/// All figures at one moment. A figure that is missing counts as gone.
#[derive(Clone, Debug, Default)]
pub struct Look {
    values: Vec<(Figure, Pace, u64)>,
}

impl Look {
    pub fn push(&mut self, figure: Figure, pace: Pace, value: u64) {
        self.values.push((figure, pace, value));
    }
}

/// Last written value of a figure.
#[derive(Clone, Copy, Debug)]
struct Written {
    value: Option<u64>,
    pace: Pace,
    /// In which sample it was last looked at.
    seen: u64,
}

/// Turns looks into compressed lines.
#[derive(Debug)]
pub struct Encoder {
    gzip: GzEncoder<Vec<u8>>,
    numbers: HashMap<Figure, usize>,
    written: Vec<Written>,
    samples: u64,
    bytes: u64,
    event_bytes: u64,
}

impl Encoder {
    /// Begins a record; its first bytes go to `out`.
    pub fn begin(about: &About, out: &mut Vec<u8>) -> Self {
        let mut encoder = Self {
            gzip: GzEncoder::new(Vec::new(), Compression::default()),
            numbers: HashMap::new(),
            written: Vec::new(),
            samples: 0,
            bytes: 0,
            event_bytes: 0,
        };
        let (version, about) = (VERSION, about.clone());
        encoder.write(&Entry::About { version, about }, out);
        encoder
    }

    /// Adds a look that was taken `time_ms` after the beginning.
    pub fn sample(&mut self, time_ms: u64, look: &Look, out: &mut Vec<u8>) {
        let start = self.bytes;
        self.samples += 1;
        // Every 20th sample is complete even over the allowance, so slow figures are at most 10 s late.
        let is_within = start <= CREDIT + self.samples * SAMPLE_BYTES;
        let all = is_within || self.samples.is_multiple_of(SLOW_EVERY);
        let changes = self.changes(look, all, out);
        let length = self.write(&Entry::Sample { time_ms, changes }, out);
        self.bytes += length;
    }

    /// The figures that are to be written, with their difference; those that are new are declared.
    fn changes(&mut self, look: &Look, all: bool, out: &mut Vec<u8>) -> Vec<(usize, Option<i64>)> {
        let mut changes = Vec::with_capacity(look.values.len());
        for (figure, pace, value) in &look.values {
            let Some(number) = self.number(figure, *pace, out) else {
                continue;
            };
            let written = &mut self.written[number];
            let is_new = written.seen == 0;
            // The first of two with one name stands.
            if std::mem::replace(&mut written.seen, self.samples) == self.samples {
                continue;
            }
            if written.value != Some(*value) && (all || is_new || *pace == Pace::Fast) {
                let before = written.value.replace(*value).unwrap_or_default();
                // Wrapping, so that the whole range of u64 is representable.
                changes.push((number, Some(value.wrapping_sub(before).cast_signed())));
            }
        }
        for (number, written) in self.written.iter_mut().enumerate() {
            // Processes end: their figures are written as gone once.
            let is_gone = written.seen != self.samples && written.value.is_some();
            if is_gone && (all || written.pace == Pace::Fast) {
                written.value = None;
                changes.push((number, None));
            }
        }
        changes
    }

    fn number(&mut self, figure: &Figure, pace: Pace, out: &mut Vec<u8>) -> Option<usize> {
        if let Some(number) = self.numbers.get(figure) {
            return Some(*number);
        }
        let number = self.written.len();
        // A machine that starts a process per second would grow the table without end.
        if number >= MOST_FIGURES {
            return None;
        }
        let (value, seen) = (None, 0);
        self.written.push(Written { value, pace, seen });
        self.numbers.insert(figure.clone(), number);
        self.bytes += self.write(&Entry::Figure(figure.clone()), out);
        Some(number)
    }

    /// Adds a log line; false where events have used up their allowance.
    pub fn event(&mut self, time_ms: u64, source: Source, text: &str, out: &mut Vec<u8>) -> bool {
        // A driver in trouble can log thousands of lines a second.
        if self.event_bytes > EVENT_CREDIT {
            return false;
        }
        let text = cut(text, MOST_EVENT);
        self.event_bytes += self.write(&Entry::Event { time_ms, source, text }, out);
        true
    }

    /// Ends the recording properly, with the program's exit status.
    pub fn end(&mut self, time_ms: u64, status: &str, out: &mut Vec<u8>) {
        let status = cut(status, MOST_EVENT);
        self.write(&Entry::End { time_ms, status }, out);
        // Compression into memory cannot fail.
        let _ = self.gzip.try_finish();
        out.append(self.gzip.get_mut());
    }

    /// Adds a line, and returns its length in the record.
    fn write(&mut self, entry: &Entry, out: &mut Vec<u8>) -> u64 {
        // Texts and numbers always become JSON, and compression into memory cannot fail. Each line is
        // flushed: what is in the file after a SIGKILL can be read to the last line.
        let _ = serde_json::to_writer(&mut self.gzip, entry);
        let _ = self.gzip.write_all(b"\n").and_then(|()| self.gzip.flush());
        let length = self.gzip.get_ref().len();
        out.append(self.gzip.get_mut());
        u64::try_from(length).unwrap_or(u64::MAX)
    }
}
