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
