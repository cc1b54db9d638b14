//! Finds a model's folder, and reads its `config.json` and the headers of its safetensors.
//!
//! A repository's name stands for the newest copy in the hub's cache on this machine.

use std::env;
use std::fmt::Display;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use plimsoll_base::Bytes;
use plimsoll_hub::Caches;
use plimsoll_vllm::{Header, ModelConfig, Tensor, shards};

use crate::report::ErrorReport;

/// The file that lists those of the weights, where there are several.
pub(super) const INDEX: &str = "model.safetensors.index.json";
/// Larger than any `config.json`, and than the index of any model.
const LONGEST_TEXT: Bytes = Bytes::mib(64);
/// More files than any model has.
const MOST_FILES: usize = 4096;

/// What a checkpoint says of its memory.
pub(super) struct Checkpoint {
    pub(super) config: ModelConfig,
    pub(super) tensors: Vec<Tensor>,
}

impl Checkpoint {
    /// Reads the files of a folder.
    pub(super) fn read(folder: &Path) -> Result<Self, ErrorReport> {
        let path = folder.join("config.json");
        let config = ModelConfig::read(&text(&path)?).map_err(|error| faulty(path.display(), error))?;
        let mut tensors = Vec::new();
        for file in files(folder)? {
            tensors.append(&mut header(&file)?.tensors);
        }
        Ok(Self { config, tensors })
    }
}

/// The folder of this path, or else of this repository in the hub's cache.
pub(super) fn folder(model: &str) -> Option<PathBuf> {
    let given = PathBuf::from(model);
    if given.is_dir() {
        return Some(given);
    }
    Caches::of_environment(|name| env::var_os(name)).newest(model)
}

/// The files of the weights: those of the index, or else all of the folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, ErrorReport> {
    let index = folder.join(INDEX);
    if index.is_file() {
        let names = shards(&text(&index)?).map_err(|error| faulty(index.display(), error))?;
        return Ok(names.into_iter().map(|name| folder.join(name)).collect());
    }
    let entries = fs::read_dir(folder).map_err(ErrorReport::of_file("cannot read", folder))?;
    let is_weights = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "safetensors");
    let paths = entries.take(MOST_FILES).filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = paths.filter(is_weights).collect();
    files.sort();
    if files.is_empty() {
        return Err(ErrorReport::new(format!(
            "`{}` has no *.safetensors, whose headers state the weights",
            folder.display()
        )));
    }
    Ok(files)
}

fn text(path: &Path) -> Result<String, ErrorReport> {
    plimsoll_file::read_text(path, LONGEST_TEXT).map_err(ErrorReport::of_file("cannot read", path))
}

/// Reads the start of a file alone, however large the file is.
fn header(path: &Path) -> Result<Header, ErrorReport> {
    let unread = || ErrorReport::of_file("cannot read", path);
    let mut file = plimsoll_file::open(path).map_err(unread())?;
    let length = file.metadata().map_err(unread())?.len();
    let mut start = Vec::new();
    file.by_ref().take(8).read_to_end(&mut start).map_err(unread())?;
    let span = Header::span(&start, length).map_err(|error| faulty(path.display(), error))?;
    file.take(span.saturating_sub(8)).read_to_end(&mut start).map_err(unread())?;
    Header::read(&start, length).map_err(|error| faulty(path.display(), error))
}

pub(super) fn faulty(file: impl Display, error: impl Display) -> ErrorReport {
    ErrorReport::new(format!("`{file}`: {error}"))
}
