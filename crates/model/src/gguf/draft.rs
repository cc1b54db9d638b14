//! Writer of GGUF headers for tiny models, synthetic models and tests.
//!
//! The caller writes the tensor data after the header, or leaves a hole in the file.

use plimsoll_base::Bytes;

use super::{DEFAULT_ALIGNMENT, ValueType};
use crate::TensorType;

/// A value to write. A number is stored as the bits of its type, so that one form serves all types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datum {
    Number(ValueType, u64),
    Text(Vec<u8>),
    Numbers(ValueType, Vec<u64>),
    Texts(Vec<Vec<u8>>),
}

impl From<u32> for Datum {
    fn from(number: u32) -> Self {
        Self::Number(ValueType::U32, number.into())
    }
}

impl From<u16> for Datum {
    fn from(number: u16) -> Self {
        Self::Number(ValueType::U16, number.into())
    }
}

impl From<f32> for Datum {
    fn from(number: f32) -> Self {
        Self::Number(ValueType::F32, number.to_bits().into())
    }
}

impl From<bool> for Datum {
    fn from(yes: bool) -> Self {
        Self::Number(ValueType::Bool, yes.into())
    }
}

impl From<&str> for Datum {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// Entry of a tensor to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftTensor {
    pub name: String,
    pub kind: TensorType,
    /// At most four sizes, the row first.
    pub shape: Vec<u64>,
}

impl DraftTensor {
    /// Bytes of its data; a row that is not a whole number of blocks counts as 0.
    pub fn bytes(&self) -> Bytes {
        let (row, rest) = self.shape.split_first().unwrap_or((&1, &[]));
        // Tests write invalid shapes on purpose, so this must not fail.
        let row = self.kind.row(*row).unwrap_or_default();
        rest.iter().fold(row, |bytes, &size| bytes * size)
    }
}

/// Content of a GGUF header to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftHeader {
    pub version: u32,
    pub big_endian: bool,
    pub alignment: u64,
    pub entries: Vec<(String, Datum)>,
    pub tensors: Vec<DraftTensor>,
}

impl Default for DraftHeader {
    fn default() -> Self {
        Self {
            version: 3,
            big_endian: false,
            alignment: DEFAULT_ALIGNMENT,
            entries: Vec::new(),
            tensors: Vec::new(),
        }
    }
}

impl DraftHeader {
    pub fn put(&mut self, key: impl Into<String>, datum: impl Into<Datum>) {
        self.entries.push((key.into(), datum.into()));
    }

    /// The bytes up to where data starts.
    pub fn header(&self) -> Vec<u8> {
        let mut out = Writer::begin(self.version, self.big_endian);
        out.length(self.tensors.len());
        out.length(self.entries.len());
        for (key, datum) in &self.entries {
            out.entry(key, datum);
        }
        for (tensor, offset) in self.tensors.iter().zip(self.offsets()) {
            out.tensor(tensor, offset);
        }
        if !self.tensors.is_empty() {
            // The reader pads only where there are tensors.
            out.pad(self.alignment);
        }
        out.bytes
    }

    /// Offsets of the tensors, from the start of the data.
    pub fn offsets(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.tensors.iter().scan(Bytes::ZERO, |end, tensor| {
            let start = *end;
            // gguf.cpp requires tensors to follow each other, each padded to the alignment.
            *end = (start + tensor.bytes()).padded(self.alignment);
            Some(start)
        })
    }

    /// Bytes of data behind the header, the padding after the last tensor among them.
    pub fn data_length(&self) -> Bytes {
        let padded = |tensor: &DraftTensor| tensor.bytes().padded(self.alignment);
        self.tensors.iter().map(padded).sum()
    }
}

pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
    big_endian: bool,
}

impl Writer {
    pub(super) fn begin(version: u32, big_endian: bool) -> Self {
        let mut out = Self {
            // The magic number is text and not swapped.
            bytes: b"GGUF".to_vec(),
            big_endian,
        };
        out.number(version.into(), 4);
        out
    }

    pub(super) fn entry(&mut self, key: &str, datum: &Datum) {
        self.text(key.as_bytes());
        self.datum(datum);
    }

    fn number(&mut self, number: u64, width: usize) {
        let little = number.to_le_bytes();
        // Only the low bytes: values are stored as the bits of their own type.
        let used = little.iter().take(width);
        if self.big_endian { self.bytes.extend(used.rev()) } else { self.bytes.extend(used) }
    }

    pub(super) fn length(&mut self, length: usize) {
        self.number(u64::try_from(length).expect("a usize fits a u64 on every target"), 8);
    }

    fn text(&mut self, text: &[u8]) {
        self.length(text.len());
        self.bytes.extend(text);
    }

    fn kind(&mut self, kind: ValueType) {
        self.number(u64::from(kind.id()), 4);
    }

    fn scalar(&mut self, kind: ValueType, bits: u64) {
        let width = kind.width().and_then(|width| usize::try_from(width).ok());
        self.number(bits, width.unwrap_or(0));
    }

    fn datum(&mut self, datum: &Datum) {
        match datum {
            Datum::Number(kind, bits) => {
                self.kind(*kind);
                self.scalar(*kind, *bits);
            }
            Datum::Text(text) => {
                self.kind(ValueType::Text);
                self.text(text);
            }
            Datum::Numbers(kind, all) => {
                self.array(*kind, all.len());
                all.iter().for_each(|&bits| self.scalar(*kind, bits));
            }
            Datum::Texts(all) => {
                self.array(ValueType::Text, all.len());
                all.iter().for_each(|text| self.text(text));
            }
        }
    }

    fn array(&mut self, element: ValueType, count: usize) {
        self.kind(ValueType::Array);
        self.kind(element);
        self.length(count);
    }

    fn tensor(&mut self, tensor: &DraftTensor, offset: Bytes) {
        self.text(tensor.name.as_bytes());
        let dimensions = u64::try_from(tensor.shape.len()).expect("a usize fits a u64 on every target");
        self.number(dimensions, 4);
        tensor.shape.iter().for_each(|&size| self.number(size, 8));
        self.number(tensor.kind.id.into(), 4);
        self.number(offset.get(), 8);
    }

    pub(super) fn pad(&mut self, alignment: u64) {
        let to = usize::try_from(alignment).unwrap_or(1).max(1);
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }
}
