//! Makes sparse copies of model files, with the header but without the weights, so that an engine can plan
//! them.
//!
//! An engine reads weights only to copy them to a card, so a hole is enough, and takes no disk space.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use plimsoll_model::Dialect;
use plimsoll_probe::folder::OwnedFolder;
use plimsoll_probe::headers::{FileHead, read_heads};

use super::ExactError;
use super::system::make_sparse;

const FOLDER: &str = "plimsoll-exact-";

/// The part of a header that an engine gets to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    Whole,
    /// The header without its vocabulary, which takes an engine longer to read than everything else.
    Lean,
}

/// The model files of this run, and the folder for their copies.
#[derive(Debug, Default)]
pub(super) struct Files {
    folder: Option<OwnedFolder>,
    models: BTreeMap<String, ModelFiles>,
}

/// One model: its files, and the path of the first copy in each form.
#[derive(Debug)]
struct ModelFiles {
    heads: Vec<FileHead>,
    stamp: String,
    copies: BTreeMap<Form, String>,
}

impl Files {
    /// The folder for copies and sockets, created on first use.
    pub(super) fn folder(&mut self) -> Result<&Path, ExactError> {
        let folder = self.folder.take().map_or_else(|| OwnedFolder::create(FOLDER), Ok);
        Ok(self.folder.insert(folder.map_err(ExactError::Folder)?).path())
    }

    /// Cache key of a file: its header and length, independent of its path.
    pub(super) fn stamp(&mut self, path: &str, form: Form) -> Result<String, ExactError> {
        let files = self.read(path)?;
        Ok(match form {
            // A file without a vocabulary is the same in both forms; one stamp lets both share a cache entry.
            Form::Lean if files.has_vocabulary() => format!("lean {}", files.stamp),
            _ => files.stamp.clone(),
        })
    }

    /// Copies a file and the rest of its set; returns the path of the first copy.
    pub(super) fn copy(&mut self, path: &str, form: Form) -> Result<String, ExactError> {
        // Numbers the folder, so that two models whose files have the same names do not collide.
        let number = self.models.len();
        let folder = self.folder()?.to_owned();
        let files = self.read(path)?;
        let form = if files.has_vocabulary() { form } else { Form::Whole };
        if let Some(created) = files.copies.get(&form) {
            return Ok(created.clone());
        }
        let first = files.write(&folder.join(format!("{number}-{form:?}")), form)?;
        files.copies.insert(form, first.clone());
        Ok(first)
    }

    fn read(&mut self, path: &str) -> Result<&mut ModelFiles, ExactError> {
        Ok(match self.models.entry(path.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(ModelFiles::read(path)?),
        })
    }
}

impl ModelFiles {
    fn read(path: &str) -> Result<Self, ExactError> {
        let heads = read_heads(Path::new(path), Dialect::Ggml)?;
        let stamps: Vec<String> = heads.iter().map(stamp).collect();
        Ok(Self { stamp: format!("gguf:{}", stamps.join("+")), heads, copies: BTreeMap::new() })
    }

    fn has_vocabulary(&self) -> bool {
        self.heads.iter().any(|head| head.has_vocabulary)
    }

    fn write(&self, folder: &Path, form: Form) -> Result<String, ExactError> {
        let mut first: Option<PathBuf> = None;
        for head in &self.heads {
            let copy = folder.join(head.path.file_name().unwrap_or_default());
            let whole = head.bytes()?;
            let lean = (form == Form::Lean).then(|| head.without_vocabulary(&whole)).flatten();
            let bytes = lean.as_ref().unwrap_or(&whole);
            // Tensor data follows the header. A shorter header shortens the file by the same amount.
            let length = head.length - widened(&whole) + widened(bytes);
            let copied = fs::create_dir_all(folder).and_then(|()| write(&copy, bytes, length));
            copied.map_err(|error| ExactError::Copy { from: head.path.clone(), to: copy.clone(), error })?;
            first.get_or_insert(copy);
        }
        Ok(first.unwrap_or_default().to_string_lossy().into_owned())
    }
}

fn widened(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn write(path: &Path, head: &[u8], length: u64) -> io::Result<()> {
    // `create_new`, so that a copy never follows a link or overwrites a file in a shared temporary folder.
    let mut file = File::create_new(path)?;
    file.write_all(head)?;
    make_sparse(&file)?;
    file.set_len(length)
}

/// Hash and length of a file's header, and the file's length. The lengths keep models of another shape apart,
/// so 64 bits of hash are enough for those of one user.
fn stamp(head: &FileHead) -> String {
    format!("{:016x}/{}/{}", head.digest, head.end, head.length)
}
