//! Tells from its header whether a GGUF file is a model, a draft model, a projector or an adapter.

use plimsoll_model::gguf::Header;
use plimsoll_model::{Model, ModelError, Pooling};

/// Architectures of drafts that read another model's states (`llama-arch.cpp @ b11063`).
const DRAFTS: [&str; 3] = ["eagle3", "dflash", "dspark"];
/// Architectures that llama-server does not serve (`llama-arch.cpp: llm_arch_is_diffusion @ b10605`).
const DIFFUSION: [&str; 4] = ["dream", "llada", "llada-moe", "rnd1"];

/// Kind of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Model,
    /// It drafts for a model, and serves nobody by itself.
    Draft,
    /// Elements of the embeddings that it makes, where the header says.
    Projector {
        width: Option<u32>,
    },
    Adapter {
        architecture: String,
    },
    /// Neither a model nor a part of one.
    Other(&'static str),
}

/// The kind of a file, whose name tells a draft from a model.
pub(super) fn kind(header: &Header<'_>, stem: &str) -> Result<FileKind, ModelError> {
    let architecture = header.text("general.architecture")?.unwrap_or_default();
    let width = |part: &str| header.u32(&format!("clip.{part}.projection_dim"));
    Ok(match header.text("general.type")? {
        Some("adapter") => FileKind::Adapter { architecture: architecture.to_owned() },
        Some("imatrix") => FileKind::Other("it is an importance matrix for quantisers, not a model"),
        Some("mmproj") => FileKind::Projector { width: width("vision")?.or(width("audio")?) },
        _ if architecture == "clip" => FileKind::Projector { width: width("vision")?.or(width("audio")?) },
        _ if architecture == "imatrix" => {
            FileKind::Other("it is an importance matrix for quantisers, not a model")
        }
        _ if header.tensors.is_empty() && header.u32("split.count")?.unwrap_or(0) < 2 => {
            FileKind::Other("it has a vocabulary and no weights")
        }
        _ if DRAFTS.contains(&architecture) || drafts_by_name(stem) => FileKind::Draft,
        _ => FileKind::Model,
    })
}

fn drafts_by_name(stem: &str) -> bool {
    let words = || stem.split(|c: char| !c.is_ascii_alphanumeric());
    words().any(|word| word.eq_ignore_ascii_case("draft"))
        || words().next().is_some_and(|word| word.eq_ignore_ascii_case("mtp"))
}

/// Flags that a model's purpose asks for; `Err` has the reason for which it is not served.
pub(super) fn purpose(model: &Model) -> Result<Option<&'static str>, String> {
    let (architecture, hyper) = (model.architecture.as_str(), &model.hyper);
    if DIFFUSION.contains(&architecture) {
        return Err(format!("it is a diffusion model (`{architecture}`), which llama-server does not serve"));
    }
    if !hyper.known {
        return Err(format!(
            "its architecture `{architecture}` is not known here; to serve it, give it a section in plimsoll.toml"
        ));
    }
    Ok(match hyper.pooling {
        Some(Pooling::Rank) => Some("--reranking"),
        Some(_) => Some("--embeddings"),
        // Without a cache there is nothing to generate from.
        None if !hyper.cached => Some("--embeddings"),
        None => None,
    })
}
