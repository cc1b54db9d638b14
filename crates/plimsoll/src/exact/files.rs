//! Copies of model files that are their headers with a hole behind them.
//!
//! An engine checks that a file is as long as its tensors need, and reads weights only to carry them to a card. A sparse
//! file of the same length is enough, and takes no room. All files of a set are copied, under their own names, because
//! an engine finds the others by the name of the first.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use plimsoll_core::model::Dialect;

use super::ExactError;
use crate::probe::headers::{Window, read_heads};

/// The copies of one run.
#[derive(Debug)]
pub(super) struct Copies<'a> {
    folder: &'a Path,
    made: u32,
}

impl<'a> Copies<'a> {
    pub(super) fn new(folder: &'a Path) -> Self {
        Self { folder, made: 0 }
    }

    /// Copies a file and its set; the path of the first copy.
    pub(super) fn copy(&mut self, path: &str) -> Result<String, ExactError> {
        let folder = self.folder.join(self.made.to_string());
        self.made += 1;
        let mut first = None;
        for head in read_heads(Path::new(path), Dialect::Ggml)? {
            let copy = folder.join(head.path().file_name().unwrap_or_default());
            let bytes = head.head()?;
            let copied = fs::create_dir_all(&folder).and_then(|()| write(&copy, bytes, head.length()));
            copied.map_err(|error| ExactError::Copy {
                from: head.path().to_owned(),
                to: copy.clone(),
                error,
            })?;
            first.get_or_insert(copy);
        }
        let first: PathBuf = first.unwrap_or_default();
        Ok(first.to_string_lossy().into_owned())
    }
}

fn write(path: &Path, head: &[u8], length: u64) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(head)?;
    file.set_len(length)
}

/// What a file's answer depends on: its header and its length, wherever it lies.
pub(super) fn stamp(path: &str) -> Result<String, ExactError> {
    let heads = read_heads(Path::new(path), Dialect::Ggml)?;
    let stamps = heads.iter().map(of_head).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("gguf:{}", stamps.join("+")))
}

/// Two different 64-bit hashes: an answer that is another file's must not be found by chance.
fn of_head(head: &Window) -> Result<String, ExactError> {
    let bytes = head.head()?;
    let hash = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        bytes.hash(&mut hasher);
        hasher.finish()
    };
    Ok(format!("{:016x}{:016x}/{}", hash(1), hash(2), head.length()))
}
