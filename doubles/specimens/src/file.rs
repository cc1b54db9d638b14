//! Writes synthetic model files: GGUF headers followed by weights, or by a hole in their place.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use plimsoll_base::Bytes;
use plimsoll_model::gguf::{DraftHeader, DraftTensor};
use plimsoll_model::split::SplitName;

use super::{Contents, ExpertSizes, Recipe};

/// Departures from a shape as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Files of the set.
    pub shards: u16,
    pub layers: Option<u32>,
    pub experts: Option<u32>,
    /// Training context.
    pub context: Option<u32>,
    pub vocabulary: Option<u32>,
    pub seed: Option<u64>,
    /// Write all data instead of leaving holes.
    pub dense: bool,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            shards: 1,
            layers: None,
            experts: None,
            context: None,
            vocabulary: None,
            seed: None,
            dense: false,
        }
    }
}

/// A model that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("there is no shape `{name}`; `specimen --help` lists them")]
    Shape { name: String },
    #[error(
        "`{name}` is one header as it is; leave --shards, --layers, --experts, --context, --vocab, --seed and --dense out"
    )]
    Fixed { name: String },
    #[error("`{path}` is not a name that a set of files can be made from; end it with .gguf")]
    Name { path: PathBuf },
    #[error("cannot create `{path}`: {error}")]
    Create { path: PathBuf, error: io::Error },
    #[error("cannot write `{path}`: {error}")]
    Write { path: PathBuf, error: io::Error },
}

/// A file that was written; prints as `PATH: N tensors, LENGTH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub path: PathBuf,
    pub tensors: usize,
    pub length: Bytes,
    /// The data is a hole.
    pub hollow: bool,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hole = if self.hollow { ", no weights" } else { "" };
        let (path, tensors, length) = (self.path.display(), self.tensors, self.length);
        write!(f, "{path}: {tensors} tensors, {length}{hole}")
    }
}

/// Writes the files of a shape or specimen.
pub fn write(name: &str, out: &Path, changes: &Changes) -> Result<Vec<Written>, WriteError> {
    if let Some(draft) = super::specimen(name) {
        return if *changes == Changes::default() {
            Ok(vec![write_file(out, &draft, None)?])
        } else {
            Err(WriteError::Fixed { name: name.to_owned() })
        };
    }
    let recipe = super::shape(name).ok_or_else(|| WriteError::Shape { name: name.to_owned() })?;
    let recipe = changed(recipe, changes);
    let holes = recipe.contents == Contents::Noise && !changes.dense;
    let weights = (!holes).then_some(&recipe);
    let names = names(out, changes.shards)?;
    let drafts = recipe.files(changes.shards);
    let files = names.iter().zip(&drafts);
    files.map(|(path, draft)| write_file(path, draft, weights)).collect()
}

fn changed(recipe: Recipe, changes: &Changes) -> Recipe {
    let sizes = recipe.experts;
    let count = match changes.experts {
        // Models without experts get none; a router cannot pick more than there are.
        Some(count) if sizes.count > 0 => count.max(sizes.used),
        _ => sizes.count,
    };
    Recipe {
        experts: ExpertSizes { count, ..sizes },
        layers: changes.layers.unwrap_or(recipe.layers),
        context: changes.context.unwrap_or(recipe.context),
        vocabulary: changes.vocabulary.unwrap_or(recipe.vocabulary),
        seed: changes.seed.unwrap_or(recipe.seed),
        ..recipe
    }
}

/// `out` alone, or the set's names: those that `out` belongs to, or made from it.
fn names(out: &Path, shards: u16) -> Result<Vec<PathBuf>, WriteError> {
    if shards == 1 {
        return Ok(vec![out.to_owned()]);
    }
    let unusable = || WriteError::Name { path: out.to_owned() };
    let text = out.to_str().ok_or_else(unusable)?;
    let prefix = match SplitName::parse(text) {
        Some(name) => name.prefix,
        None => text.strip_suffix(".gguf").filter(|prefix| !prefix.is_empty()).ok_or_else(unusable)?,
    };
    let first = SplitName { prefix, number: 1, count: shards };
    Ok(first.all().map(PathBuf::from).collect())
}

/// Writes a header, with a hole behind it.
pub fn write_header(path: &Path, draft: &DraftHeader) -> Result<Written, WriteError> {
    write_file(path, draft, None)
}

/// Writes one file, with weights if there is a recipe for them.
fn write_file(path: &Path, draft: &DraftHeader, weights: Option<&Recipe>) -> Result<Written, WriteError> {
    let file = File::create(path).map_err(|error| WriteError::Create { path: path.to_owned(), error })?;
    let length =
        fill(&file, draft, weights).map_err(|error| WriteError::Write { path: path.to_owned(), error })?;
    Ok(Written { path: path.to_owned(), tensors: draft.tensors.len(), length, hollow: weights.is_none() })
}

/// The length is set first: that fails at once where the disk or file system cannot hold the file, and bytes
/// that are not written after it read as zeros.
fn fill(file: &File, draft: &DraftHeader, weights: Option<&Recipe>) -> io::Result<Bytes> {
    let header = draft.header();
    let start = Bytes::new(u64::try_from(header.len()).map_err(io::Error::other)?);
    let length = start + draft.data_length();
    file.set_len(length.get())?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    out.write_all(&header)?;
    if let Some(recipe) = weights {
        for (tensor, offset) in draft.tensors.iter().zip(draft.offsets()) {
            out.seek(SeekFrom::Start((start + offset).get()))?;
            write_tensor(&mut out, recipe, tensor)?;
        }
    }
    out.flush()?;
    Ok(length)
}

fn write_tensor(out: &mut impl Write, recipe: &Recipe, tensor: &DraftTensor) -> io::Result<()> {
    recipe.weights(tensor).try_for_each(|piece| out.write_all(&piece))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;

    use plimsoll_model::gguf::Header;
    use plimsoll_model::{Dialect, Model, split};

    use super::*;

    fn read(paths: &[String]) -> Model {
        let files: Vec<(Vec<u8>, u64)> =
            paths.iter().map(|path| (head(path), std::fs::metadata(path).unwrap().len())).collect();
        let headers: Vec<Header<'_>> =
            files.iter().map(|(head, length)| Header::read(head, *length, Dialect::Ggml).unwrap()).collect();
        Model::from_headers(&headers).unwrap()
    }

    fn head(path: &str) -> Vec<u8> {
        let mut head = Vec::new();
        File::open(path).unwrap().take(16 << 20).read_to_end(&mut head).unwrap();
        head
    }

    #[test]
    fn a_large_model_takes_no_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("70b.gguf");
        write("llama-70b", &path, &Changes::default()).unwrap();
        let metadata = path.metadata().unwrap();
        assert!(metadata.len() > 39 << 30, "{}", metadata.len());
        assert!(metadata.blocks() * 512 < 16 << 20, "{}", metadata.blocks());
        assert_eq!(read(&[path.to_str().unwrap().to_owned()]).hyper.layers, 80);
    }

    #[test]
    fn a_set_of_files_reads_as_one_model() {
        let folder = tempfile::tempdir().unwrap();
        let changes =
            Changes { shards: 6, vocabulary: Some(1000), context: Some(8192), ..Changes::default() };
        write("kimi-k2", &folder.path().join("k.gguf"), &changes).unwrap();
        let first = folder.path().join("k-00001-of-00006.gguf");
        let model = read(&split::siblings(first.to_str().unwrap()));
        assert_eq!((model.hyper.vocabulary, model.hyper.context_train), (1000, 8192));
        assert_eq!(model.tensors.last().unwrap().file, 5);
    }

    #[test]
    fn experts_are_as_many_as_asked_for_but_never_fewer_than_are_used() {
        let folder = tempfile::tempdir().unwrap();
        let created = |shape: &str, experts: u32| {
            let path = folder.path().join(experts.to_string());
            let changes = Changes {
                layers: Some(2),
                vocabulary: Some(1000),
                experts: Some(experts),
                ..Changes::default()
            };
            write(shape, &path, &changes).unwrap();
            let model = read(&[path.to_str().unwrap().to_owned()]);
            let gate = model.tensors.iter().find(|tensor| tensor.name == "blk.1.ffn_gate_exps.weight");
            gate.map(|tensor| tensor.shape[2])
        };
        assert_eq!(created("kimi-k2", 32), Some(32));
        assert_eq!(created("kimi-k2", 2), Some(8));
        assert_eq!(created("m8", 64), None);
    }

    #[test]
    fn tiny_models_have_weights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.gguf");
        let changes = Changes { layers: Some(1), ..Changes::default() };
        write("tiny", &path, &changes).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let zeros = bytes.iter().filter(|&&byte| byte == 0).count();
        assert!(bytes.len() > 500_000 && zeros < bytes.len() / 2, "{zeros} of {}", bytes.len());
    }

    #[test]
    fn a_set_needs_a_name_that_ends_in_gguf() {
        let changes = Changes { shards: 2, ..Changes::default() };
        let error = write("tiny", Path::new("/nowhere/model.bin"), &changes).unwrap_err();
        assert!(error.to_string().contains("end it with .gguf"), "{error}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let path = Path::new("/nowhere/at/all.gguf");
        let error = write("tiny", path, &Changes::default()).unwrap_err();
        assert!(error.to_string().starts_with("cannot create `/nowhere/at/all.gguf`"), "{error}");
    }
}
