//! Reads what client listings say of a model, together with its memory forecast.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use plimsoll_base::{Bytes, Card, MemoryModel};
use plimsoll_config::ConfiguredModel;
use plimsoll_flags::{ModelParams, ProgramKind};
use plimsoll_model::{Dialect, Model};
use plimsoll_probe::headers::read_model;

use super::{named, remote};
use plimsoll_route::{ModelAbility, ModelProfile};

/// Profile of `entry` on these cards; `None` for an engine whose flags or files are not read.
pub(crate) fn profile(
    entry: &ConfiguredModel,
    demand: &dyn MemoryModel,
    cards: &[Card],
) -> Option<ModelProfile> {
    let flags = named::flags(entry, entry.launch.options()?).ok()?;
    let params = flags.params(ProgramKind::LlamaServer).ok()?;
    let read = |dialect| match &params.model {
        Some(path) => read_model(path.as_ref(), dialect).ok(),
        None => remote::models(entry, &flags, &params, dialect).main,
    };
    // A type of ik_llama.cpp's own has no row in llama.cpp's table.
    let model = read(Dialect::Ggml).or_else(|| read(Dialect::Ik))?;
    let path = params.model.as_deref().map(Path::new);
    let need = (!demand.alone()).then(|| demand.on(cards).ok()).flatten();
    let described = described(&model, &params);
    let file_size = path.and_then(|path| path.metadata().ok()).map(|file| Bytes::new(file.len()));
    Some(ModelProfile {
        // The first of several files is smaller than their tensors.
        file_size: file_size.unwrap_or_default().max(described.size),
        parameters_set: plimsoll_import::ollama_parameters(&flags),
        context: demand.curve(cards).ok().map(|curve| curve.slots.each),
        need: need.map(|shares| shares.iter().map(|(_, bytes)| *bytes).sum()),
        digest: digest(&entry.name, path),
        modified: path.and_then(|path| path.metadata().ok()?.modified().ok()),
        ..described
    })
}

fn described(model: &Model, params: &ModelParams) -> ModelProfile {
    let parameters = model.tensors.iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
    let traits = &model.traits;
    ModelProfile {
        architecture: model.architecture.clone(),
        base_name: traits.base_name.clone().or_else(|| model.name.clone()).unwrap_or_default(),
        parameters,
        size_label: traits.size_label.clone().unwrap_or_else(|| size_label(parameters)),
        quantization: quantization(model),
        trained_context: Some(model.hyper.context_train.into()).filter(|context| *context > 0),
        embedding_length: model.hyper.embedding.into(),
        capabilities: capabilities(model, params),
        size: model.tensors.iter().map(|tensor| tensor.bytes).sum(),
        ..ModelProfile::default()
    }
}

fn capabilities(model: &Model, params: &ModelParams) -> Vec<ModelAbility> {
    // With `--embeddings` a llama-server embeds and does nothing else; an encoder can do nothing else.
    if params.embeddings || !model.hyper.causal {
        return vec![ModelAbility::Embedding];
    }
    let traits = &model.traits;
    let sees = params.projector.is_some() || params.projector_remote.is_some();
    let all = [
        (ModelAbility::Completion, true),
        (ModelAbility::Tools, traits.calls_tools),
        (ModelAbility::Thinking, traits.reasons),
        (ModelAbility::Vision, sees),
        (ModelAbility::Insert, traits.fills_gaps),
    ];
    all.into_iter().filter_map(|(capability, has)| has.then_some(capability)).collect()
}

fn quantization(model: &Model) -> &'static str {
    let mut bytes: BTreeMap<&'static str, Bytes> = BTreeMap::new();
    for tensor in &model.tensors {
        *bytes.entry(tensor.kind.name).or_default() += tensor.bytes;
    }
    bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map_or("", |(name, _)| name)
}

fn size_label(parameters: u64) -> String {
    let tenths = |unit: u64| (parameters.saturating_add(unit / 20)) / (unit / 10);
    let (tenths, letter) = match parameters {
        1_000_000_000.. => (tenths(1_000_000_000), 'B'),
        1_000_000.. => (tenths(1_000_000), 'M'),
        _ => (tenths(1000), 'K'),
    };
    format!("{}.{}{letter}", tenths / 10, tenths % 10)
}

/// DECISION: the digest is not that of the contents, which would mean to read every file. Clients compare it
/// to see that a model changed, and Ollama's own prints its first twelve digits.
fn digest(name: &str, path: Option<&Path>) -> String {
    let file = path.and_then(|path| path.metadata().ok());
    let stamp = file.map(|file| (file.len(), file.modified().ok()));
    let part = |number: u32| {
        let mut hasher = DefaultHasher::new();
        (number, name, path, &stamp).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_reported_as_people_write_it() {
        for (parameters, reported) in [
            (8_030_261_248, "8.0B"),
            (494_000_000, "494.0M"),
            (96_512, "96.5K"),
            (u64::MAX, "18446744073.7B"),
        ] {
            assert_eq!(size_label(parameters), reported);
        }
    }

    #[test]
    fn a_digest_has_the_length_that_clients_cut() {
        let digest = digest("a", None);
        assert_eq!(digest.len(), 64);
        assert_ne!(digest, super::digest("b", None));
    }
}
