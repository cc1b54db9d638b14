//! Lists the downloaded models in a folder, and removes them.
//!
//! For each model, a note (`plimsoll/NAME.json`) names its files. The folder alone does not show which of a
//! repository's files form one model, or the name by which a user requested it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use plimsoll_base::{Bytes, Order};
use serde::{Deserialize, Serialize};

use crate::notes;

/// The longest note.
const LONGEST: Bytes = Bytes::mib(1);

/// A model that was downloaded into a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownloadedModel {
    /// `USER/REPO` or `USER/REPO:QUANT`, as it was asked for, or the name of the file at an address.
    pub name: String,
    /// Its files, relative to the folder; the first is the one that engines get.
    pub files: Vec<PathBuf>,
    pub projector: Option<PathBuf>,
}

/// The folder of a repository in the layout of the hub's cache.
pub(crate) fn repository_folder(repo: &str) -> PathBuf {
    PathBuf::from(format!("models--{}", repo.replace('/', "--")))
}

impl DownloadedModel {
    /// The models of a folder, by name. A note that leads out of the folder, or to nothing, is passed over.
    pub fn all(folder: &Path) -> Vec<Self> {
        let mut models: Vec<Self> = notes::all(folder).filter_map(|path| Self::read(folder, &path)).collect();
        models.order_by(|a, b| a.name.cmp(&b.name));
        models
    }

    fn read(folder: &Path, note: &Path) -> Option<Self> {
        let text = plimsoll_file::read(note, LONGEST).ok()?;
        let model: Self = serde_json::from_slice(&text).ok()?;
        let is_below = |path: &PathBuf| path.components().all(|part| matches!(part, Component::Normal(_)));
        let is_there = |path: &PathBuf| is_below(path) && folder.join(path).is_file();
        let is_own = note == notes::path(folder, &model.name) && !model.files.is_empty();
        (is_own && model.paths().all(is_there)).then_some(model)
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().chain(&self.projector)
    }

    pub(crate) fn note(&self, folder: &Path) -> io::Result<()> {
        notes::write(folder, &self.name, &serde_json::to_vec(self).map_err(io::Error::other)?)
    }

    /// Removes the model from the folder, with those of its files that no other model has.
    pub fn remove(&self, folder: &Path) -> io::Result<()> {
        // Without its note the model is gone, whatever happens to its files.
        fs::remove_file(notes::path(folder, &self.name))?;
        let others = Self::all(folder);
        let shared: BTreeSet<&PathBuf> = others.iter().flat_map(|model| model.paths()).collect();
        let kept: BTreeSet<PathBuf> =
            shared.iter().filter_map(|path| fs::canonicalize(folder.join(path)).ok()).collect();
        for path in self.paths().filter(|path| !shared.contains(path)) {
            let link = folder.join(path);
            // Two files of one content are one blob.
            let blob = fs::canonicalize(&link).ok().filter(|blob| !kept.contains(blob) && *blob != link);
            fs::remove_file(&link)?;
            if let Some(blob) = blob {
                fs::remove_file(blob)?;
            }
        }
        Ok(())
    }
}
