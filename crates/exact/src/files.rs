//! Copies of model files that are their headers with a hole behind them.
//!
//! An engine checks that a file is as long as its tensors need, and reads weights only to carry them to a
//! card. A sparse file of the same length is enough, and takes no room. All files of a set are copied, under
//! their own names, because an engine finds the others by the name of the first. A file is read and copied
//! once, however often it is asked about.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use plimsoll_model::Dialect;
use plimsoll_probe::folder::OwnedFolder;
use plimsoll_probe::headers::{Window, read_heads};

use super::ExactError;

const FOLDER: &str = "plimsoll-exact-";

/// Form of the header that an engine is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    /// Without its vocabulary, which takes an engine longer to read than all else.
    Lean,
}

/// The files that were asked about, and a folder for their copies.
#[derive(Debug, Default)]
pub(super) struct Files {
    folder: Option<OwnedFolder>,
    models: BTreeMap<String, ModelFiles>,
}

/// One model: its files, and the first of their copies in either form.
#[derive(Debug)]
struct ModelFiles {
    heads: Vec<Head>,
    stamp: String,
    whole: Option<String>,
    lean: Option<String>,
}

#[derive(Debug)]
struct Head {
    window: Window,
    lean: Option<Vec<u8>>,
}

impl Files {
    /// Returns the folder of copies and sockets, created on first use.
    pub(super) fn folder(&mut self) -> Result<&Path, ExactError> {
        let folder = match self.folder.take() {
            Some(folder) => folder,
            None => OwnedFolder::create(FOLDER).map_err(ExactError::Folder)?,
        };
        Ok(self.folder.insert(folder).path())
    }

    /// Stamps the parts of a file that an answer depends on: its header and its length, not its path.
    pub(super) fn stamp(&mut self, path: &str, form: Form) -> Result<String, ExactError> {
        let files = self.read(path)?;
        Ok(match form {
            Form::Lean if files.has_vocabulary() => format!("lean {}", files.stamp),
            _ => files.stamp.clone(),
        })
    }

    /// Copies a file and its set; the path of the first copy.
    pub(super) fn copy(&mut self, path: &str, form: Form) -> Result<String, ExactError> {
        let number = self.models.len();
        let folder = self.folder()?.to_owned();
        let files = self.read(path)?;
        let form = if files.has_vocabulary() { form } else { Form::Whole };
        let (made, name) = match form {
            Form::Whole => (&files.whole, "whole"),
            Form::Lean => (&files.lean, "lean"),
        };
        if let Some(made) = made {
            return Ok(made.clone());
        }
        let first = files.write(&folder.join(format!("{number}-{name}")), form)?;
        match form {
            Form::Whole => files.whole = Some(first.clone()),
            Form::Lean => files.lean = Some(first.clone()),
        }
        Ok(first)
    }

    fn read(&mut self, path: &str) -> Result<&mut ModelFiles, ExactError> {
        if !self.models.contains_key(path) {
            self.models.insert(path.to_owned(), ModelFiles::read(path)?);
        }
        self.models
            .get_mut(path)
            .ok_or_else(|| ExactError::Folder(io::ErrorKind::NotFound.into()))
    }
}

impl ModelFiles {
    fn read(path: &str) -> Result<Self, ExactError> {
        let windows = read_heads(Path::new(path), Dialect::Ggml)?;
        let stamps = windows.iter().map(stamp).collect::<Result<Vec<_>, _>>()?;
        let head = |window: Window| {
            Ok(Head {
                lean: window.without_vocabulary()?,
                window,
            })
        };
        Ok(Self {
            heads: windows.into_iter().map(head).collect::<Result<_, ExactError>>()?,
            stamp: format!("gguf:{}", stamps.join("+")),
            whole: None,
            lean: None,
        })
    }

    fn has_vocabulary(&self) -> bool {
        self.heads.iter().any(|head| head.lean.is_some())
    }

    fn write(&self, folder: &Path, form: Form) -> Result<String, ExactError> {
        let mut first: Option<PathBuf> = None;
        for head in &self.heads {
            let path = head.window.path();
            let copy = folder.join(path.file_name().unwrap_or_default());
            let whole = head.window.head()?;
            let lean = head.lean.as_deref().filter(|_| form == Form::Lean);
            // The engine compares the file size with its tensors, so a shorter header must shorten the file
            // as much.
            let length = head.window.length() - widened(whole) + widened(lean.unwrap_or(whole));
            let copied =
                fs::create_dir_all(folder).and_then(|()| write(&copy, lean.unwrap_or(whole), length));
            copied.map_err(|error| ExactError::Copy {
                from: path.to_owned(),
                to: copy.clone(),
                error,
            })?;
            first.get_or_insert(copy);
        }
        Ok(first.unwrap_or_default().to_string_lossy().into_owned())
    }
}

fn widened(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn write(path: &Path, head: &[u8], length: u64) -> io::Result<()> {
    // Never follows or truncates an existing file: the folder is fresh.
    let mut file = File::create_new(path)?;
    file.write_all(head)?;
    file.set_len(length)
}

/// Two different 64-bit hashes: an answer that is another file's must not be found by chance.
fn stamp(window: &Window) -> Result<String, ExactError> {
    let bytes = window.head()?;
    let hash = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        bytes.hash(&mut hasher);
        hasher.finish()
    };
    Ok(format!("{:016x}{:016x}/{}", hash(1), hash(2), window.length()))
}
