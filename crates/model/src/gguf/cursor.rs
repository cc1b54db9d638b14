//! Bounds-checked cursor over the bytes of a GGUF header; all other code reads the header through it.

use super::error::{GgufError, GgufPlace};
use super::gap::{Gap, GapRun};
use super::outlook::Ahead;
use super::{HEADER_LIMIT, value_type::ValueType};

/// `GGUF_MAX_STRING_LENGTH` and `GGUF_MAX_ARRAY_ELEMENTS`.
const LONGEST: u64 = 1 << 30;
/// The fewest bytes that a text takes.
const TEXT: u64 = 8;

#[derive(Debug)]
pub(super) struct Cursor<'a> {
    window: &'a [u8],
    at: usize,
    /// Bytes of the file that precede the window or were left out of it so far.
    absent: u64,
    file_length: u64,
    pub(super) big_endian: bool,
    /// Gaps from here on; `None` for a window without any.
    gaps: Option<&'a [Gap]>,
    /// Elements that are to be left out and still are in the window.
    pub(super) surplus: Option<GapRun>,
    pub(super) ahead: Ahead,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(window: &'a [u8], file_length: u64) -> Self {
        Self::within(window, 0, file_length)
    }

    /// In a window that starts at `offset` in the file.
    pub(super) fn within(window: &'a [u8], offset: u64, file_length: u64) -> Self {
        let length = usize::try_from(file_length.saturating_sub(offset)).unwrap_or(usize::MAX);
        Self {
            // A window may be longer than the file where the caller's buffer is.
            window: window.get(..length).unwrap_or(window),
            at: 0,
            absent: offset,
            file_length,
            big_endian: false,
            gaps: None,
            surplus: None,
            ahead: Ahead::default(),
        }
    }

    /// Cursor over a window without the vocabulary: bytes that were left out are skipped, and the remaining
    /// ones become the surplus.
    pub(super) fn among(window: &'a [u8], gaps: &'a [Gap], file_length: u64) -> Self {
        Self { gaps: Some(gaps), ..Self::new(window, file_length) }
    }

    pub(super) fn offset(&self) -> u64 {
        self.absent + widened(self.at)
    }

    /// Bytes of the window that were read.
    pub(super) fn used(&self) -> usize {
        self.at
    }

    /// The next `length` bytes.
    pub(super) fn take(&mut self, length: u64, place: GgufPlace<'_>) -> Result<&'a [u8], GgufError> {
        let bytes = self.ahead(length, place)?;
        self.at += bytes.len();
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, place: GgufPlace<'_>) -> Result<u32, GgufError> {
        self.unsigned(4, place).map(|wide| u32::try_from(wide).expect("four bytes make a u32"))
    }

    pub(super) fn u64(&mut self, place: GgufPlace<'_>) -> Result<u64, GgufError> {
        self.unsigned(8, place)
    }

    /// An unsigned number of `width` bytes, at most 8.
    pub(super) fn unsigned(&mut self, width: u64, place: GgufPlace<'_>) -> Result<u64, GgufError> {
        let big_endian = self.big_endian;
        self.take(width, place).map(|bytes| number(bytes, big_endian))
    }

    /// A count of things of at least `smallest` bytes, if the file has room for so many.
    pub(super) fn count(
        &mut self,
        (smallest, most): (u64, u64),
        place: GgufPlace<'_>,
    ) -> Result<u64, GgufError> {
        let offset = self.offset();
        let count = self.u64(place)?;
        // A count is a claim: nothing is allocated before the file is known to have room for it.
        match self.shortage(count.saturating_mul(smallest), place) {
            GgufError::Truncated { .. } if count > most => {
                Err(GgufError::TooMany { place: place.to_string(), count, most, offset })
            }
            GgufError::Truncated { .. } => Ok(count),
            error => Err(error),
        }
    }

    /// Text preceded by its length, as bytes, because llama.cpp does not require UTF-8.
    pub(super) fn text(&mut self, place: GgufPlace<'_>) -> Result<&'a [u8], GgufError> {
        let offset = self.offset();
        let length = self.u64(place)?;
        // Before the size check: an absurd length is damage, not a truncated download.
        if length > LONGEST {
            return Err(too_long(length, offset, place));
        }
        self.take(length, place)
    }

    /// The name of a key or a tensor.
    pub(super) fn name(&mut self, place: GgufPlace<'_>) -> Result<&'a str, GgufError> {
        let offset = self.offset();
        let bytes = self.text(place)?;
        str::from_utf8(bytes).map_err(|_| GgufError::NotUtf8 { place: place.to_string(), offset })
    }

    /// Passes over `count` elements; gives their bytes.
    pub(super) fn elements(
        &mut self,
        kind: ValueType,
        count: u64,
        place: GgufPlace<'_>,
    ) -> Result<&'a [u8], GgufError> {
        if count > LONGEST {
            return Err(too_long(count, self.offset(), place));
        }
        match kind.width() {
            Some(width) => self.take(count.saturating_mul(width), place),
            None => self.texts(count, place),
        }
    }

    /// [`Self::elements`] of the vocabulary's key `key`: nothing, where the window is meant to lack them.
    pub(super) fn vocabulary(
        &mut self,
        kind: ValueType,
        count: u64,
        key: &str,
    ) -> Result<&'a [u8], GgufError> {
        let place = GgufPlace::Value(key);
        let Some(gaps) = self.gaps.filter(|_| count <= LONGEST) else {
            return self.elements(kind, count, place);
        };
        let offset = self.offset();
        if let Some((gap, rest)) = gaps.split_first().filter(|(gap, _)| gap.offset == offset) {
            // Offsets in errors are those of the file, so the gap counts.
            self.absent += gap.length;
            self.gaps = Some(rest);
            return Ok(&[]);
        }
        let least = count.saturating_mul(kind.width().unwrap_or(TEXT));
        let missing = self.shortage(least, place);
        if let GgufError::Truncated { needed, .. } = missing {
            self.surplus = Some(GapRun {
                key: key.to_owned(),
                start: offset,
                kept: self.at,
                count,
                texts: kind.width().map_or(count, |_| 0),
                next: kind.width().map_or(offset, |_| needed),
                big_endian: self.big_endian,
            });
        }
        Err(missing)
    }

    fn texts(&mut self, count: u64, place: GgufPlace<'_>) -> Result<&'a [u8], GgufError> {
        self.ahead(count.saturating_mul(TEXT), place)?;
        let start = self.at;
        let mut left = count;
        self.pass_texts(&mut left, place)?;
        Ok(&self.window[start..self.at])
    }

    /// Skips texts until `left` is 0, or up to the first incomplete one. Their lengths form a chain that can
    /// only be followed in order, so each step is one load, one addition and one comparison. If a step fails,
    /// that single text is read again to find the error.
    pub(super) fn pass_texts(&mut self, left: &mut u64, place: GgufPlace<'_>) -> Result<(), GgufError> {
        // The inner loop is the fast path; a text that is cut or too long leaves it.
        while *left > 0 {
            let all = &self.window[self.at..];
            let mut rest = all;
            while *left > 0
                && let Some(next) = after_text(rest, self.big_endian)
            {
                rest = next;
                *left -= 1;
            }
            self.at += all.len() - rest.len();
            if *left > 0 {
                let start = self.at;
                self.text(place).inspect_err(|_| self.at = start)?;
                *left -= 1;
            }
        }
        Ok(())
    }

    /// The next `length` bytes, without moving; an error says how many are missing.
    fn ahead(&self, length: u64, place: GgufPlace<'_>) -> Result<&'a [u8], GgufError> {
        let bytes = usize::try_from(length).ok().and_then(|length| self.window[self.at..].get(..length));
        bytes.ok_or_else(|| self.shortage(length, place))
    }

    fn shortage(&self, length: u64, place: GgufPlace<'_>) -> GgufError {
        let offset = self.offset();
        let needed = offset.saturating_add(length);
        let place = || place.to_string();
        // Three causes, distinguished for the message: a short file, a hostile header, a short window.
        if needed > self.file_length {
            GgufError::FileEnds { place: place(), offset, needed, length: self.file_length }
        } else if needed > HEADER_LIMIT.get() {
            GgufError::HeaderTooLong { place: place(), offset, needed }
        } else {
            GgufError::Truncated { offset, needed }
        }
    }
}

/// The bytes behind the text at the head of `bytes`, if the text is complete.
fn after_text(bytes: &[u8], big_endian: bool) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = if big_endian { u64::from_be_bytes(*length) } else { u64::from_le_bytes(*length) };
    rest.get(usize::try_from(length).ok().filter(|_| length <= LONGEST)?..)
}

/// The unsigned number that at most 8 bytes make.
pub(super) fn number(bytes: &[u8], big_endian: bool) -> u64 {
    let shifted = |number: u64, &byte: &u8| number << 8 | u64::from(byte);
    if big_endian { bytes.iter().fold(0, shifted) } else { bytes.iter().rev().fold(0, shifted) }
}

fn too_long(length: u64, offset: u64, place: GgufPlace<'_>) -> GgufError {
    GgufError::TooLong { place: place.to_string(), length, offset }
}

fn widened(n: usize) -> u64 {
    u64::try_from(n).expect("a usize fits a u64 on every target")
}
