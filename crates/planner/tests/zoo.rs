//! Models that `specimen` would write, read back from their headers.

use plimsoll_model::gguf::{DraftHeader, Header};
use plimsoll_model::{Dialect, Model};

/// The model of one file.
pub(crate) fn read(draft: &DraftHeader) -> Model {
    let bytes = draft.header();
    let length = u64::try_from(bytes.len()).unwrap() + draft.data_length().get();
    Model::from_headers(&[Header::read(&bytes, length, Dialect::Ggml).unwrap()]).unwrap()
}
