//! Finds models that are already on this machine, in Hugging Face's cache and in llama.cpp's own folder.
//!
//! Newer llama-servers use Hugging Face's cache, older ones the folder (`common/hf-cache.cpp:
//! get_cache_directory @ 0.5.0`, `common/download.cpp @ b6000`).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_base::{Bytes, Order};

use crate::listing::{is_part, is_repository};
use crate::system;

/// Entries of a folder that are looked at; a cache may be anything.
const MOST: usize = 4096;
/// No file with the name of a commit is larger.
const COMMIT: Bytes = Bytes::kib(4);
/// Folders of a repository that lie in one another.
const DEPTH: usize = 4;

/// Folders that may hold downloaded models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caches {
    hubs: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

/// Downloaded files of one repository at one commit, by their paths in it.
#[derive(Clone, Debug)]
pub(crate) struct CachedFiles {
    pub(crate) paths: Vec<String>,
    files: Vec<PathBuf>,
}

impl Caches {
    /// The caches that the environment names, in llama-server's order.
    pub fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = path("XDG_CACHE_HOME").or_else(|| Some(path(system::HOME)?.join(".cache")));
        let home = path("HF_HOME").or_else(|| Some(cache.clone()?.join("huggingface")));
        let hubs = [
            path("LLAMA_CACHE"),
            path("HF_HUB_CACHE"),
            path("HUGGINGFACE_HUB_CACHE"),
            home.map(|home| home.join("hub")),
        ];
        let folders = [path("LLAMA_CACHE"), cache.map(|cache| cache.join("llama.cpp"))];
        Self { hubs: hubs.into_iter().flatten().collect(), folders: folders.into_iter().flatten().collect() }
    }

    /// Every repository in the hub's caches, each with the folder of one commit.
    pub fn repositories(&self) -> Vec<(String, PathBuf)> {
        let of_hub = |hub: &PathBuf| {
            sorted(hub).into_iter().filter_map(|folder| {
                let (user, name) =
                    folder.file_name()?.to_str()?.strip_prefix("models--")?.split_once("--")?;
                let repo = format!("{user}/{name}");
                is_repository(&repo).then_some((repo, folder.join("snapshots")))
            })
        };
        let found = self.hubs.iter().flat_map(of_hub);
        let mut all: Vec<(String, PathBuf)> = found
            .flat_map(|(repo, folder)| sorted(&folder).into_iter().map(move |commit| (repo.clone(), commit)))
            .collect();
        // Two variables may name one cache.
        let mut seen = std::collections::HashSet::new();
        all.retain(|(_, folder)| seen.insert(folder.clone()));
        all
    }

    /// The folder of the commit that a repository's `refs/main` names. The oldest repositories have no user.
    pub fn newest(&self, repo: &str) -> Option<PathBuf> {
        // Parts of a path from the command line must stay parts.
        let folder = Some(format!("models--{}", repo.replace('/', "--")));
        let folder = folder.filter(|_| is_repository(repo) || is_part(repo))?;
        let found = |hub: &PathBuf| {
            let repository = hub.join(&folder);
            let commit = plimsoll_file::read_text(&repository.join("refs/main"), COMMIT).ok()?;
            Some(repository.join("snapshots").join(commit.trim())).filter(|folder| folder.is_dir())
        };
        self.hubs.iter().find_map(found)
    }

    /// llama.cpp's own folders.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// The downloads of a repository, one list for each commit and folder that has some.
    pub(crate) fn of(&self, repo: &str) -> Vec<CachedFiles> {
        // Parts of a path from the command line must stay parts.
        let Some((user, name)) = repo.split_once('/').filter(|_| is_repository(repo)) else {
            return Vec::new();
        };
        let snapshots = self.hubs.iter().map(|hub| hub.join(format!("models--{user}--{name}/snapshots")));
        let snapshots = snapshots.flat_map(|folder| sorted(&folder));
        let prefix = format!("{user}_{name}_");
        let of_folders = self.folders.iter().map(|folder| CachedFiles::with_prefix(folder, &prefix));
        let all = snapshots.map(|folder| CachedFiles::below(&folder)).chain(of_folders);
        all.filter(|found| !found.paths.is_empty()).collect()
    }
}

impl CachedFiles {
    fn below(folder: &Path) -> Self {
        let mut files = Vec::new();
        walk(folder, DEPTH, &mut files);
        let path = |file: &PathBuf| Some(file.strip_prefix(folder).ok()?.to_str()?.to_owned());
        let (paths, files) = files.into_iter().filter_map(|file| Some((path(&file)?, file))).unzip();
        Self { paths, files }
    }

    fn with_prefix(folder: &Path, prefix: &str) -> Self {
        let of = |file: PathBuf| {
            let path = file.file_name()?.to_str()?.strip_prefix(prefix)?.to_owned();
            Some((path, file))
        };
        let (paths, files) = sorted(folder).into_iter().filter_map(of).unzip();
        Self { paths, files }
    }

    pub(crate) fn list(&self) -> Vec<&str> {
        self.paths.iter().map(String::as_str).collect()
    }

    pub(crate) fn file(&self, path: &str) -> Option<PathBuf> {
        let at = self.paths.iter().position(|known| known == path)?;
        self.files.get(at).cloned()
    }
}

fn walk(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for path in sorted(folder) {
        if path.is_dir() {
            if depth > 0 {
                walk(&path, depth - 1, files);
            }
        // The hub's cache links to its blobs; a link to nothing is a download that was removed.
        } else if path.is_file() && files.len() < MOST {
            files.push(path);
        }
    }
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = read.take(MOST).map(|entry| entry.path()).collect();
    paths.order();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::repository;

    #[test]
    fn a_downloaded_model_is_found_in_either_cache_and_a_name_never_leaves_them() {
        let folder = tempfile::tempdir().unwrap();
        let (hub, old) = (folder.path().join("hub"), folder.path().join("old"));
        let snapshot = hub.join("models--u--r-GGUF/snapshots/abc");
        fs::create_dir_all(snapshot.join("BF16")).unwrap();
        fs::create_dir_all(&old).unwrap();
        for name in [
            "r-Q8_0.gguf",
            "r-Q4_K_M-00002-of-00002.gguf",
            "r-Q4_K_M-00001-of-00002.gguf",
            "BF16/r-BF16.gguf",
            "mmproj-Q4_K_M.gguf",
        ] {
            fs::write(snapshot.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("gone", snapshot.join("r-Q5_0.gguf")).unwrap();
        fs::write(old.join("u_s_s-q4_k_m.gguf"), "").unwrap();
        let caches = Caches { hubs: vec![hub], folders: vec![old] };
        let find = |repo: &str, tag: Option<&str>| {
            let found = caches.of(repo);
            let files = found.first()?;
            let first = repository::usual(&files.list(), tag)?.remove(0);
            files.file(&first).map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        };
        assert_eq!(find("u/r-GGUF", None).as_deref(), Some("r-Q4_K_M-00001-of-00002.gguf"));
        assert_eq!(find("u/r-GGUF", Some("q8_0")).as_deref(), Some("r-Q8_0.gguf"));
        assert_eq!(find("u/r-GGUF", Some("bf16")).as_deref(), Some("r-BF16.gguf"));
        assert_eq!(find("u/s", Some("Q4_K_M")).as_deref(), Some("u_s_s-q4_k_m.gguf"));
        assert_eq!(find("u/r-GGUF", Some("Q5_0")), None);
        for repo in ["u/none", "", "u", "/", "../..", "u/../r", "u/."] {
            assert!(caches.of(repo).is_empty(), "{repo}");
        }
    }
}
