//! Errors for GGUF headers that can be read but do not describe a valid model.

use plimsoll_base::one_line;

use super::gguf::{GgufError, ValueType};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A key exists, but its value is invalid.
    #[error(transparent)]
    Key(#[from] GgufError),

    #[error("the header has no key `{}`; the file is not a model, or was not fully converted", one_line(key))]
    MissingKey { key: String },

    #[error(
        "the header states {layers} layers, {nextn_layers} of them for next-token prediction; llama.cpp accepts 1 to 512"
    )]
    Layers { layers: u32, nextn_layers: u32 },

    #[error("key `{}` lists {found} numbers, but the model has {expected} layers", one_line(key))]
    ListLength { key: String, expected: u32, found: u64 },

    #[error("key `{}` holds {element}, but not all of them are whole numbers below 2^32", one_line(key))]
    ListValue { key: String, element: ValueType },

    #[error("no model file was given")]
    NoFile,

    #[error(
        "the first file states that the model has {stated} files, but {given} were given; name the first \
            file and keep all of them in one folder"
    )]
    FileCount { stated: u32, given: usize },

    #[error(
        "file {expected} of {count} states that it is file {stated} of {stated_count}; the files are of \
            different sets or out of order"
    )]
    FileNumber { expected: u32, count: u32, stated: String, stated_count: u32 },

    #[error(
        "the files contain {found} tensors, but the first file states {stated}; one file is from another \
        version"
    )]
    TensorCount { stated: u32, found: usize },

    #[error("tensor `{tensor}` is in file {file} and in an earlier file; the files are of different sets")]
    DuplicateTensor { tensor: String, file: u16 },
}
