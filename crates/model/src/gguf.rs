//! Reader of GGUF headers: the keys and the list of tensors, never the weights.
//!
//! The caller passes the first bytes of the file; if they are too few, [`GgufError::Truncated`] says how many
//! are needed. Counts in a header are not trusted.

mod cursor;
mod draft;
mod error;
mod excerpt;
mod gap;
mod head_reader;
mod lean;
mod lookup;
mod outlook;
mod tensors;
mod value;
mod value_type;

use std::collections::HashSet;
use std::ops::Range;

use plimsoll_base::Bytes;

use self::cursor::Cursor;
use self::error::GgufPlace;
use self::outlook::Ahead;
use crate::{Dialect, TensorType};
pub use draft::{Datum, DraftHeader, DraftTensor};
pub use error::GgufError;
pub use excerpt::{Excerpt, PassedArray};
pub use head_reader::{FIRST, FetchHeaderError, HeadReader};
pub use value::{Array, GgufValue};
pub use value_type::ValueType;

/// No real header comes near: a vocabulary of half a million words with its merges is 30 MiB.
pub const HEADER_LIMIT: Bytes = Bytes::mib(256);

/// `GGUF_DEFAULT_ALIGNMENT`.
pub const DEFAULT_ALIGNMENT: u64 = 32;

const MAGIC: &[u8; 4] = b"GGUF";

/// Prefix of the vocabulary's keys.
const VOCABULARY: &str = "tokenizer.";

/// Keys and tensors of a header at most; real ones have a hundred keys and a few thousand tensors. Each takes
/// more memory than bytes of the file.
const MOST_KEYS: u64 = 1 << 16;
const MOST_TENSORS: u64 = 1 << 18;

/// The fewest bytes that a key with its value, and a tensor's entry, take in a file.
const SMALLEST_KEY: u64 = 8 + 1 + 4 + 1;
const SMALLEST_TENSOR: u64 = 8 + 4 + 4 + 8;

/// A GGUF key with its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GgufEntry<'a> {
    pub key: &'a str,
    /// The type the file states; an array's elements have their own.
    pub kind: ValueType,
    pub value: GgufValue<'a>,
    /// Offset of the entry in the file.
    pub offset: u64,
}

/// A tensor's entry in a GGUF header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorInfo<'a> {
    pub name: &'a str,
    pub kind: TensorType,
    /// Absent dimensions are 1.
    pub shape: [u64; 4],
    /// From the start of the file's data.
    pub offset: u64,
    pub bytes: Bytes,
}

/// Header of one GGUF file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header<'a> {
    pub version: u32,
    /// llama.cpp reads only files of its machine's own byte order.
    pub big_endian: bool,
    pub alignment: u64,
    /// Byte range of the list of tensors in the file.
    pub tensor_list: Range<u64>,
    /// Offset of the tensors' data in the file.
    pub data_offset: u64,
    pub file_length: u64,
    pub entries: Vec<GgufEntry<'a>>,
    pub tensors: Vec<TensorInfo<'a>>,
}

impl<'a> Header<'a> {
    /// Reads the header from `window`, the first bytes of a file of `file_length` bytes.
    pub fn read(window: &'a [u8], file_length: u64, dialect: Dialect) -> Result<Self, GgufError> {
        // The rules are those of `ggml/src/gguf.cpp: gguf_init_from_reader @ b10605`. In addition, names must
        // be UTF-8, a header must end within `HEADER_LIMIT`, and files of either byte order are read.
        Self::read_at(&mut Cursor::new(window, file_length), file_length, dialect)
    }

    fn read_at(cursor: &mut Cursor<'a>, file_length: u64, dialect: Dialect) -> Result<Self, GgufError> {
        let version = read_version(cursor)?;
        let tensor_count = cursor.count((SMALLEST_TENSOR, MOST_TENSORS), GgufPlace::TensorCount)?;
        // Both counts are checked against the file's length before anything is read by them.
        let entry_count = cursor.count((SMALLEST_KEY, MOST_KEYS), GgufPlace::KeyCount)?;
        cursor.ahead = Ahead::new(entry_count, tensor_count);
        let entries = read_entries(cursor, entry_count)?;
        let alignment = read_alignment(&entries)?;
        let list_start = cursor.offset();
        cursor.ahead.list_start = list_start;
        let tensors = tensors::read(cursor, tensor_count, dialect)?;
        let tensor_list = list_start..cursor.offset();
        // gguf.cpp pads only before data, and a file without tensors has none.
        let data_offset = if tensors.is_empty() {
            tensor_list.end
        } else {
            Bytes::new(tensor_list.end).padded(alignment).get()
        };
        let header = Self {
            version,
            big_endian: cursor.big_endian,
            alignment,
            tensor_list,
            data_offset,
            file_length,
            entries,
            tensors,
        };
        // Last, because it needs the offset of the data.
        tensors::check_layout(&header)?;
        Ok(header)
    }
}

/// Reads magic and version. A version has its low half set, so a byte-swapped one gives the order away.
fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let magic = cursor.take(4, GgufPlace::Magic)?;
    if magic != MAGIC {
        return Err(GgufError::Magic { found: magic.escape_ascii().to_string() });
    }
    // Versions are small numbers: a low half of zero means that the bytes are swapped.
    let mut version = cursor.u32(GgufPlace::Version)?;
    if version != 0 && version & 0xffff == 0 {
        cursor.big_endian = true;
        version = version.swap_bytes();
    }
    match version {
        2 | 3 => Ok(version),
        _ => Err(GgufError::Version { version }),
    }
}

fn read_entries<'a>(cursor: &mut Cursor<'a>, count: u64) -> Result<Vec<GgufEntry<'a>>, GgufError> {
    let mut entries = Vec::new();
    // gguf.cpp refuses a second key of one name; a lookup would find the first only.
    let mut seen = HashSet::new();
    for index in 0..count {
        let offset = cursor.offset();
        let place = GgufPlace::Key(index);
        let key = cursor.name(place)?;
        if key.is_empty() {
            return Err(GgufError::EmptyKey { index, offset });
        }
        if !seen.insert(key) {
            let key = error::shortened(key);
            return Err(GgufError::DuplicateKey { key, offset });
        }
        let (kind, value) = value::read(cursor, key)?;
        entries.push(GgufEntry { key, kind, value, offset });
        cursor.ahead.keys -= 1;
    }
    Ok(entries)
}

fn read_alignment(entries: &[GgufEntry<'_>]) -> Result<u64, GgufError> {
    let Some(entry) = entries.iter().find(|entry| entry.key == "general.alignment") else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    match entry.value {
        GgufValue::Unsigned(alignment) if entry.kind == ValueType::U32 && alignment.is_power_of_two() => {
            Ok(alignment)
        }
        _ => Err(GgufError::Alignment {
            found: entry.value.to_string(),
            kind: entry.kind,
            offset: entry.offset,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{F32, Q8_0};

    /// A header with every value type, two arrays and two tensors.
    fn draft() -> DraftHeader {
        let mut draft = DraftHeader::default();
        for kind in ValueType::all() {
            if kind.width().is_some() {
                draft.entries.push((format!("a.{kind}"), Datum::Number(kind, 1)));
            }
        }
        draft.put("general.architecture", "llama");
        draft.put("a.words", Datum::Texts(vec![b"one".to_vec(), vec![], b"\xff".to_vec()]));
        draft.put("a.ints", Datum::Numbers(ValueType::I32, vec![1, 0xffff_fffe]));
        draft.tensors = two_tensors();
        draft
    }

    pub(super) fn two_tensors() -> Vec<DraftTensor> {
        vec![
            DraftTensor { name: "norm".to_owned(), kind: F32, shape: vec![3] },
            DraftTensor { name: "matrix".to_owned(), kind: Q8_0, shape: vec![64, 5] },
        ]
    }

    fn file(draft: &DraftHeader) -> Vec<u8> {
        let mut bytes = draft.header();
        let data = usize::try_from(draft.data_length().get()).unwrap();
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Header<'_>, GgufError> {
        Header::read(bytes, u64::try_from(bytes.len()).unwrap(), Dialect::Ggml)
    }

    #[test]
    fn both_versions_and_byte_orders_read_alike() {
        for (version, big_endian) in [(2, false), (2, true), (3, false), (3, true)] {
            let draft = DraftHeader { version, big_endian, ..draft() };
            let bytes = file(&draft);
            let header = read(&bytes).unwrap();
            assert_eq!((header.version, header.big_endian), (version, big_endian));
            assert_eq!(header.text("general.architecture"), Ok(Some("llama")));
            assert_eq!(header.u32("a.u64"), Ok(Some(1)));
            assert_eq!(header.u32("a.i8"), Ok(Some(1)));
            assert_eq!(header.flag("a.bool"), Ok(Some(true)));
            assert_eq!(header.entry("a.f64").unwrap().value, GgufValue::Float(f64::from_bits(1)));
            let words: Vec<_> = header.array("a.words").unwrap().unwrap().texts().unwrap().collect();
            assert_eq!(words, [&b"one"[..], b"", b"\xff"]);
            let ints: Vec<_> = header.array("a.ints").unwrap().unwrap().integers().unwrap().collect();
            assert_eq!(ints, [1, -2]);
            assert_eq!(header.tensors[1].offset, 32);
            assert_eq!(header.tensors[1].shape, [64, 5, 1, 1]);
            assert_eq!(header.tensors[1].bytes, Bytes::new(2 * 34 * 5));
        }
    }

    #[test]
    fn a_short_window_says_how_much_to_read() {
        let bytes = file(&draft());
        let length = u64::try_from(bytes.len()).unwrap();
        let mut window = 0;
        let mut rounds = 0;
        let header = loop {
            rounds += 1;
            match Header::read(&bytes[..window], length, Dialect::Ggml) {
                Ok(header) => break header,
                Err(GgufError::Truncated { needed, .. }) => {
                    let needed = usize::try_from(needed).unwrap();
                    assert!(needed > window && needed <= bytes.len());
                    window = needed;
                }
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(Ok(header), read(&bytes));
        assert!(rounds < 200);
    }

    #[test]
    fn a_number_in_place_of_text_is_named() {
        let bytes = file(&draft());
        let error = read(&bytes).unwrap().text("a.u32").unwrap_err();
        assert!(error.to_string().contains("key `a.u32`"), "{error}");
        assert!(error.to_string().contains("1 (u32), not UTF-8 text"), "{error}");
    }
}
