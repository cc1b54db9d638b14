//! Reader of a memory recording: an iterator over its entries, in constant memory.

use serde::Serialize;

use super::about::About;
use super::figure::{Figure, Group, Unit};
use super::frame::{self, Input, Kind, MAGIC, MOST_FIGURES, unzigzag};

/// Source of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Kernel,
    Guard,
    Process,
    Watch,
}

impl Source {
    pub(super) const ALL: [Self; 4] = [Self::Kernel, Self::Guard, Self::Process, Self::Watch];

    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Guard => "guard",
            Self::Process => "process",
            Self::Watch => "watch",
        }
    }
}

/// Moment of a snapshot: before or after the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    Before,
    After,
}

impl When {
    pub(super) const ALL: [Self; 2] = [Self::Before, Self::After];

    pub fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

/// One entry of a recording. Times are milliseconds from its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The numbers of the figures that are different now.
    Sample {
        time_ms: u64,
        changed: Vec<usize>,
    },
    Event {
        time_ms: u64,
        source: Source,
        text: String,
    },
    Shot {
        when: When,
        name: String,
        text: String,
    },
    End {
        time_ms: u64,
        status: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadRecordError {
    #[error("this is not a recording of `plimsoll watch`: its first bytes differ")]
    Name,
    #[error("this record is of version {found}, and this plimsoll reads version 1; use a newer one")]
    Version { found: u8 },
    #[error("the record breaks off in its first frame, at byte 8")]
    About,
}

/// Reader of a recording from its bytes.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    about: About,
    figures: Vec<Figure>,
    /// 0 is gone; everything else is one more than the value.
    values: Vec<u64>,
    time_ms: u64,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, ReadRecordError> {
        let (name, rest) = bytes.split_at_checked(MAGIC.len()).ok_or(ReadRecordError::Name)?;
        // The last byte is the version, so a newer record gets its own message.
        if name[..MAGIC.len() - 1] != MAGIC[..MAGIC.len() - 1] {
            return Err(ReadRecordError::Name);
        }
        if name != MAGIC {
            return Err(ReadRecordError::Version {
                found: name[MAGIC.len() - 1],
            });
        }
        let (kind, payload, length) = frame::read(rest).ok_or(ReadRecordError::About)?;
        let about = serde_json::from_slice(payload)
            .ok()
            .filter(|_| kind == Some(Kind::About));
        Ok(Self {
            bytes,
            at: MAGIC.len() + length,
            about: about.ok_or(ReadRecordError::About)?,
            figures: Vec::new(),
            values: Vec::new(),
            time_ms: 0,
        })
    }

    pub fn about(&self) -> &About {
        &self.about
    }

    /// The figures declared so far; their place is their number.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// Current value of a figure; `None` if it is gone or was never seen.
    pub fn value(&self, number: usize) -> Option<u64> {
        self.values.get(number)?.checked_sub(1)
    }

    /// Bytes that have not been read: after the last entry, the torn tail.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn entry(&mut self, kind: Option<Kind>, payload: &[u8]) -> Option<Entry> {
        let mut input = Input(payload);
        match kind? {
            Kind::About => None,
            Kind::Figure => {
                self.declare(input);
                None
            }
            Kind::Sample => {
                let time_ms = self.advance(&mut input)?;
                let changed = self.change(input);
                Some(Entry::Sample { time_ms, changed })
            }
            Kind::Event => Some(Entry::Event {
                time_ms: self.advance(&mut input)?,
                source: pick(&Source::ALL, &mut input)?,
                text: input.rest(),
            }),
            Kind::Shot => Some(Entry::Shot {
                when: pick(&When::ALL, &mut input)?,
                name: input.text()?,
                text: input.rest(),
            }),
            Kind::End => Some(Entry::End {
                time_ms: self.advance(&mut input)?,
                status: input.rest(),
            }),
        }
    }

    fn advance(&mut self, input: &mut Input<'_>) -> Option<u64> {
        self.time_ms = self.time_ms.saturating_add(input.number()?);
        Some(self.time_ms)
    }

    /// A declaration that cannot be read still takes its number, so that those after it keep theirs.
    fn declare(&mut self, mut input: Input<'_>) {
        // The same bound as the encoder's; without it a hostile record could fill memory.
        if self.figures.len() >= MOST_FIGURES {
            return;
        }
        // Groups of a later version are shown among the machine's figures.
        let group = pick(&Group::ALL, &mut input).unwrap_or(Group::Machine);
        let unit = pick(&Unit::ALL, &mut input).unwrap_or(Unit::Count);
        let subject = input.text().unwrap_or_default();
        self.figures.push(Figure::new(group, unit, subject, input.rest()));
        self.values.push(0);
    }

    fn change(&mut self, mut input: Input<'_>) -> Vec<usize> {
        let mut changed = Vec::new();
        let mut next: usize = 0;
        while let (Some(gap), Some(difference)) = (input.number(), input.number()) {
            let number = usize::try_from(gap).ok().and_then(|gap| next.checked_add(gap));
            // A number beyond the declared figures ends the sample: later gaps build on it.
            let Some(number) = number.filter(|number| *number < self.values.len()) else {
                break;
            };
            // Wrapping mirrors the encoder, so that the whole range of u64 is representable.
            self.values[number] = self.values[number].wrapping_add(unzigzag(difference).cast_unsigned());
            changed.push(number);
            next = number + 1;
        }
        changed
    }
}

/// Damage ends the iteration: later samples are differences to lost ones.
impl Iterator for Reader<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let (kind, payload, length) = frame::read(&self.bytes[self.at..])?;
            self.at += length;
            if let Some(entry) = self.entry(kind, payload) {
                return Some(entry);
            }
        }
    }
}

fn pick<T: Copy>(all: &[T], input: &mut Input<'_>) -> Option<T> {
    let code = *input.take(1)?.first()?;
    all.get(usize::from(code)).copied()
}
