//! Reads the models that an engine's flags name: the model, its draft and its projector.

use std::path::Path;

use plimsoll_flags::ModelParams;
use plimsoll_model::Dialect;
use plimsoll_plan::Models;

use crate::headers::{ReadModelError, read_model};

/// Why the models of flags cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadModelsError {
    #[error("no model is given\nhint: plimsoll plan -- -m model.gguf")]
    NoModel,
    #[error(
        "the model is named by its place on a server, and only files are read here\nhint: download it, or let `plimsoll plan -hf` fetch its header"
    )]
    Remote,
    #[error(transparent)]
    Read(#[from] ReadModelError),
}

/// Reads the headers of the files. Nothing is fetched.
pub fn read(params: &ModelParams, dialect: Dialect) -> Result<Models, ReadModelsError> {
    if params.remote_sources().iter().any(Option::is_some) {
        return Err(ReadModelsError::Remote);
    }
    let read = |path: &String| read_model(Path::new(path), dialect);
    let main = read(params.model.as_ref().ok_or(ReadModelsError::NoModel)?)?;
    // The draft model and the projector are on the same cards, and often decide whether the whole fits.
    let draft = params.draft_model.as_ref().map(read).transpose()?;
    Ok(Models { main, draft, projector: params.projector.as_ref().map(read).transpose()? })
}
