//! Finds the files from which an engine reads weights, from its command-line flags.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plimsoll_base::{Bytes, Order};
use plimsoll_config::ConfiguredModel;
use plimsoll_flags::{ModelParams, ProgramKind};
use plimsoll_reclaim::files_of;

use super::named;

/// Device and inode, which identify a file under any name.
pub type FileIdentity = (u64, u64);

/// Readable files of an entry; none if its flags are unknown.
pub fn of_entry(entry: &ConfiguredModel) -> Vec<PathBuf> {
    let options = entry.launch.options();
    let flags = options.and_then(|options| named::flags(entry, options).ok());
    let params = flags.and_then(|flags| flags.params(ProgramKind::LlamaServer).ok());
    params.map_or_else(Vec::new, |params| of(&params))
}

/// Size of the readable files of an entry.
pub(super) fn size_of_entry(entry: &ConfiguredModel) -> Bytes {
    let files = of_entry(entry).into_iter();
    files.filter_map(|path| Some(Bytes::new(path.metadata().ok()?.len()))).sum()
}

/// Readable files named by flags: model, draft and projector with all shards, adapters and control vectors.
pub fn of(params: &ModelParams) -> Vec<PathBuf> {
    let sets = [&params.model, &params.draft_model, &params.projector];
    let sets = sets.into_iter().flatten().flat_map(|path| files_of(Path::new(path)));
    let others = params.adapters.iter().chain(&params.control_vectors);
    let mut files: Vec<PathBuf> = sets.chain(others.map(PathBuf::from)).collect();
    files.order();
    // A draft model may be the model itself.
    files.dedup();
    files.retain(|path| is_readable(path));
    files
}

/// Identities of the files of these entries.
pub fn identities(entries: &[ConfiguredModel]) -> BTreeSet<FileIdentity> {
    let files = entries.iter().flat_map(of_entry);
    files.filter_map(|path| identity(&path)).collect()
}

pub fn identity(path: &Path) -> Option<FileIdentity> {
    let about = path.metadata().ok()?;
    Some((about.dev(), about.ino()))
}

/// True for a regular file that can be opened.
fn is_readable(path: &Path) -> bool {
    plimsoll_file::open(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_a_model_are_found_and_a_file_is_known_under_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mm.gguf", "lora.gguf"] {
            std::fs::write(path(name), name).unwrap();
        }
        let shown = folder.path().display();
        let flags = format!(
            "-m {shown}/m-00001-of-00002.gguf -md {shown}/none.gguf -mm {shown}/mm.gguf --lora {shown}/lora.gguf"
        );
        let text = format!("[models.a]\nflags = \"{flags}\"\n[models.b]\ncmd = \"x ${{PORT}}\"");
        let models = plimsoll_config::parse("p.toml", &text, &|_| None).unwrap().models;
        let expected = ["lora.gguf", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mm.gguf"];
        assert_eq!(of_entry(&models[0]), expected.map(path));
        assert!(of_entry(&models[1]).is_empty());
        std::os::unix::fs::symlink(path("mm.gguf"), path("other.gguf")).unwrap();
        let known = identities(&models);
        assert!(known.contains(&identity(&path("other.gguf")).unwrap()), "{known:?}");
        assert_eq!(known.len(), 4);
    }
}
