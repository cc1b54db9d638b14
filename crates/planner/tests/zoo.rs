//! Builds models for tests of plans from the headers of synthetic model files, without writing the files.

use plimsoll_model::gguf::{DraftHeader, Header};
use plimsoll_model::{Dialect, Model};

/// The model of one file.
pub(crate) fn read(draft: &DraftHeader) -> Model {
    let bytes = draft.header();
    let length = u64::try_from(bytes.len()).unwrap() + draft.data_length().get();
    Model::from_headers(&[Header::read(&bytes, length, Dialect::Ggml).unwrap()]).unwrap()
}
