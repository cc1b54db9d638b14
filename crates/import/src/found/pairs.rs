//! Matches projectors, drafts and adapters with their models, by header, folder and name.

use std::collections::BTreeSet;
use std::path::Path;

use plimsoll_model::Model;

use super::kind::FileKind;
use super::names::stem;

/// Words in names that tell nothing of a family.
const WORDS: [&str; 14] = [
    "mmproj",
    "model",
    "gguf",
    "f16",
    "bf16",
    "f32",
    "draft",
    "mtp",
    "lora",
    "adapter",
    "eagle3",
    "dflash",
    "dspark",
    "projector",
];
/// Tokens in which the vocabularies of a draft and its model may differ (`common/speculative.cpp:
/// SPEC_VOCAB_MAX_SIZE_DIFFERENCE @ b10605`).
const VOCABULARY_DIFFERENCE: u32 = 128;

/// The models that a file belongs to, by their places in the list; `Err` has the reason why none does.
pub(super) fn matched(
    file: &Path,
    kind: &FileKind,
    drafts: Option<&Model>,
    models: &[(&Path, &Model)],
) -> Result<Vec<usize>, String> {
    let fits = |model: &Model| match kind {
        FileKind::Projector { width } => width.is_none_or(|width| width == model.hyper.embedding),
        FileKind::Adapter { architecture } => *architecture == model.architecture,
        _ => drafts.is_none_or(|draft| {
            draft.hyper.vocabulary.abs_diff(model.hyper.vocabulary) <= VOCABULARY_DIFFERENCE
        }),
    };
    let folder = file.parent().unwrap_or(Path::new(""));
    let near = (0..models.len()).filter(|&at| models[at].0.starts_with(folder) && fits(models[at].1));
    let near: Vec<usize> = near.collect();
    if near.is_empty() {
        return Err(format!("{} belongs to no model in its folder", noun(kind)));
    }
    let own = words(&stem(file));
    let shared = |at: &usize| words(&stem(models[*at].0)).intersection(&own).count();
    let most = near.iter().map(shared).max().unwrap_or_default();
    let best: Vec<usize> = near.into_iter().filter(|at| shared(at) == most).collect();
    let family = |at: &usize| {
        let Model { architecture, hyper, .. } = models[*at].1;
        (architecture, hyper.layers, hyper.embedding)
    };
    if best.iter().any(|at| family(at) != family(&best[0])) {
        return Err(format!(
            "{} may belong to several models; name it in the section of one in plimsoll.toml",
            noun(kind)
        ));
    }
    Ok(best)
}

fn noun(kind: &FileKind) -> &'static str {
    match kind {
        FileKind::Projector { .. } => "the projector",
        FileKind::Adapter { .. } => "the adapter",
        _ => "the draft model",
    }
}

fn words(stem: &str) -> BTreeSet<String> {
    let words = stem.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    words.filter(|word| !word.is_empty() && !WORDS.contains(&word.as_str())).collect()
}
