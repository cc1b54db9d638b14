//! Reads the GGUF headers of a model's files.
//!
//! Plans need everything except the vocabulary, so they use an [`Excerpt`]. Only an engine that is run for
//! `plan --exact` needs the whole header.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use plimsoll_base::Bytes;
use plimsoll_model::gguf::{Excerpt, GgufError, HEADER_LIMIT, Header};
use plimsoll_model::split::siblings;
use plimsoll_model::{Dialect, Model, ModelError, TokenTexts};

/// Bytes that are read of a file at once where its vocabulary is passed over.
const PIECE: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum ReadModelError {
    #[error("cannot open {}: {error}", std::path::absolute(path).as_deref().unwrap_or(path).display())]
    Open { path: PathBuf, error: io::Error },
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: the headers of the model's files are longer than {HEADER_LIMIT} together, which no model needs", path.display())]
    TooLong { path: PathBuf },
    #[error("{}: {error}", path.display())]
    Header { path: PathBuf, error: GgufError },
    #[error("{}: {error}", path.display())]
    Model { path: PathBuf, error: ModelError },
}

impl ReadModelError {
    /// The fault without the path, for a list that names the file already.
    pub fn fault(&self) -> String {
        match self {
            Self::Open { error, .. } | Self::Read { error, .. } => format!("it cannot be read: {error}"),
            Self::TooLong { .. } => {
                format!("its headers are longer than {HEADER_LIMIT}, which no model needs")
            }
            Self::Header { error, .. } => error.to_string(),
            Self::Model { error, .. } => error.to_string(),
        }
    }
}

/// Reads the model of which `path` is the only or the first file.
pub fn read_model(path: &Path, dialect: Dialect) -> Result<Model, ReadModelError> {
    let mut piece = vec![0; PIECE];
    let mut occupied = Bytes::ZERO;
    let files = each_file(path, |path| {
        let (path, excerpt) = excerpt(path, dialect, &mut piece)?;
        occupied += excerpt.occupied();
        if occupied > HEADER_LIMIT { Err(ReadModelError::TooLong { path }) } else { Ok((path, excerpt)) }
    })?;
    let headers = files.iter().map(|(path, excerpt)| excerpt.header().map_err(wrong_in(path)));
    let headers = headers.collect::<Result<Vec<_>, _>>()?;
    let model = |error| ReadModelError::Model { path: path.to_owned(), error };
    Model::from_headers(&headers).map_err(model)
}

/// Reads the header of one file, without its vocabulary, for what `read` takes from it.
pub fn read_header<T>(
    path: &Path,
    dialect: Dialect,
    read: impl FnOnce(&Header<'_>) -> Result<T, ModelError>,
) -> Result<T, ReadModelError> {
    let (_, excerpt) = excerpt(path, dialect, &mut vec![0; PIECE])?;
    let header = excerpt.header().map_err(wrong_in(path))?;
    read(&header).map_err(|error| ReadModelError::Model { path: path.to_owned(), error })
}

/// Reads the heads of all files of the set that `path` is the only or the first file of.
pub fn read_heads(path: &Path, dialect: Dialect) -> Result<Vec<FileHead>, ReadModelError> {
    each_file(path, |path| FileHead::read(path, dialect))
}

/// Reads the vocabulary of a model, which the first of its files has; `None` where none bounds the tokens of
/// a text.
pub fn read_token_texts(path: &Path, dialect: Dialect) -> Result<Option<TokenTexts>, ReadModelError> {
    let head = FileHead::read(path, dialect)?;
    let bytes = head.bytes()?;
    let header = Header::read(&bytes, head.length, dialect).map_err(wrong_in(path))?;
    TokenTexts::of(&header).map_err(wrong_in(path))
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
    let (mut file, length) = open(path)?;
    let mut excerpt = Excerpt::new(length, dialect);
    while let Some(wanted) = excerpt.wants() {
        let least = usize::try_from(wanted.end - wanted.start).unwrap_or(usize::MAX);
        if piece.len() < least {
            piece.resize(least, 0);
        }
        // More than is wanted is read, because the next thing wanted usually follows.
        let left = usize::try_from(length.saturating_sub(wanted.start)).unwrap_or(usize::MAX);
        let piece = &mut piece[..left.min(least.max(PIECE))];
        // Into memory of our own: a file that shrinks meanwhile gives an error, where a mapping gives SIGBUS.
        let read = file.seek(SeekFrom::Start(wanted.start)).and_then(|_| file.read_exact(piece));
        read.map_err(unread(path))?;
        excerpt.take(piece);
    }
    Ok((path.to_owned(), excerpt))
}

fn open(path: &Path) -> Result<(File, u64), ReadModelError> {
    let unopened = |error| ReadModelError::Open { path: path.to_owned(), error };
    let file = plimsoll_file::open(path).map_err(unopened)?;
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

/// The head of a model file: everything before its data.
#[derive(Debug)]
pub struct FileHead {
    pub path: PathBuf,
    /// Bytes of the whole file, and of its head.
    pub length: u64,
    pub end: u64,
    pub has_vocabulary: bool,
    /// Hash of the head's bytes.
    pub digest: u64,
    dialect: Dialect,
}

impl FileHead {
    fn read(path: &Path, dialect: Dialect) -> Result<Self, ReadModelError> {
        // One piece for both passes: the first access to each page of a larger buffer costs more than reading
        // it.
        let mut piece = vec![0; PIECE];
        let (_, excerpt) = excerpt(path, dialect, &mut piece)?;
        let header = excerpt.header().map_err(wrong_in(path))?;
        let (end, has_vocabulary) = (header.data_offset, header.has_vocabulary());
        let (file, length) = open(path)?;
        let (mut head, mut hasher) = (file.take(end), DefaultHasher::new());
        loop {
            match head.read(&mut piece).map_err(unread(path))? {
                0 => break,
                read => hasher.write(&piece[..read]),
            }
        }
        Ok(Self { path: path.to_owned(), length, end, has_vocabulary, digest: hasher.finish(), dialect })
    }

    /// The bytes of the head, which must not have changed.
    pub fn bytes(&self) -> Result<Vec<u8>, ReadModelError> {
        let (file, _) = open(&self.path)?;
        let mut bytes = Vec::new();
        file.take(self.end).read_to_end(&mut bytes).map_err(unread(&self.path))?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        if hasher.finish() != self.digest {
            return Err(unread(&self.path)(io::Error::other("it changed while it was being read")));
        }
        Ok(bytes)
    }

    /// The head of these bytes with its vocabulary taken out.
    pub fn without_vocabulary(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        Header::read(bytes, self.length, self.dialect).ok()?.without_vocabulary(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(windows)]
    fn the_name_of_a_device_is_refused_in_every_spelling_and_not_opened() {
        let refused = |name: &str| read_model(Path::new(name), Dialect::Ggml).unwrap_err().to_string();
        for name in ["NUL", r"c:\x\nul.txt", r"\\.\pipe\x", "com1", r"d\LPT9.log", "con ", "aux:"] {
            assert!(refused(name).contains("it is the name of a device"), "{name}");
        }
        for name in ["null", "com", "com10", r"c:\com1\model.gguf", "console.log", "lpt"] {
            assert!(!refused(name).contains("device"), "{name}");
        }
    }

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

    #[test]
    fn a_head_is_that_of_its_file_and_one_that_changed_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("x.gguf"), folder.path().join("y.gguf"));
        let file = plimsoll_model::tiny::TinyModel::default().file();
        std::fs::write(&path, &file).unwrap();
        let heads = read_heads(&path, Dialect::Ggml).unwrap();
        let head = &heads[0];
        let bytes = head.bytes().unwrap();
        assert_eq!(
            (bytes.len(), head.length),
            (usize::try_from(head.end).unwrap(), u64::try_from(file.len()).unwrap())
        );
        assert!(file.starts_with(&bytes) && head.has_vocabulary);
        let lean = head.without_vocabulary(&bytes).unwrap();
        assert!(lean.len() < bytes.len());
        // The data is no part of the head, and every byte before it is.
        let changed = |at: usize| {
            let mut changed = file.clone();
            changed[at] ^= 1;
            std::fs::write(&other, changed).unwrap();
            read_heads(&other, Dialect::Ggml).map(|heads| heads[0].digest)
        };
        assert_eq!(changed(file.len() - 1).unwrap(), head.digest);
        let name = bytes.windows(4).position(|text| text == b"tiny").unwrap();
        assert_ne!(changed(name).unwrap(), head.digest);
        for cut in [0, 10, bytes.len() - 1] {
            std::fs::write(&path, &file[..cut]).unwrap();
            let error = head.bytes().unwrap_err().to_string();
            assert!(error.contains("x.gguf: it changed while it was being read"), "{error}");
            assert!(read_heads(&path, Dialect::Ggml).is_err());
        }
    }
}
