//! Starts a stand-in of a hub for the page's tests: a repository of 40 quantisations, one with a projector,
//! and one that asks for a token.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use fake_hub::{FakeHub, Fault, HostedFile};
use plimsoll_model::TensorType;
use plimsoll_model::gguf::DraftHeader;
use plimsoll_model::types::{F16, Q2_K, Q3_K, Q4_0, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0};

const MANY: &str = "user/many-GGUF";
/// Types with their names; each is offered in as many ways of quantising as there are endings.
const TYPES: [(&str, TensorType); 8] = [
    ("Q2_K", Q2_K),
    ("Q3_K", Q3_K),
    ("Q4_0", Q4_0),
    ("Q4_K", Q4_K),
    ("Q5_0", Q5_0),
    ("Q5_K", Q5_K),
    ("Q6_K", Q6_K),
    ("Q8_0", Q8_0),
];
const ENDINGS: [&str; 5] = ["S", "M", "L", "XL", "XXL"];

pub(super) fn start() -> io::Result<FakeHub> {
    let llama = named("l8")?;
    let mut names = Vec::new();
    for (at, (name, kind)) in TYPES.into_iter().enumerate() {
        for (richer, ending) in ENDINGS.into_iter().enumerate() {
            let file = HostedFile::of(&quantised(&llama, kind, at + richer));
            names.push((format!("m-{name}_{ending}.gguf"), file));
        }
    }
    let mut files: Vec<(&str, &str, HostedFile)> =
        names.iter().map(|(name, file)| (MANY, name.as_str(), file.clone())).collect();
    files.push(("user/vision-GGUF", "v-Q4_K_M.gguf", HostedFile::of(&llama)));
    files.push(("user/vision-GGUF", "mmproj-F16.gguf", HostedFile::of(&named("gemma3-4b-mmproj")?)));
    files.push(("user/gated-GGUF", "g-Q4_K_M.gguf", HostedFile::of(&llama).with(Fault::Gated)));
    FakeHub::start(files)
}

/// Writes a model's file for the page: its header, and a hole instead of the weights.
pub(super) fn write_model(path: &Path) -> io::Result<()> {
    let draft = named("l8")?;
    let header = draft.header();
    let length = u64::try_from(header.len()).map_err(io::Error::other)? + draft.data_length().get();
    fs::write(path, header)?;
    File::options().write(true).open(path)?.set_len(length)
}

fn named(name: &str) -> io::Result<DraftHeader> {
    let shape = || Some(plimsoll_specimens::shape(name)?.files(1).remove(0));
    plimsoll_specimens::specimen(name)
        .or_else(shape)
        .ok_or_else(|| io::Error::other(format!("no specimen is called {name}")))
}

/// The model with its matrices in another type, and some of them in a larger one.
fn quantised(model: &DraftHeader, kind: TensorType, richer: usize) -> DraftHeader {
    let mut draft = model.clone();
    let matrices = draft.tensors.iter_mut().filter(|tensor| tensor.shape.len() > 1);
    for (number, tensor) in matrices.enumerate() {
        tensor.kind = if number % 40 < richer { F16 } else { kind };
    }
    draft
}
