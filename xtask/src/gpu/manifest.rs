//! Writes `MANIFEST.json` of `cargo xtask gpu bundle`: the length and digest of every file, to detect damage
//! in transfer.
//!
//! Names may contain letters, digits and `._-/`, which need no escaping; other names are refused.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const NAME: &str = "MANIFEST.json";

#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestError {
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("`{}` cannot be packed: a name is letters, digits and ._- alone", .0.display())]
    Name(PathBuf),
    #[error("sha256sum of {} does not run: {error}", path.display())]
    Digest { path: PathBuf, error: io::Error },
}

/// A file, by its path in the bundle.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) bytes: u64,
    sha256: String,
}

#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) files: Vec<Entry>,
}

impl Manifest {
    /// Of all files below a folder, in the order of their names.
    pub(super) fn of(folder: &Path) -> Result<Self, ManifestError> {
        let mut manifest = Self::default();
        manifest.add(folder, folder)?;
        manifest.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(manifest)
    }

    fn add(&mut self, root: &Path, folder: &Path) -> Result<(), ManifestError> {
        let unread = |error| ManifestError::Read { path: folder.to_owned(), error };
        for entry in fs::read_dir(folder).map_err(unread)? {
            let path = entry.map_err(unread)?.path();
            if path.is_dir() {
                self.add(root, &path)?;
            } else {
                let name = path.strip_prefix(root).unwrap_or(&path);
                self.files.push(Entry {
                    path: plain(name).ok_or_else(|| ManifestError::Name(path.clone()))?,
                    bytes: fs::metadata(&path).map_err(unread)?.len(),
                    sha256: digest(&path)?,
                });
            }
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|entry| entry.bytes).sum()
    }

    /// The longest first.
    pub(super) fn longest(&self) -> impl Iterator<Item = &Entry> {
        let mut entries: Vec<&Entry> = self.files.iter().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.bytes));
        entries.into_iter()
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), ManifestError> {
        let path = folder.join(NAME);
        fs::write(&path, self.json()).map_err(|error| ManifestError::Write { path, error })
    }

    fn json(&self) -> String {
        let line = |entry: &Entry| {
            format!(
                "  {{\"path\": \"{}\", \"bytes\": {}, \"sha256\": \"{}\"}}",
                entry.path, entry.bytes, entry.sha256
            )
        };
        let lines: Vec<String> = self.files.iter().map(line).collect();
        format!("{{\n \"schema\": \"plimsoll.bundle/1\",\n \"files\": [\n{}\n ]\n}}\n", lines.join(",\n"))
    }
}

fn plain(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    text.bytes().all(usual).then(|| text.to_owned())
}

fn digest(path: &Path) -> Result<String, ManifestError> {
    let digest = |error| ManifestError::Digest { path: path.to_owned(), error };
    let output = Command::new("sha256sum").arg(path).output().map_err(digest)?;
    let stated = String::from_utf8_lossy(&output.stdout);
    let word = stated.split_whitespace().next().unwrap_or_default();
    if word.len() == 64 && output.status.success() {
        Ok(word.to_owned())
    } else {
        Err(digest(io::ErrorKind::InvalidData.into()))
    }
}
