//! Values of GGUF keys. Arrays are decoded only when they are used.

use std::fmt;

use super::VOCABULARY;
use super::cursor::{Cursor, number};
use super::error::{GgufError, GgufPlace, shortened};
use super::value_type::ValueType;

/// Value of a GGUF key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GgufValue<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(&'a [u8]),
    Array(Array<'a>),
}

impl fmt::Display for GgufValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(n) => n.fmt(f),
            Self::Signed(n) => n.fmt(f),
            Self::Float(n) => n.fmt(f),
            Self::Bool(yes) => yes.fmt(f),
            Self::Text(text) => write!(f, "`{}`", shortened(&String::from_utf8_lossy(text))),
            Self::Array(array) => write!(f, "an array of {} {}", array.count, array.element),
        }
    }
}

/// An array whose elements are not read yet; in an [`Excerpt`](super::Excerpt), arrays of the vocabulary have
/// a length but no elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array<'a> {
    pub element: ValueType,
    pub count: u64,
    /// Offset of its elements in the file.
    pub offset: u64,
    bytes: &'a [u8],
    big_endian: bool,
}

impl<'a> Array<'a> {
    /// Its numbers, if they are whole numbers or truth values.
    pub fn integers(&self) -> Option<impl Iterator<Item = i128> + use<'a>> {
        let (element, big_endian) = (self.element, self.big_endian);
        let width = element.width().filter(|_| !matches!(element, ValueType::F32 | ValueType::F64))?;
        let chunks = self.bytes.chunks_exact(usize::try_from(width).ok()?);
        Some(chunks.map(move |bytes| match scalar(element, number(bytes, big_endian)) {
            GgufValue::Signed(n) => i128::from(n),
            GgufValue::Bool(yes) => i128::from(yes),
            GgufValue::Unsigned(n) => i128::from(n),
            _ => 0,
        }))
    }

    /// Its texts, if it has texts.
    pub fn texts(&self) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
        let (mut rest, big_endian) = (self.bytes, self.big_endian);
        (self.element == ValueType::Text).then(|| {
            std::iter::from_fn(move || {
                let (length, after) = rest.split_first_chunk::<8>()?;
                let length = usize::try_from(number(length, big_endian)).ok()?;
                let (text, after) = after.split_at_checked(length)?;
                rest = after;
                Some(text)
            })
        })
    }
}

/// Reads the value of `key`.
pub(super) fn read<'a>(
    cursor: &mut Cursor<'a>,
    key: &'a str,
) -> Result<(ValueType, GgufValue<'a>), GgufError> {
    let place = GgufPlace::Value(key);
    let kind = read_type(cursor, key)?;
    let value = match kind.width() {
        Some(width) => scalar(kind, cursor.unsigned(width, place)?),
        None if kind == ValueType::Text => GgufValue::Text(cursor.text(place)?),
        None => GgufValue::Array(read_array(cursor, key)?),
    };
    Ok((kind, value))
}

fn read_type(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueType, GgufError> {
    let offset = cursor.offset();
    let id = cursor.u32(GgufPlace::Value(key))?;
    ValueType::from_id(id).ok_or_else(|| GgufError::ValueType { key: shortened(key), id, offset })
}

fn read_array<'a>(cursor: &mut Cursor<'a>, key: &str) -> Result<Array<'a>, GgufError> {
    let place = GgufPlace::Value(key);
    let element = read_type(cursor, key)?;
    let count = cursor.u64(place)?;
    let offset = cursor.offset();
    // gguf.cpp does not read nested arrays either.
    if element == ValueType::Array {
        let key = shortened(key);
        return Err(GgufError::NestedArray { key, offset });
    }
    Ok(Array {
        element,
        count,
        offset,
        // Only the vocabulary may be missing from an excerpt.
        bytes: if key.starts_with(VOCABULARY) {
            cursor.vocabulary(element, count, key)?
        } else {
            cursor.elements(element, count, place)?
        },
        big_endian: cursor.big_endian,
    })
}

/// Gives the bits of a fixed-width value their meaning.
fn scalar(kind: ValueType, bits: u64) -> GgufValue<'static> {
    // Shifting up and arithmetically down extends the sign of narrow numbers.
    let signed = |unused: u32| GgufValue::Signed(bits.cast_signed() << unused >> unused);
    match kind {
        ValueType::I8 => signed(56),
        ValueType::I16 => signed(48),
        ValueType::I32 => signed(32),
        ValueType::I64 => signed(0),
        ValueType::F32 => {
            GgufValue::Float(f64::from(f32::from_bits(u32::try_from(bits).expect("four bytes make a u32"))))
        }
        ValueType::F64 => GgufValue::Float(f64::from_bits(bits)),
        ValueType::Bool => GgufValue::Bool(bits != 0),
        _ => GgufValue::Unsigned(bits),
    }
}
