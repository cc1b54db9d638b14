//! Reads the header of a safetensors file: name, type, shape and size of each tensor.
//!
//! Format: 8 bytes with the length of a JSON object, little-endian; the object; the data. Its rules are those
//! of `safetensors/src/tensor.rs:Metadata::validate @ 0.6`: tensors follow each other without holes.

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use serde::Deserialize;

/// Bytes of the length before the object.
const PREFIX: u64 = 8;
/// The longest object that the format allows.
const LONGEST: u64 = 100_000_000;
/// More dimensions than any tensor has.
const DIMENSIONS: usize = 16;

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<u64>,
    /// Its size in the file.
    pub bytes: Bytes,
}

impl Tensor {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |product: u64, size| product.saturating_mul(*size))
    }
}

/// Type of a tensor's elements, by its name in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DType {
    name: &'static str,
    bits: u64,
    is_float: bool,
}

impl DType {
    const ALL: [Self; 20] = [
        Self::new("F64", 64, true),
        Self::new("F32", 32, true),
        Self::new("F16", 16, true),
        Self::new("BF16", 16, true),
        Self::new("F8_E4M3", 8, false),
        Self::new("F8_E5M2", 8, false),
        Self::new("F8_E8M0", 8, false),
        Self::new("F6_E2M3", 6, false),
        Self::new("F6_E3M2", 6, false),
        Self::new("F4", 4, false),
        Self::new("C64", 64, false),
        Self::new("I64", 64, false),
        Self::new("U64", 64, false),
        Self::new("I32", 32, false),
        Self::new("U32", 32, false),
        Self::new("I16", 16, false),
        Self::new("U16", 16, false),
        Self::new("I8", 8, false),
        Self::new("U8", 8, false),
        Self::new("BOOL", 8, false),
    ];

    const fn new(name: &'static str, bits: u64, is_float: bool) -> Self {
        Self { name, bits, is_float }
    }

    /// The type of this name, if the format has one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name == name)
    }

    /// True for a type that is converted to the model's own when it is loaded.
    pub fn is_converted(self) -> bool {
        self.is_float
    }

    fn bytes(self, elements: u64) -> Option<u64> {
        elements.checked_mul(self.bits).map(|bits| bits.div_ceil(8))
    }
}

/// All tensors of one file, in the order of their data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub tensors: Vec<Tensor>,
}

/// Error: a file is not safetensors, or its header contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("the file has {0} bytes, which is less than a safetensors header")]
    TooShort(u64),
    #[error("the header would have {0} bytes; safetensors allows {LONGEST}, and the file must hold it")]
    Length(u64),
    #[error("the header is not the JSON of safetensors: {0}")]
    Json(String),
    #[error("tensor `{name}` has the unknown type `{dtype}`")]
    DType { name: String, dtype: String },
    #[error("tensor `{name}` has {held} bytes of data, but its shape and type need {needed}")]
    Size { name: String, held: u64, needed: u64 },
    #[error("the data of tensor `{name}` begins at byte {at}, but the one before it ends at {end}")]
    Hole { name: String, at: u64, end: u64 },
    #[error(
        "the tensors end at byte {end} of the data, but the file has {held}: it was cut, or is still being written"
    )]
    Cut { end: u64, held: u64 },
}

#[derive(Deserialize)]
struct Entries {
    /// Texts that say nothing of memory.
    #[serde(rename = "__metadata__")]
    _metadata: Option<BTreeMap<String, String>>,
    #[serde(flatten)]
    tensors: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Header {
    /// Bytes at the file's start that `read` needs, from its first eight.
    pub fn span(start: &[u8], file: u64) -> Result<u64, HeaderError> {
        let prefix = start.first_chunk::<8>().ok_or(HeaderError::TooShort(file))?;
        let length = u64::from_le_bytes(*prefix);
        let span = length.saturating_add(PREFIX);
        if length > LONGEST || span > file { Err(HeaderError::Length(length)) } else { Ok(span) }
    }

    /// Reads a header from the start of a file of `file` bytes. `start` holds at least its `span`.
    pub fn read(start: &[u8], file: u64) -> Result<Self, HeaderError> {
        let span = Self::span(start, file)?;
        let end = usize::try_from(span).map_err(|_| HeaderError::Length(span))?;
        let text = start.get(8..end).ok_or(HeaderError::TooShort(file))?;
        let entries: Entries =
            serde_json::from_slice(text).map_err(|error| HeaderError::Json(error.to_string()))?;
        let mut placed = Vec::with_capacity(entries.tensors.len());
        for (name, entry) in entries.tensors {
            placed.push((entry.data_offsets, tensor(name, entry)?));
        }
        placed.sort_by_key(|(place, _)| *place);
        let held = file.saturating_sub(span);
        let mut last = 0;
        for ((at, end), tensor) in &placed {
            if *at != last {
                return Err(HeaderError::Hole { name: tensor.name.clone(), at: *at, end: last });
            }
            last = *end;
        }
        if last != held {
            return Err(HeaderError::Cut { end: last, held });
        }
        Ok(Self { tensors: placed.into_iter().map(|(_, tensor)| tensor).collect() })
    }
}

fn tensor(name: String, entry: Entry) -> Result<Tensor, HeaderError> {
    let Entry { dtype, shape, data_offsets: at } = entry;
    let Some(known) = DType::from_name(&dtype) else {
        return Err(HeaderError::DType { name, dtype });
    };
    let held = at.1.saturating_sub(at.0);
    let mut sizes = shape.iter().take(DIMENSIONS);
    let elements = sizes.try_fold(1_u64, |product, size| product.checked_mul(*size));
    let needed = elements.filter(|_| shape.len() <= DIMENSIONS).and_then(|number| known.bytes(number));
    match needed {
        Some(needed) if needed == held && at.0 <= at.1 => {
            Ok(Tensor { name, dtype: known, shape, bytes: Bytes::new(held) })
        }
        needed => Err(HeaderError::Size { name, held, needed: needed.unwrap_or(u64::MAX) }),
    }
}
