//! Chooses test models for the drift check: synthetic headers with a real model's sizes, or headers built
//! from the engine's messages.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use plimsoll_model::gguf::{Datum, DraftHeader};
use plimsoll_specimens::{GrownModel, Growth, SHAPES, shape, specimen, specimens, write_header};

use super::DriftError;
use super::ask::Asker;
use super::engines::Engine;

/// Messages after which a header that still grows is given up.
const MOST_REQUESTED: u32 = 400;

/// A model file.
#[derive(Clone, Debug)]
pub(super) struct RequestedModel {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) is_grown: bool,
}

/// An architecture without a model.
#[derive(Debug)]
pub(super) enum Ungrown {
    /// The engine does not know the name.
    Unknown,
    /// The engine's message, to which the growth has no answer.
    Stuck(String),
    Failed(DriftError),
}

impl From<DriftError> for Ungrown {
    fn from(error: DriftError) -> Self {
        Self::Failed(error)
    }
}

/// The models of an architecture; those of `only` alone, where it names some of them.
pub(super) fn of(
    asker: &Asker,
    engine: &Engine,
    name: &str,
    only: &[String],
) -> Result<Vec<RequestedModel>, Ungrown> {
    let chosen: Vec<&str> = only
        .iter()
        .map(String::as_str)
        .filter(|model| architecture(model).as_deref() == Some(name))
        .collect();
    let of_name = KNOWN.iter().filter(|(_, architecture)| chosen.is_empty() && architecture == name);
    let models = of_name.map(|(model, _)| *model).chain(chosen.iter().copied());
    let models = models.filter_map(|model| Some((model, header(model)?)));
    let models: Vec<RequestedModel> =
        models.map(|(model, header)| written(asker, model, &header)).collect::<Result<_, _>>()?;
    if models.is_empty() { grown(asker, engine, name).map(|model| vec![model]) } else { Ok(models) }
}

/// A file that an engine takes, from an earlier engine if it has the same header.
fn grown(asker: &Asker, engine: &Engine, name: &str) -> Result<RequestedModel, Ungrown> {
    let (shared, own) = (format!("grown-{name}"), format!("grown-{name}-{}", engine.name));
    for file in [&own, &shared] {
        let path = asker.models().join(format!("{file}.gguf"));
        if path.exists() && asker.load(engine, &path)?.contains("constructing llama_context") {
            return Ok(RequestedModel { name: "grown".to_owned(), path, is_grown: true });
        }
    }
    let taken = asker.models().join(format!("{shared}.gguf")).exists();
    let file = if taken { own } else { shared };
    let mut model = GrownModel::new(name);
    for _ in 0..MOST_REQUESTED {
        let RequestedModel { path, .. } = written(asker, &file, model.header())?;
        let log = asker.load(engine, &path)?;
        match model.hear(&log) {
            Growth::Whole => return Ok(RequestedModel { name: "grown".to_owned(), path, is_grown: true }),
            Growth::Grown => {}
            Growth::Stuck(words) => {
                // No later engine is to begin with half a header.
                let _ = fs::remove_file(path);
                let unknown = words.contains("unknown model architecture");
                return Err(if unknown { Ungrown::Unknown } else { Ungrown::Stuck(words) });
            }
        }
    }
    Err(Ungrown::Stuck(format!("still incomplete after {MOST_REQUESTED} messages")))
}

fn written(asker: &Asker, name: &str, header: &DraftHeader) -> Result<RequestedModel, DriftError> {
    let path = asker.models().join(format!("{name}.gguf"));
    let wrong = |error: plimsoll_specimens::WriteError| DriftError::File {
        path: path.clone(),
        error: std::io::Error::other(error),
    };
    write_header(&path, header).map_err(wrong)?;
    Ok(RequestedModel { name: name.to_owned(), path, is_grown: false })
}

/// Every specimen that is a language model, with its architecture.
static KNOWN: LazyLock<Vec<(&'static str, String)>> = LazyLock::new(|| {
    let shapes = SHAPES.iter().map(|(name, _)| *name).filter(|name| !name.starts_with("tiny"));
    let names = shapes.chain(specimens().map(|(name, _)| name));
    let known = names.filter_map(|name| Some((name, architecture(name)?)));
    known.filter(|(_, architecture)| architecture != "clip").collect()
});

fn header(name: &str) -> Option<DraftHeader> {
    specimen(name).or_else(|| shape(name)?.files(1).pop())
}

/// The architecture of a specimen.
pub(super) fn architecture(name: &str) -> Option<String> {
    header(name)?.entries.into_iter().find_map(|(key, datum)| match datum {
        Datum::Text(name) if key == "general.architecture" => String::from_utf8(name).ok(),
        _ => None,
    })
}

/// Architectures that a specimen has.
pub(super) fn architectures() -> BTreeSet<String> {
    KNOWN.iter().map(|(_, architecture)| architecture.clone()).collect()
}
