//! Moves through the window, one bounds check at a time; the only place that reads a header's bytes.

use super::error::{GgufError, Place};
use super::{HEADER_LIMIT, value::ValueType};

/// `GGUF_MAX_STRING_LENGTH` and `GGUF_MAX_ARRAY_ELEMENTS`.
const LONGEST: u64 = 1 << 30;

#[derive(Debug)]
pub(super) struct Cursor<'a> {
    window: &'a [u8],
    at: usize,
    file_length: u64,
    pub(super) big_endian: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(window: &'a [u8], file_length: u64) -> Self {
        let length = usize::try_from(file_length).unwrap_or(usize::MAX);
        Self {
            window: window.get(..length).unwrap_or(window),
            at: 0,
            file_length,
            big_endian: false,
        }
    }

    pub(super) fn offset(&self) -> u64 {
        widened(self.at)
    }

    /// The next `length` bytes.
    pub(super) fn take(&mut self, length: u64, place: Place<'_>) -> Result<&'a [u8], GgufError> {
        let bytes = self.ahead(length, place)?;
        self.at += bytes.len();
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, place: Place<'_>) -> Result<u32, GgufError> {
        self.unsigned(4, place)
            .map(|wide| u32::try_from(wide).expect("four bytes make a u32"))
    }

    pub(super) fn u64(&mut self, place: Place<'_>) -> Result<u64, GgufError> {
        self.unsigned(8, place)
    }

    /// An unsigned number of `width` bytes, at most 8.
    pub(super) fn unsigned(&mut self, width: u64, place: Place<'_>) -> Result<u64, GgufError> {
        let big_endian = self.big_endian;
        self.take(width, place).map(|bytes| number(bytes, big_endian))
    }

    /// How many things of at least `smallest` bytes follow, if the file has room for so many.
    pub(super) fn count(&mut self, smallest: u64, place: Place<'_>) -> Result<u64, GgufError> {
        let count = self.u64(place)?;
        self.ahead(count.saturating_mul(smallest), place)?;
        Ok(count)
    }

    /// Text with its length before it, as bytes: llama.cpp does not ask for UTF-8.
    pub(super) fn text(&mut self, place: Place<'_>) -> Result<&'a [u8], GgufError> {
        let offset = self.offset();
        let length = self.u64(place)?;
        if length > LONGEST {
            return Err(too_long(length, offset, place));
        }
        self.take(length, place)
    }

    /// The name of a key or a tensor.
    pub(super) fn name(&mut self, place: Place<'_>) -> Result<&'a str, GgufError> {
        let offset = self.offset();
        let bytes = self.text(place)?;
        str::from_utf8(bytes).map_err(|_| GgufError::NotUtf8 {
            place: place.to_string(),
            offset,
        })
    }

    /// Passes over `count` elements; gives their bytes.
    pub(super) fn elements(
        &mut self,
        kind: ValueType,
        count: u64,
        place: Place<'_>,
    ) -> Result<&'a [u8], GgufError> {
        if count > LONGEST {
            return Err(too_long(count, self.offset(), place));
        }
        match kind.width() {
            Some(width) => self.take(count.saturating_mul(width), place),
            None => self.texts(count, place),
        }
    }

    /// Passes over `count` texts. Their lengths form a chain that can only be walked, so the step is kept to
    /// one load, one add and one compare; what stops it is found by reading that one text with care.
    fn texts(&mut self, count: u64, place: Place<'_>) -> Result<&'a [u8], GgufError> {
        self.ahead(count.saturating_mul(8), place)?;
        let all = &self.window[self.at..];
        let mut rest = all;
        for _ in 0..count {
            match after_text(rest, self.big_endian) {
                Some(next) => rest = next,
                None => {
                    self.at += all.len() - rest.len();
                    self.text(place)?;
                    rest = &self.window[self.at..];
                    self.at -= all.len() - rest.len();
                }
            }
        }
        let length = all.len() - rest.len();
        self.at += length;
        Ok(&all[..length])
    }

    /// The next `length` bytes, without moving; says what is missing if they are not all there.
    fn ahead(&self, length: u64, place: Place<'_>) -> Result<&'a [u8], GgufError> {
        let bytes = usize::try_from(length)
            .ok()
            .and_then(|length| self.window[self.at..].get(..length));
        bytes.ok_or_else(|| self.shortage(length, place))
    }

    fn shortage(&self, length: u64, place: Place<'_>) -> GgufError {
        let offset = self.offset();
        let needed = offset.saturating_add(length);
        let place = || place.to_string();
        if needed > self.file_length {
            GgufError::FileEnds {
                place: place(),
                offset,
                needed,
                length: self.file_length,
            }
        } else if needed > HEADER_LIMIT.get() {
            GgufError::HeaderTooLong {
                place: place(),
                offset,
                needed,
            }
        } else {
            GgufError::Truncated { offset, needed }
        }
    }
}

/// What follows the text at the head of `bytes`, if all of it is there.
fn after_text(bytes: &[u8], big_endian: bool) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = match big_endian {
        false => u64::from_le_bytes(*length),
        true => u64::from_be_bytes(*length),
    };
    rest.get(usize::try_from(length).ok().filter(|_| length <= LONGEST)?..)
}

/// The unsigned number that at most 8 bytes make.
pub(super) fn number(bytes: &[u8], big_endian: bool) -> u64 {
    let shifted = |number: u64, &byte: &u8| number << 8 | u64::from(byte);
    match big_endian {
        false => bytes.iter().rev().fold(0, shifted),
        true => bytes.iter().fold(0, shifted),
    }
}

fn too_long(length: u64, offset: u64, place: Place<'_>) -> GgufError {
    GgufError::TooLong {
        place: place.to_string(),
        length,
        offset,
    }
}

fn widened(n: usize) -> u64 {
    u64::try_from(n).expect("a usize fits a u64 on every target")
}
