//! Encoder of a memory recording: samples in, bytes out. The caller writes them.

use std::collections::HashMap;

use super::about::About;
use super::figure::{Figure, Pace};
use super::frame::{self, Kind, MOST_FIGURES, put, put_text, wide, zigzag};
use super::read::{Source, When};

/// Bytes that a sample may take on average: 24 hours at two samples a second are 172 800, and 20 MB are
/// promised.
const SAMPLE_BYTES: u64 = 110;
/// Bytes that a record may exceed its allowance by: declarations and snapshots come at the beginning.
const CREDIT: u64 = 512 << 10;
/// While a record is ahead of that, slow figures are written in one sample of so many.
const SLOW_EVERY: u64 = 20;
/// Bytes of events in a row that are written whatever the allowance; kernels can talk a lot.
const EVENT_CREDIT: u64 = 2 << 20;
const MOST_TEXT: usize = 64 << 10;
const MOST_EVENT: usize = 1 << 10;

/// All figures at one moment. A figure that is missing counts as gone.
#[derive(Clone, Debug, Default)]
pub struct Look {
    values: Vec<(Figure, Pace, u64)>,
}

impl Look {
    pub fn push(&mut self, figure: Figure, pace: Pace, value: u64) {
        self.values.push((figure, pace, value));
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// Last written value of a figure plus one; 0 means that the figure is gone.
#[derive(Clone, Copy, Debug)]
struct Written {
    value: u64,
    pace: Pace,
    /// In which sample it was last looked at.
    seen: u64,
}

/// Encoder of samples as frames.
#[derive(Debug, Default)]
pub struct Encoder {
    numbers: HashMap<Figure, usize>,
    written: Vec<Written>,
    time_ms: u64,
    samples: u64,
    bytes: u64,
    event_bytes: u64,
}

impl Encoder {
    /// Begins a record; its first bytes go to `out`.
    pub fn begin(about: &About, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(frame::MAGIC);
        // A struct of texts and numbers always becomes JSON.
        // JSON for the head only: it is written once and gains fields between versions.
        frame::write(Kind::About, &serde_json::to_vec(about).unwrap_or_default(), out);
        Self::default()
    }

    /// Adds a look that was taken `time_ms` after the beginning.
    pub fn sample(&mut self, time_ms: u64, look: &Look, out: &mut Vec<u8>) {
        let start = out.len();
        self.samples += 1;
        // Every 20th sample is complete even over the allowance, so slow figures are at most 10 s late.
        let all = self.is_within() || self.samples.is_multiple_of(SLOW_EVERY);
        let mut changes = self.changes(look, all, out);
        // Sorted, so that gaps between numbers are small and fit one byte.
        changes.sort_unstable_by_key(|(number, _)| *number);
        let mut payload = Vec::with_capacity(8 + 4 * changes.len());
        self.put_time(time_ms, &mut payload);
        let mut next = 0;
        for (number, value) in changes {
            put(wide(number - next), &mut payload);
            let before = std::mem::replace(&mut self.written[number].value, value);
            put(zigzag(value.wrapping_sub(before).cast_signed()), &mut payload);
            next = number + 1;
        }
        frame::write(Kind::Sample, &payload, out);
        self.bytes += wide(out.len() - start);
    }

    fn is_within(&self) -> bool {
        // 172 800 samples of 110 bytes are 19 MB, which leaves a megabyte of the 20 for the beginning and
        // events.
        self.bytes <= CREDIT + self.samples * SAMPLE_BYTES
    }

    /// The figures that are to be written, with their new value; those that are new are declared.
    fn changes(&mut self, look: &Look, all: bool, out: &mut Vec<u8>) -> Vec<(usize, u64)> {
        let mut changes = Vec::with_capacity(look.values.len());
        for (figure, pace, value) in &look.values {
            let Some(number) = self.number(figure, *pace, out) else {
                continue;
            };
            let written = &mut self.written[number];
            // Shifted by one, so that 0 can mean "gone" without a flag.
            let value = value.saturating_add(1);
            let is_new = written.seen == 0;
            // The first of two with one name stands.
            if std::mem::replace(&mut written.seen, self.samples) == self.samples {
                continue;
            }
            if written.value != value && (all || is_new || *pace == Pace::Fast) {
                changes.push((number, value));
            }
        }
        let gone = self.written.iter().enumerate().filter(|(_, written)| {
            // Processes end: their figures are written as gone once.
            written.seen != self.samples && written.value != 0 && (all || written.pace == Pace::Fast)
        });
        changes.extend(gone.map(|(number, _)| (number, 0)));
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
        self.written.push(Written {
            value: 0,
            pace,
            seen: 0,
        });
        self.numbers.insert(figure.clone(), number);
        let mut payload = vec![
            code(&super::Group::ALL, figure.group),
            code(&super::Unit::ALL, figure.unit),
        ];
        put_text(cut(&figure.subject, MOST_EVENT), &mut payload);
        payload.extend_from_slice(cut(&figure.what, MOST_EVENT).as_bytes());
        frame::write(Kind::Figure, &payload, out);
        Some(number)
    }

    /// Adds a log line; false where events have used up their allowance.
    pub fn event(&mut self, time_ms: u64, source: Source, text: &str, out: &mut Vec<u8>) -> bool {
        // A driver in trouble can log thousands of lines a second.
        if self.event_bytes > EVENT_CREDIT {
            return false;
        }
        let start = out.len();
        let mut payload = Vec::new();
        self.put_time(time_ms, &mut payload);
        payload.push(code(&Source::ALL, source));
        payload.extend_from_slice(cut(text, MOST_EVENT).as_bytes());
        frame::write(Kind::Event, &payload, out);
        self.event_bytes += wide(out.len() - start);
        true
    }

    /// Adds a file as it was before or after the run.
    pub fn shot(&mut self, when: When, name: &str, text: &str, out: &mut Vec<u8>) {
        let mut payload = vec![code(&When::ALL, when)];
        put_text(cut(name, MOST_EVENT), &mut payload);
        payload.extend_from_slice(cut(text, MOST_TEXT).as_bytes());
        frame::write(Kind::Shot, &payload, out);
    }

    /// Ends the recording properly, with the program's exit status.
    pub fn end(&mut self, time_ms: u64, status: &str, out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        self.put_time(time_ms, &mut payload);
        payload.extend_from_slice(cut(status, MOST_EVENT).as_bytes());
        frame::write(Kind::End, &payload, out);
    }

    fn put_time(&mut self, time_ms: u64, payload: &mut Vec<u8>) {
        // The clock of the caller is monotonic; a step back is written as no time.
        put(time_ms.saturating_sub(self.time_ms), payload);
        self.time_ms = self.time_ms.max(time_ms);
    }
}

/// The place of a value among all of its type.
fn code<T: PartialEq>(all: &[T], value: T) -> u8 {
    // Positions in ALL are the codes on disk, so its order must never change.
    let place = all.iter().position(|other| *other == value);
    place
        .and_then(|place| u8::try_from(place).ok())
        .unwrap_or(u8::MAX)
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
