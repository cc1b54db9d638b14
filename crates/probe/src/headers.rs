//! Reader of the GGUF headers of a model's files.
//!
//! Plans need everything except the vocabulary, so they use an [`Excerpt`]. Only `--exact` needs the whole
//! header.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use plimsoll_model::gguf::{Excerpt, GgufError, Header};
use plimsoll_model::split::siblings;
use plimsoll_model::{Dialect, Model, ModelError};

/// Bytes that are read of a file at once where its vocabulary is passed over.
const PIECE: usize = 64 << 10;
const FIRST_WINDOW: u64 = 1 << 20;
/// Beyond this no real header goes; the largest vocabularies take a few mebibytes.
const LAST_WINDOW: u64 = 1 << 30;

#[derive(Debug, thiserror::Error)]
pub enum ReadModelError {
    #[error("cannot open {}: {error}", std::path::absolute(path).as_deref().unwrap_or(path).display())]
    Open { path: PathBuf, error: io::Error },
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: {error}", path.display())]
    Header { path: PathBuf, error: GgufError },
    #[error("{}: {error}", path.display())]
    Model { path: PathBuf, error: ModelError },
}

/// Reads the model of which `path` is the only or the first file.
pub fn read_model(path: &Path, dialect: Dialect) -> Result<Model, ReadModelError> {
    let mut piece = vec![0; PIECE];
    let files = each_file(path, |path| excerpt(path, dialect, &mut piece))?;
    let headers = files.iter().map(|(path, excerpt)| excerpt.header().map_err(wrong_in(path)));
    let headers = headers.collect::<Result<Vec<_>, _>>()?;
    let model = |error| ReadModelError::Model { path: path.to_owned(), error };
    Model::from_headers(&headers).map_err(model)
}

/// Reads the heads of all files of the set that `path` is the only or the first file of.
pub fn read_heads(path: &Path, dialect: Dialect) -> Result<Vec<HeaderWindow>, ReadModelError> {
    each_file(path, |path| HeaderWindow::open(path, dialect))
}

fn each_file<T>(
    path: &Path,
    mut read: impl FnMut(&Path) -> Result<T, ReadModelError>,
) -> Result<Vec<T>, ReadModelError> {
    // Without mmap, a file that shrinks gives an error instead of SIGBUS.

    // The files of a split model differ only in their number (`-00001-of-00003.gguf`), so the first name
    // gives them all.
    let files = siblings(&path.to_string_lossy()).into_iter();
    files.map(|name| read(Path::new(&name))).collect()
}

/// Reads the header of one file without its vocabulary; `piece` is what is read into.
fn excerpt(path: &Path, dialect: Dialect, piece: &mut Vec<u8>) -> Result<(PathBuf, Excerpt), ReadModelError> {
    let (file, length) = open(path)?;
    let mut excerpt = Excerpt::new(length, dialect);
    while let Some(wanted) = excerpt.wants() {
        let least = usize::try_from(wanted.end - wanted.start).unwrap_or(usize::MAX);
        if piece.len() < least {
            piece.resize(least, 0);
        }
        // More than is wanted is read, because the next thing wanted usually follows.
        let left = usize::try_from(length.saturating_sub(wanted.start)).unwrap_or(usize::MAX);
        let piece = &mut piece[..left.min(least.max(PIECE))];
        // pread(2) into memory of our own: a file that shrinks meanwhile gives an error, where a mapping
        // gives SIGBUS.
        let read = file.read_exact_at(piece, wanted.start);
        read.map_err(unread(path))?;
        excerpt.take(piece);
    }
    Ok((path.to_owned(), excerpt))
}

fn open(path: &Path) -> Result<(File, u64), ReadModelError> {
    let unopened = |error| ReadModelError::Open { path: path.to_owned(), error };
    let file = File::open(path).map_err(unopened)?;
    // The parser needs the length, to reject a header that claims more than the file holds.
    let length = file.metadata().map_err(unopened)?.len();
    Ok((file, length))
}

fn unread(path: &Path) -> impl Fn(io::Error) -> ReadModelError {
    |error| ReadModelError::Read { path: path.to_owned(), error }
}

fn wrong_in(path: &Path) -> impl Fn(GgufError) -> ReadModelError {
    |error| ReadModelError::Header { path: path.to_owned(), error }
}

/// Beginning of a file, long enough to contain its header.
#[derive(Debug)]
pub struct HeaderWindow {
    path: PathBuf,
    length: u64,
    dialect: Dialect,
    bytes: Vec<u8>,
}

impl HeaderWindow {
    fn open(path: &Path, dialect: Dialect) -> Result<Self, ReadModelError> {
        let (file, length) = open(path)?;
        let mut window = Self { path: path.to_owned(), length, dialect, bytes: Vec::new() };
        let mut wanted = FIRST_WINDOW;
        loop {
            window.grow(&file, wanted)?;
            match Header::read(&window.bytes, length, dialect) {
                // Doubled, so that a header of many small parts is not read again for each.
                Err(GgufError::Truncated { needed, .. }) if wanted < length.min(LAST_WINDOW) => {
                    wanted = needed.max(wanted * 2);
                }
                _ => return Ok(window),
            }
        }
    }

    fn grow(&mut self, file: &File, to: u64) -> Result<(), ReadModelError> {
        // Never beyond the file: an exact read fails there, while the parser can say which part is missing.
        let to = usize::try_from(to.min(self.length).min(LAST_WINDOW)).unwrap_or(usize::MAX);
        let from = self.bytes.len();
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(to.max(from), 0);
        let offset = u64::try_from(from).unwrap_or(u64::MAX);
        let read = file.read_exact_at(&mut bytes[from..], offset);
        read.map_err(unread(&self.path))?;
        self.bytes = bytes;
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The length of the whole file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The file up to where its data starts.
    pub fn head(&self) -> Result<&[u8], ReadModelError> {
        // The window may be longer than the header, because its last step was at least a doubling.
        let end = usize::try_from(self.header()?.data_offset).unwrap_or(usize::MAX);
        Ok(&self.bytes[..end.min(self.bytes.len())])
    }

    /// [`Self::head`] with its vocabulary taken out; `None` if it has none.
    pub fn without_vocabulary(&self) -> Result<Option<Vec<u8>>, ReadModelError> {
        Ok(self.header()?.without_vocabulary(&self.bytes))
    }

    fn header(&self) -> Result<Header<'_>, ReadModelError> {
        Header::read(&self.bytes, self.length, self.dialect).map_err(wrong_in(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_model_is_named_and_a_missing_one_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.gguf");
        let error = read_model(&path, Dialect::Ggml).unwrap_err();
        assert!(error.to_string().contains("x.gguf"), "{error}");
        std::fs::write(&path, "not a model").unwrap();
        let error = read_model(&path, Dialect::Ggml).unwrap_err();
        assert!(matches!(error, ReadModelError::Header { .. }), "{error}");
    }
}
