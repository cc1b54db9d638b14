//! Names a file by its role in a model (such as weights or projector), so that hosts with different paths
//! agree on it.

use std::path::{Path, PathBuf};

use plimsoll_config::ConfiguredModel;
use plimsoll_flags::{ModelParams, ProgramKind};
use plimsoll_model::split::siblings;
use serde::{Deserialize, Serialize};

use plimsoll_runtime::named;

/// Files of one model, at most: a set has some hundreds.
pub(super) const MOST_FILES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FileRole {
    Model,
    Draft,
    Projector,
    Adapter,
    ControlVector,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct FilePlace {
    pub(super) role: FileRole,
    /// From 0, in the order of the set or of the flags.
    pub(super) part: usize,
}

impl FilePlace {
    /// The file whose digest is the one of the offer.
    pub(super) const FIRST: Self = Self { role: FileRole::Model, part: 0 };
}

/// The files of a model with their paths on this host; none if its flags name no file, or far too many.
pub(super) fn places(entry: &ConfiguredModel) -> Vec<(FilePlace, PathBuf)> {
    let options = entry.launch.options();
    let flags = options.and_then(|options| named::flags(entry, options).ok());
    let params = flags.and_then(|flags| flags.params(ProgramKind::LlamaServer).ok());
    let places = params.filter(|params| params.model.is_some()).map_or_else(Vec::new, |params| of(&params));
    if places.len() > MOST_FILES { Vec::new() } else { places }
}

fn of(params: &ModelParams) -> Vec<(FilePlace, PathBuf)> {
    let set = |role, path: &Option<String>| {
        let paths = path.as_deref().map(siblings).unwrap_or_default();
        numbered(role, paths)
    };
    let mut places = set(FileRole::Model, &params.model);
    places.extend(set(FileRole::Draft, &params.draft_model));
    places.extend(set(FileRole::Projector, &params.projector));
    places.extend(numbered(FileRole::Adapter, params.adapters.clone()));
    places.extend(numbered(FileRole::ControlVector, params.control_vectors.clone()));
    places
}

fn numbered(role: FileRole, paths: Vec<String>) -> Vec<(FilePlace, PathBuf)> {
    let place = |(part, path)| (FilePlace { role, part }, PathBuf::from(path));
    paths.into_iter().enumerate().map(place).collect()
}

/// True if a file of the model is not there.
///
/// A link that leads to nothing is there: a copy would not take its place.
pub(super) fn lacks(entry: &ConfiguredModel) -> bool {
    places(entry).iter().any(|(_, path)| is_missing(path))
}

pub(super) fn is_missing(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(flags: &str) -> ConfiguredModel {
        let text = format!("[models.a]\nflags = \"{flags}\"\n");
        plimsoll_config::parse("p.toml", &text, &|_| None).unwrap().models.remove(0)
    }

    #[test]
    fn all_files_have_their_places_whatever_they_are_called() {
        let here = places(&entry("-m /a/m-00001-of-00002.gguf -mm /a/mm.gguf --lora /a/l.gguf"));
        let there = places(&entry("-m /b/x-00001-of-00002.gguf -mm /c/p.gguf --lora /d/q.gguf"));
        let named =
            |places: &[(FilePlace, PathBuf)]| places.iter().map(|(place, _)| *place).collect::<Vec<_>>();
        assert_eq!(named(&here), named(&there));
        let paths: Vec<&str> = here.iter().filter_map(|(_, path)| path.to_str()).collect();
        let model = ["/a/m-00001-of-00002.gguf", "/a/m-00002-of-00002.gguf"];
        assert_eq!(paths, [&model[..], &["/a/mm.gguf", "/a/l.gguf"]].concat());
        assert_eq!(here[0].0, FilePlace::FIRST);
    }

    #[test]
    fn a_model_without_a_file_has_no_places_and_a_set_without_end_is_one_file() {
        assert!(places(&entry("-hf user/repo -mm /a/mm.gguf")).is_empty());
        assert_eq!(places(&entry("-m /a/m-00001-of-65535.gguf")).len(), 1);
        assert!(!lacks(&entry("-hf user/repo")));
    }

    #[test]
    fn a_link_to_nothing_and_a_folder_are_no_missing_files() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link.gguf");
        assert!(is_missing(&link));
        std::os::unix::fs::symlink("/nowhere/at/all", &link).unwrap();
        assert!(!is_missing(&link) && !is_missing(folder.path()));
    }
}
