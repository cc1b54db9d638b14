//! Errors of a GGUF header, with the byte offset and the element that was being read.

use std::fmt;

use super::value_type::ValueType;

/// The element that was being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GgufPlace<'a> {
    Magic,
    Version,
    TensorCount,
    KeyCount,
    /// The name of the key of this number.
    Key(u64),
    /// The value of this key.
    Value(&'a str),
    /// The name of the tensor of this number.
    TensorName(u64),
    Tensor(&'a str),
}

impl fmt::Display for GgufPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("the magic number"),
            Self::Version => f.write_str("the version"),
            Self::TensorCount => f.write_str("the number of tensors in the header"),
            Self::KeyCount => f.write_str("the number of keys in the header"),
            Self::Key(index) => write!(f, "key number {index}"),
            Self::Value(key) => write!(f, "the value of key `{}`", shortened(key)),
            Self::TensorName(index) => write!(f, "the name of tensor number {index}"),
            Self::Tensor(name) => write!(f, "tensor `{}`", shortened(name)),
        }
    }
}

/// A name fit for a message: a hostile one may be megabytes of control characters.
pub(super) fn shortened(name: &str) -> String {
    const SHOWN: usize = 80;
    // Escaped: names of hostile files may hold terminal control sequences.
    let mut text: String = name.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if name.chars().nth(SHOWN).is_some() {
        text.push('…');
    }
    text
}

/// Reason why a header cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GgufError {
    /// Not an error of the file: the window is too short. Read at least `needed` bytes and try again.
    #[error("the header continues after byte {offset}; at least {needed} bytes of the file are needed")]
    Truncated { offset: u64, needed: u64 },

    #[error(
        "{place} at byte {offset} needs a file of {needed} bytes, but the file has {length}; \
         the download is incomplete or the header is damaged"
    )]
    FileEnds { place: String, offset: u64, needed: u64, length: u64 },

    #[error("{place} at byte {offset} makes the header longer than {needed} bytes, which no model needs")]
    HeaderTooLong { place: String, offset: u64, needed: u64 },

    #[error("not a GGUF file: it starts with `{found}` instead of `GGUF`")]
    Magic { found: String },

    #[error(
        "GGUF version {version} is not supported (only 2 and 3 are); convert the model again with a current \
            llama.cpp"
    )]
    Version { version: u32 },

    #[error("{place} at byte {offset} has a length of {length}; the limit is 2^30")]
    TooLong { place: String, length: u64, offset: u64 },

    #[error("{place} at byte {offset} is {count}; no model has more than {most}")]
    TooMany { place: String, count: u64, most: u64, offset: u64 },

    #[error("{place} at byte {offset} is not UTF-8")]
    NotUtf8 { place: String, offset: u64 },

    #[error("key number {index} at byte {offset} is empty")]
    EmptyKey { index: u64, offset: u64 },

    #[error("key `{key}` at byte {offset} occurs a second time")]
    DuplicateKey { key: String, offset: u64 },

    #[error("key `{key}` at byte {offset} has value type {id}; only 0 to 12 exist")]
    ValueType { key: String, id: u32, offset: u64 },

    #[error("key `{key}` at byte {offset} is an array of arrays, which llama.cpp does not use")]
    NestedArray { key: String, offset: u64 },

    #[error("`general.alignment` at byte {offset} is {found} ({kind}); it must be a power of two (u32)")]
    Alignment { found: String, kind: ValueType, offset: u64 },

    #[error("key `{key}` at byte {offset} is {found}, not {expected}")]
    WrongValue { key: String, found: String, expected: &'static str, offset: u64 },

    #[error("tensor `{tensor}` at byte {offset} has a name of {length} bytes; ggml keeps at most 63")]
    TensorNameTooLong { tensor: String, length: usize, offset: u64 },

    #[error("tensor `{tensor}` at byte {offset} occurs a second time")]
    DuplicateTensor { tensor: String, offset: u64 },

    #[error("tensor `{tensor}` at byte {offset} has {dimensions} dimensions; ggml has at most 4")]
    Dimensions { tensor: String, dimensions: u32, offset: u64 },

    #[error("tensor `{tensor}` at byte {offset} has the shape {shape:?}, which is more than 2^63 elements")]
    Shape { tensor: String, shape: [u64; 4], offset: u64 },

    #[error(
        "tensor `{tensor}` at byte {offset} has element type {id}, which llama.cpp does not support; types \
            of ik_llama.cpp are accepted only if that engine is selected"
    )]
    TensorType { tensor: String, id: u32, offset: u64 },

    #[error(
        "tensor `{tensor}` at byte {offset} has rows of {row} elements, but rows of type {kind} must be a \
            multiple of {block}"
    )]
    RowLength { tensor: String, row: u64, block: u64, kind: &'static str, offset: u64 },

    #[error("tensor `{tensor}` starts at {found} in the data, but the tensors before it end at {expected}")]
    TensorOffset { tensor: String, found: u64, expected: u64 },

    #[error(
        "tensor `{tensor}` ends at byte {end} of a file of {length}; the download is incomplete or the \
         header is damaged"
    )]
    TensorPastEnd { tensor: String, end: u64, length: u64 },
}
