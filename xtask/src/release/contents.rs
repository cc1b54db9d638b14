//! Lists the packages' installed files, with the source and the destination of each.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::build::Programs;
use super::tree::{FileTree, Node, gzip};

/// Files of the repository, and where packages install them.
const FILES: &[(&str, &str)] = &[
    ("crates/cli/units/system.service", "usr/lib/systemd/system/plimsoll.service"),
    ("crates/cli/units/user.service", "usr/lib/systemd/user/plimsoll.service"),
    ("packaging/sysusers.conf", "usr/lib/sysusers.d/plimsoll.conf"),
    ("packaging/tmpfiles.conf", "usr/lib/tmpfiles.d/plimsoll.conf"),
    ("packaging/plimsoll.toml", "etc/plimsoll/plimsoll.toml"),
    ("packaging/engine-user.conf", "usr/share/doc/plimsoll/engine-user.conf"),
    ("packaging/deb/copyright", "usr/share/doc/plimsoll/copyright"),
    ("LICENSE-MIT", "usr/share/doc/plimsoll/LICENSE-MIT"),
    ("LICENSE-APACHE", "usr/share/doc/plimsoll/LICENSE-APACHE"),
    ("docs/reference/completions/plimsoll.bash", "usr/share/bash-completion/completions/plimsoll"),
    ("docs/reference/completions/_plimsoll", "usr/share/zsh/vendor-completions/_plimsoll"),
    ("docs/reference/completions/plimsoll.fish", "usr/share/fish/vendor_completions.d/plimsoll.fish"),
    ("docs/reference/config.schema.json", "usr/share/plimsoll/config.schema.json"),
];
/// Installed compressed, as Debian's policy has it.
const COMPRESSED: &[(&str, &str)] = &[("CHANGELOG.md", "usr/share/doc/plimsoll/changelog.gz")];
const PAGES: (&str, &str) = ("docs/reference/man", "usr/share/man/man1");
/// Sources of the Python package.
const PACKAGE: &str = "python/plimsoll";
/// Configuration, which a package manager keeps when its owner has changed it.
pub(super) const CONFIGURATION: &str = "etc/plimsoll/plimsoll.toml";

#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {error}", path.display())]
pub(super) struct ContentsError {
    path: PathBuf,
    error: io::Error,
}

/// Everything that a system package installs.
pub(super) fn tree(root: &Path, programs: &Programs, sbom: &[u8]) -> Result<FileTree, ContentsError> {
    let mut tree = FileTree::default();
    tree.file("usr/bin/plimsoll", 0o755, read(&programs.program)?);
    for library in &programs.libraries {
        let name = library.file_name().unwrap_or_default().to_string_lossy();
        tree.file(format!("usr/lib/plimsoll/{name}"), 0o644, read(library)?);
    }
    for (from, to) in FILES {
        tree.file(*to, 0o644, read(&root.join(from))?);
    }
    let pages = root.join(PAGES.0);
    let unread = |error| ContentsError { path: pages.clone(), error };
    for entry in fs::read_dir(&pages).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        tree.file(format!("{}/{name}.gz", PAGES.1), 0o644, packed(&path)?);
    }
    for (from, to) in COMPRESSED {
        tree.file(*to, 0o644, packed(&root.join(from))?);
    }
    tree.file("usr/share/doc/plimsoll/sbom.cdx.json", 0o644, sbom);
    Ok(tree)
}

/// The Python package, with the library that it loads.
pub(super) fn python(root: &Path, programs: &Programs) -> Result<FileTree, ContentsError> {
    let folder = root.join(PACKAGE);
    let mut tree = FileTree::default();
    let unread = |error| ContentsError { path: folder.clone(), error };
    for entry in fs::read_dir(&folder).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        // Python leaves a folder of compiled files behind.
        if path.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            tree.file(format!("plimsoll/{name}"), 0o644, read(&path)?);
        }
    }
    let name = programs.abi.file_name().unwrap_or_default().to_string_lossy();
    tree.file(format!("plimsoll/{name}"), 0o644, read(&programs.abi)?);
    Ok(tree)
}

/// The files of a system for a prefix of the user's choice, such as `/usr/local`, below one folder.
pub(super) fn archive(tree: &FileTree) -> FileTree {
    let mut archive = FileTree::default();
    let top = format!("plimsoll-{}", super::VERSION);
    for (path, node) in tree.nodes().filter(|(_, node)| !matches!(node, Node::Folder { .. })) {
        let path = path.strip_prefix("usr/").unwrap_or(path);
        archive.insert(format!("{top}/{path}"), node.clone());
    }
    archive
}

fn read(path: &Path) -> Result<Vec<u8>, ContentsError> {
    fs::read(path).map_err(|error| ContentsError { path: path.to_owned(), error })
}

fn packed(path: &Path) -> Result<Vec<u8>, ContentsError> {
    gzip(&read(path)?).map_err(|error| ContentsError { path: path.to_owned(), error })
}
