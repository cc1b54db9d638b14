//! `plimsoll synth`: writes models that look real and cost nothing.
//!
//! The large shapes are a header with a hole behind it: a terabyte that takes a few megabytes of disk, long
//! enough for any engine to load and for any planner to plan. The tiny ones have weights and are served by any
//! llama.cpp in milliseconds. `--dense` fills the holes too, where the numbers must be on the disk.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use plimsoll_base::Bytes;
use plimsoll_model::gguf::{Draft, DraftTensor};
use plimsoll_model::split::SplitName;
use plimsoll_specimens::{Contents, ExpertSizes, Recipe};

/// The widest set that a name of five digits and a reader's patience allow.
const MOST_SHARDS: i64 = 999;

#[derive(Debug, Args)]
#[command(after_help = shapes_help())]
pub(crate) struct Arguments {
    /// What to imitate; the shapes are listed below
    #[arg(value_parser = PossibleValuesParser::new(listed().map(|(name, _)| *name)), hide_possible_values = true)]
    shape: String,
    /// The file to write; with --shards the names are made from it
    out: PathBuf,
    /// Write a set of N files
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=MOST_SHARDS))]
    shards: u16,
    /// Give the model N layers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    layers: Option<u32>,
    /// Give each layer that has experts N of them, and no fewer than are used at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    experts: Option<u32>,
    /// State a training context of N tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// Give the vocabulary N tokens; the tiny shapes have no fewer than their words need
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    vocab: Option<u32>,
    /// Draw the weights from another seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write all data, random where F32, F16, Q8_0 or Q4_0, instead of leaving holes
    #[arg(long)]
    dense: bool,
}

fn shapes_help() -> String {
    let line = |(name, description): &(&str, &str)| format!("  {name:<16} {description}");
    let lines: Vec<String> = listed().map(line).collect();
    format!("Shapes:\n{}", lines.join("\n"))
}

fn listed() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    plimsoll_specimens::SHAPES
        .iter()
        .chain(plimsoll_specimens::SPECIMENS)
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("there is no shape `{name}`; `plimsoll synth --help` lists them")]
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
    #[error("cannot write to stdout: {0}")]
    Print(#[from] io::Error),
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    if let Some(draft) = plimsoll_specimens::specimen(&arguments.shape) {
        return write_specimen(arguments, &draft);
    }
    let recipe = recipe(arguments)?;
    let holes = recipe.contents == Contents::Noise && !arguments.dense;
    let drafts = recipe.files(arguments.shards);
    for (path, draft) in names(&arguments.out, arguments.shards)?.iter().zip(&drafts) {
        let length = write(path, draft, (!holes).then_some(&recipe))?;
        let hole = if holes { ", no weights" } else { "" };
        let (path, tensors) = (path.display(), draft.tensors.len());
        writeln!(anstream::stdout(), "{path}: {tensors} tensors, {length}{hole}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write_specimen(arguments: &Arguments, draft: &Draft) -> Result<ExitCode, Error> {
    let sizes = [
        arguments.layers,
        arguments.experts,
        arguments.context,
        arguments.vocab,
    ];
    let changed = sizes.iter().any(Option::is_some) || arguments.seed.is_some();
    if changed || arguments.dense || arguments.shards != 1 {
        let name = arguments.shape.clone();
        return Err(Error::Fixed { name });
    }
    let length = write(&arguments.out, draft, None)?;
    let (path, tensors) = (arguments.out.display(), draft.tensors.len());
    writeln!(
        anstream::stdout(),
        "{path}: {tensors} tensors, {length}, no weights"
    )?;
    Ok(ExitCode::SUCCESS)
}

fn recipe(arguments: &Arguments) -> Result<Recipe, Error> {
    let name = || arguments.shape.clone();
    let recipe = plimsoll_specimens::shape(&arguments.shape).ok_or_else(|| Error::Shape { name: name() })?;
    Ok(Recipe {
        experts: experts(&recipe, arguments.experts),
        layers: arguments.layers.unwrap_or(recipe.layers),
        context: arguments.context.unwrap_or(recipe.context),
        vocabulary: arguments.vocab.unwrap_or(recipe.vocabulary),
        seed: arguments.seed.unwrap_or(recipe.seed),
        ..recipe
    })
}

/// Models without experts get none.
fn experts(recipe: &Recipe, wanted: Option<u32>) -> ExpertSizes {
    let sizes = recipe.experts;
    let count = match wanted {
        Some(count) if sizes.count > 0 => count.max(sizes.used),
        _ => sizes.count,
    };
    ExpertSizes { count, ..sizes }
}

/// `out` alone, or the set's names: those that `out` belongs to, or made from it.
fn names(out: &Path, shards: u16) -> Result<Vec<PathBuf>, Error> {
    if shards == 1 {
        return Ok(vec![out.to_owned()]);
    }
    let unusable = || Error::Name { path: out.to_owned() };
    let text = out.to_str().ok_or_else(unusable)?;
    let prefix = match SplitName::parse(text) {
        Some(name) => name.prefix,
        None => text
            .strip_suffix(".gguf")
            .filter(|prefix| !prefix.is_empty())
            .ok_or_else(unusable)?,
    };
    let first = SplitName {
        prefix,
        number: 1,
        count: shards,
    };
    Ok(first.all().map(PathBuf::from).collect())
}

/// Writes a whole model into one file; gives its length.
pub(super) fn write_model(path: &Path, recipe: &Recipe) -> Result<Bytes, Error> {
    let mut length = Bytes::ZERO;
    for draft in recipe.files(1) {
        length = write(path, &draft, Some(recipe))?;
    }
    Ok(length)
}

/// Writes one file, with weights if there is a recipe for them; gives its length.
fn write(path: &Path, draft: &Draft, weights: Option<&Recipe>) -> Result<Bytes, Error> {
    let file = File::create(path).map_err(|error| Error::Create {
        path: path.to_owned(),
        error,
    })?;
    fill(&file, draft, weights).map_err(|error| Error::Write {
        path: path.to_owned(),
        error,
    })
}

/// The length is set first: it fails at once where the disk or file system cannot hold the file, and whatever
/// is not written after it reads as zeros.
fn fill(file: &File, draft: &Draft, weights: Option<&Recipe>) -> io::Result<Bytes> {
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
    use std::os::unix::fs::MetadataExt;

    use clap::Parser;
    use plimsoll_model::gguf::Header;
    use plimsoll_model::{Dialect, Model, split};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn synth(line: &[&str]) -> Result<ExitCode, Error> {
        run(&Line::try_parse_from([&["synth"], line].concat())
            .unwrap()
            .arguments)
    }

    fn read(paths: &[String]) -> Model {
        let files: Vec<(Vec<u8>, u64)> = paths
            .iter()
            .map(|path| (head(path), std::fs::metadata(path).unwrap().len()))
            .collect();
        let headers: Vec<Header<'_>> = files
            .iter()
            .map(|(head, length)| Header::read(head, *length, Dialect::Ggml).unwrap())
            .collect();
        Model::from_headers(&headers).unwrap()
    }

    fn head(path: &str) -> Vec<u8> {
        use std::io::Read;
        let mut head = Vec::new();
        File::open(path)
            .unwrap()
            .take(16 << 20)
            .read_to_end(&mut head)
            .unwrap();
        head
    }

    #[test]
    fn a_large_model_takes_no_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("70b.gguf");
        let name = path.to_str().unwrap().to_owned();
        synth(&["llama-70b", &name]).unwrap();
        let metadata = path.metadata().unwrap();
        assert!(metadata.len() > 39 << 30, "{}", metadata.len());
        assert!(metadata.blocks() * 512 < 16 << 20, "{}", metadata.blocks());
        assert_eq!(read(&[name]).hyper.layers, 80);
    }

    #[test]
    fn a_set_of_files_reads_as_one_model() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k.gguf").to_str().unwrap().to_owned();
        synth(&[
            "kimi-k2",
            &path,
            "--shards",
            "6",
            "--vocab",
            "1000",
            "--context",
            "8192",
        ])
        .unwrap();
        let first = folder.path().join("k-00001-of-00006.gguf");
        let model = read(&split::siblings(first.to_str().unwrap()));
        assert_eq!((model.hyper.vocabulary, model.hyper.context_train), (1000, 8192));
        assert_eq!(model.tensors.last().unwrap().file, 5);
    }

    #[test]
    fn experts_are_as_many_as_asked_for_but_never_fewer_than_are_used() {
        let folder = tempfile::tempdir().unwrap();
        let made = |shape: &str, experts: &str| {
            let path = folder.path().join(experts).to_str().unwrap().to_owned();
            synth(&[
                shape,
                &path,
                "--layers",
                "2",
                "--vocab",
                "1000",
                "--experts",
                experts,
            ])
            .unwrap();
            let model = read(&[path]);
            let gate = model
                .tensors
                .iter()
                .find(|tensor| tensor.name == "blk.1.ffn_gate_exps.weight");
            gate.map(|tensor| tensor.shape[2])
        };
        assert_eq!(made("kimi-k2", "32"), Some(32));
        assert_eq!(made("kimi-k2", "2"), Some(8));
        assert_eq!(made("m8", "64"), None);
    }

    #[test]
    fn tiny_models_have_weights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.gguf").to_str().unwrap().to_owned();
        synth(&["tiny", &path, "--layers", "1"]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let zeros = bytes.iter().filter(|&&byte| byte == 0).count();
        assert!(
            bytes.len() > 500_000 && zeros < bytes.len() / 2,
            "{zeros} of {}",
            bytes.len()
        );
    }

    #[test]
    fn a_set_needs_a_name_that_ends_in_gguf() {
        let error = synth(&["tiny", "/nowhere/model.bin", "--shards", "2"]).unwrap_err();
        assert!(error.to_string().contains("end it with .gguf"), "{error}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = synth(&["tiny", "/nowhere/at/all.gguf"]).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot create `/nowhere/at/all.gguf`"),
            "{error}"
        );
    }
}
