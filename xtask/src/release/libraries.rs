//! Collects the build machine's shared libraries that the container image needs, because it contains no other
//! system files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::options::Architecture;
use super::tree::FileTree;
use crate::artifacts;

#[derive(Debug, thiserror::Error)]
pub(super) enum LibraryError {
    #[error("readelf (of binutils) does not run: {0}")]
    Start(io::Error),
    #[error("{} is no program for {architecture}", path.display())]
    NoProgram { path: PathBuf, architecture: Architecture },
    #[error("{library} is not in {}; install the C library for {architecture}", folders.join(", "))]
    Missing { library: String, folders: Vec<String>, architecture: Architecture },
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
}

/// The loader and every library that the program or one of its libraries names.
pub(super) fn needed(program: &Path, architecture: Architecture) -> Result<FileTree, LibraryError> {
    let mut tree = FileTree::default();
    for name in ["lib", "lib64"] {
        tree.link(name, format!("usr/{name}"));
    }
    tree.folder("usr/lib64", 0o755);
    let mut queue = named(program)?;
    if queue.is_empty() {
        return Err(LibraryError::NoProgram { path: program.to_owned(), architecture });
    }
    let mut seen = Vec::new();
    while let Some(library) = queue.pop() {
        if seen.contains(&library) {
            continue;
        }
        let path = find(&library, architecture)?;
        let bytes = fs::read(&path).map_err(|error| LibraryError::Read { path: path.clone(), error })?;
        queue.extend(named(&path)?);
        match architecture.loader().rsplit_once('/') {
            Some((_, loader)) if loader == library => {
                tree.file(format!("usr/{}", architecture.loader()), 0o755, bytes);
            }
            _ => tree.file(format!("usr/lib/{}/{library}", architecture.folder()), 0o644, bytes),
        }
        seen.push(library);
    }
    Ok(tree)
}

fn named(artefact: &Path) -> Result<Vec<String>, LibraryError> {
    let text = artifacts::readelf(artefact).map_err(LibraryError::Start)?;
    Ok(artifacts::needed(&text).map(str::to_owned).collect())
}

/// The library in Debian's folders, the cross compiler's among them.
fn find(library: &str, architecture: Architecture) -> Result<PathBuf, LibraryError> {
    let folder = architecture.folder();
    let folders = [
        format!("/lib/{folder}"),
        format!("/usr/lib/{folder}"),
        format!("/usr/{folder}/lib"),
        "/lib64".to_owned(),
    ];
    let found = folders.iter().map(|folder| Path::new(folder).join(library)).find(|path| path.exists());
    found.ok_or_else(|| LibraryError::Missing {
        library: library.to_owned(),
        folders: folders.to_vec(),
        architecture,
    })
}
