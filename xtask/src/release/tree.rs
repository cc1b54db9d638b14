//! Builds the file tree of a package in memory, and its tar archive with sorted entries, a single owner and a
//! single date.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    File { mode: u32, bytes: Vec<u8> },
    Link(String),
    Folder { mode: u32 },
}

/// Paths without a leading slash; folders above a file need not be named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileTree(BTreeMap<String, Node>);

impl FileTree {
    pub(super) fn file(&mut self, path: impl Into<String>, mode: u32, bytes: impl Into<Vec<u8>>) {
        self.insert(path.into(), Node::File { mode, bytes: bytes.into() });
    }

    pub(super) fn link(&mut self, path: impl Into<String>, to: impl Into<String>) {
        self.insert(path.into(), Node::Link(to.into()));
    }

    pub(super) fn folder(&mut self, path: impl Into<String>, mode: u32) {
        self.insert(path.into(), Node::Folder { mode });
    }

    pub(super) fn insert(&mut self, path: String, node: Node) {
        for (at, _) in path.match_indices('/') {
            self.0.entry(path[..at].to_owned()).or_insert(Node::Folder { mode: 0o755 });
        }
        self.0.insert(path, node);
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.0.iter().map(|(path, node)| (path.as_str(), node))
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.nodes().filter_map(|(path, node)| match node {
            Node::File { bytes, .. } => Some((path, bytes.as_slice())),
            Node::Link(_) | Node::Folder { .. } => None,
        })
    }

    /// The tar. Folders come before what they hold, because a path sorts before those that it begins.
    pub(super) fn tar(&self, date: u64) -> io::Result<Vec<u8>> {
        let mut builder = Builder::new(Vec::new());
        for (path, node) in &self.0 {
            let mut header = Header::new_gnu();
            header.set_mtime(date);
            header.set_uid(0);
            header.set_gid(0);
            header.set_username("root")?;
            header.set_groupname("root")?;
            match node {
                Node::File { mode, bytes } => {
                    header.set_mode(*mode);
                    header.set_size(u64::try_from(bytes.len()).map_err(io::Error::other)?);
                    builder.append_data(&mut header, path, bytes.as_slice())?;
                }
                Node::Link(to) => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_mode(0o777);
                    builder.append_link(&mut header, path, Path::new(to))?;
                }
                Node::Folder { mode } => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_mode(*mode);
                    builder.append_data(&mut header, format!("{path}/"), io::empty())?;
                }
            }
        }
        builder.into_inner()
    }

    pub(super) fn compressed(&self, date: u64) -> io::Result<Vec<u8>> {
        gzip(&self.tar(date)?)
    }
}

/// gzip without a name and a date.
pub(super) fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = GzBuilder::new().write(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    writer.finish()
}
