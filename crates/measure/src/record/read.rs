//! Reads a memory recording entry by entry, in constant memory.

use std::io::{BufRead, BufReader, Read, Take};

use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

use super::about::About;
use super::figure::Figure;

/// Version of the format.
pub(super) const VERSION: u8 = 2;
/// The first bytes of gzip.
const GZIP: &[u8] = b"\x1f\x8b";
/// Figures of one record. Beyond, new ones are left out.
pub(super) const MOST_FIGURES: usize = 8192;
/// A text that is longer gets cut.
pub(super) const MOST_EVENT: usize = 1 << 10;
/// No line is longer, and no record holds more in all: ten days at two samples a second are less.
const MOST_LINE: u64 = 1 << 20;
const MOST_BYTES: u64 = 1 << 30;

/// The source of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Kernel,
    Guard,
    Process,
    Watch,
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Guard => "guard",
            Self::Process => "process",
            Self::Watch => "watch",
        }
    }
}

/// One line. Times are milliseconds from the beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    About {
        version: u8,
        about: About,
    },
    /// Declares a figure; its place among the declarations is its number.
    Figure(Figure),
    /// The figures that are different now, each with the difference to its last value; none where it is gone.
    Sample {
        time_ms: u64,
        changes: Vec<(usize, Option<i64>)>,
    },
    Event {
        time_ms: u64,
        source: Source,
        text: String,
    },
    End {
        time_ms: u64,
        status: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadRecordError {
    #[error(
        "this is not a recording of `plimsoll measure watch`: its first line is not the header of a recording"
    )]
    Name,
    #[error(
        "this recording has version {found}, but this plimsoll reads version {VERSION}; use the version of \
            plimsoll that wrote it"
    )]
    Version { found: u8 },
    #[error("the recording is incomplete: it ends within its first line")]
    About,
}

/// Reader of a recording from its bytes.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    lines: BufReader<Take<GzDecoder<&'a [u8]>>>,
    line: Vec<u8>,
    about: About,
    figures: Vec<Figure>,
    values: Vec<Option<u64>>,
    time_ms: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, ReadRecordError> {
        if !bytes.starts_with(GZIP) {
            return Err(ReadRecordError::Name);
        }
        let mut reader = Self {
            // Bounded, because a few bytes of gzip can stand for any number.
            lines: BufReader::new(GzDecoder::new(bytes).take(MOST_BYTES)),
            line: Vec::new(),
            about: About::default(),
            figures: Vec::new(),
            values: Vec::new(),
            time_ms: 0,
        };
        match reader.read() {
            Some(Entry::About { version, about }) if version == VERSION => reader.about = about,
            Some(Entry::About { version: found, .. }) => return Err(ReadRecordError::Version { found }),
            Some(_) => return Err(ReadRecordError::Name),
            None => return Err(ReadRecordError::About),
        }
        Ok(reader)
    }

    pub(super) fn about(&self) -> &About {
        &self.about
    }

    /// The figures declared so far; their place is their number.
    pub(super) fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// Current value of a figure; `None` if it is gone or was never seen.
    pub(super) fn value(&self, number: usize) -> Option<u64> {
        *self.values.get(number)?
    }

    /// Bytes of a line that broke off, after the last entry.
    pub(super) fn left(&self) -> usize {
        self.line.len()
    }

    /// The next line that this version knows; `None` at the end, and where the record is damaged.
    fn read(&mut self) -> Option<Entry> {
        loop {
            self.line.clear();
            // An error ends the record, too: the bytes before it are in the line.
            let _ = (&mut self.lines).take(MOST_LINE).read_until(b'\n', &mut self.line);
            if !self.line.ends_with(b"\n") {
                return None;
            }
            match serde_json::from_slice(&self.line) {
                Ok(entry) => {
                    self.line.clear();
                    return Some(entry);
                }
                // A line of a later version is JSON as well.
                Err(error) if error.is_data() => {}
                Err(_) => return None,
            }
        }
    }

    /// A time is never before the last one: what is shown rests on their order.
    fn advance(&mut self, time_ms: &mut u64) {
        self.time_ms = self.time_ms.max(*time_ms);
        *time_ms = self.time_ms;
    }

    fn change(&mut self, changes: &mut Vec<(usize, Option<i64>)>) {
        // A number beyond the declared figures is ignored.
        changes.retain(|(number, _)| *number < self.values.len());
        for (number, difference) in changes {
            let before = self.values[*number].unwrap_or_default();
            self.values[*number] = difference.map(|more| before.wrapping_add(more.cast_unsigned()));
        }
    }
}

/// Damage ends the iteration: later samples are differences to lost ones.
impl Iterator for Reader<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let mut entry = self.read()?;
        match &mut entry {
            Entry::About { .. } => {}
            // The same bound as the encoder's; without it a hostile record could fill memory.
            Entry::Figure(figure) if self.figures.len() < MOST_FIGURES => {
                let [subject, what] = [&figure.subject, &figure.what].map(|text| cut(text, MOST_EVENT));
                let (group, unit) = (figure.group, figure.unit);
                self.figures.push(Figure::new(group, unit, subject, what));
                self.values.push(None);
            }
            Entry::Figure(_) => {}
            Entry::Sample { time_ms, changes } => {
                self.advance(time_ms);
                self.change(changes);
            }
            Entry::Event { time_ms, text, .. } | Entry::End { time_ms, status: text } => {
                self.advance(time_ms);
                *text = cut(text, MOST_EVENT);
            }
        }
        Some(entry)
    }
}

pub(super) fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}
