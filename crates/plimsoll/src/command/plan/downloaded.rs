//! Path of a model file that llama-server or a Hugging Face tool has downloaded, for `-hf USER/REPO:QUANT`.
//!
//! Newer builds use Hugging Face's cache, older ones a folder of llama.cpp's own (`common/download.cpp:
//! common_get_hf_file @ b10605`). Nothing is downloaded here.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The quantisation that llama-server takes where none is named.
const USUAL: &str = "Q4_K_M";
/// Entries of a folder that are looked at; a cache may be anything.
const MOST: usize = 4096;

/// The downloaded file of `user/repo[:quant]`, the first in order of names.
pub(super) fn find(remote: &str) -> Option<PathBuf> {
    find_in(remote, &hubs(), &folders())
}

fn find_in(remote: &str, hubs: &[PathBuf], folders: &[PathBuf]) -> Option<PathBuf> {
    let (repo, quant) = remote.split_once(':').unwrap_or((remote, USUAL));
    let (user, name) = repo.split_once('/')?;
    // Parts of a path from the command line must stay parts.
    if [user, name].iter().any(|part| part.is_empty() || part.contains('/') || part.starts_with('.')) {
        return None;
    }
    let snapshots = hubs.iter().map(|hub| hub.join(format!("models--{user}--{name}")).join("snapshots"));
    let of_hub = snapshots.flat_map(|folder| entries(&folder)).flat_map(|one| entries(&one));
    let prefix = format!("{user}_{name}_");
    let of_folder = folders.iter().flat_map(|folder| entries(folder));
    let of_folder = of_folder.filter(|path| name_of(path).starts_with(&prefix));
    let mut found: Vec<PathBuf> = of_hub.chain(of_folder).filter(|path| is_model(path, quant)).collect();
    // The first file of a set comes first, and it names the others.
    found.sort();
    found.into_iter().next()
}

fn is_model(path: &Path, quant: &str) -> bool {
    let name = name_of(path).to_ascii_lowercase();
    name.ends_with(".gguf") && name.contains(&quant.to_ascii_lowercase()) && !name.contains("mmproj")
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten().flatten();
    read.take(MOST).map(|entry| entry.path()).collect()
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn cache() -> Option<PathBuf> {
    variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))
}

fn hubs() -> Vec<PathBuf> {
    let home = variable("HF_HOME").or_else(|| Some(cache()?.join("huggingface")));
    [variable("HF_HUB_CACHE"), home.map(|home| home.join("hub"))].into_iter().flatten().collect()
}

fn folders() -> Vec<PathBuf> {
    [variable("LLAMA_CACHE"), cache().map(|cache| cache.join("llama.cpp"))].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_downloaded_model_is_found_in_either_cache_and_a_name_never_leaves_them() {
        let folder = tempfile::tempdir().unwrap();
        let (hub, old) = (folder.path().join("hub"), folder.path().join("old"));
        let snapshot = hub.join("models--u--r-GGUF/snapshots/abc");
        fs::create_dir_all(&snapshot).unwrap();
        fs::create_dir_all(&old).unwrap();
        for name in [
            "r-Q8_0.gguf",
            "r-Q4_K_M-00002-of-00002.gguf",
            "r-Q4_K_M-00001-of-00002.gguf",
            "mmproj-Q4_K_M.gguf",
        ] {
            fs::write(snapshot.join(name), "").unwrap();
        }
        fs::write(old.join("u_s_s-q4_k_m.gguf"), "").unwrap();
        let find = |remote: &str| {
            let found = find_in(remote, std::slice::from_ref(&hub), std::slice::from_ref(&old));
            found.map(|path| name_of(&path))
        };
        assert_eq!(find("u/r-GGUF").as_deref(), Some("r-Q4_K_M-00001-of-00002.gguf"));
        assert_eq!(find("u/r-GGUF:q8_0").as_deref(), Some("r-Q8_0.gguf"));
        assert_eq!(find("u/s:Q4_K_M").as_deref(), Some("u_s_s-q4_k_m.gguf"));
        for remote in ["u/r-GGUF:Q2_K", "u/none", "", "u", "/", "../..", "u/../r", "u/.", ":Q4_K_M"] {
            assert_eq!(find(remote), None, "{remote}");
        }
    }
}
