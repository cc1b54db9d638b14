//! Input of a plan (model, flags, engine, program and cards), and errors for requests that every engine would
//! reject.
//!
//! Programs of the same engine reserve different amounts of memory for the same flags.

use plimsoll_base::Card;
use plimsoll_flags::{CARD_INTERFACES, EngineBuild, ModelParams, ProgramKind};
use plimsoll_model::Model;

use crate::{MeasuredContext, Processor};

/// Everything that a plan depends on. `cards` are the cards visible to the engine's process, in its order.
#[derive(Clone, Copy, Debug)]
pub struct PlanRequest<'a> {
    pub model: &'a Model,
    pub draft: Option<&'a Model>,
    pub projector: Option<&'a Model>,
    pub params: &'a ModelParams,
    pub engine: EngineBuild,
    pub program: ProgramKind,
    pub cards: &'a [Card],
    /// Measured driver contexts, which are preferred to the published values.
    pub contexts: &'a [MeasuredContext],
    /// The processor that computes with weights in host memory; `None` if it is not known.
    pub processor: Option<Processor>,
}

/// Reason why a request cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    // Each message names the flag to change, because the user sees nothing else.
    #[error("-dev names `{name}`, but the number of cards is {cards}; use {of}0 to {of}{last}, or `none`",
        of = interface(name), last = cards.saturating_sub(1))]
    UnknownDevice { name: String, cards: usize },
    #[error("-mg {main} names no card; cards are numbered from 0, and there are only {cards}")]
    UnknownMainGpu { main: u32, cards: usize },
    #[error("a {kind} V cache needs flash attention, which is off ({why}); use -fa on, or -ctv f16")]
    QuantisedCacheNeedsFlashAttention { kind: &'static str, why: &'static str },
    #[error(
        "a cache row of {elements} elements cannot be divided into {kind} blocks of {block} elements; use \
        another cache type"
    )]
    CacheRow { kind: &'static str, elements: u64, block: u64 },
    #[error(
        "-sm row does not work with CUDA since about b9900: the backend no longer splits buffers; use -sm layer"
    )]
    RowSplit,
    #[error("-ot pattern `{pattern}` cannot be read: {why}")]
    OverridePattern { pattern: String, why: String },
    #[error("-ot assigns tensors to `{buffer}`, but the planned cards have no such buffer; use CPU or CUDA0 \
        to CUDA{last}", last = cards.saturating_sub(1))]
    OverrideBuffer { buffer: String, cards: usize },
    #[error("`{what}` of {value} in the header is more than any model has; the file is damaged")]
    Header { what: &'static str, value: u64 },
}

/// The interface that a device's name begins with; CUDA, where the name is of none.
fn interface(name: &str) -> &str {
    CARD_INTERFACES.into_iter().find(|interface| name.starts_with(interface)).unwrap_or("CUDA")
}

/// The flags for a draft model, converted to flags of an ordinary model.
pub(crate) fn draft_params(params: &ModelParams) -> ModelParams {
    ModelParams {
        gpu_layers: params.draft_gpu_layers,
        cache_key: params.draft_cache_key,
        cache_value: params.draft_cache_value,
        overrides: params.draft_overrides.clone(),
        experts_on_host: params.draft_experts_on_host,
        // Without -devd a draft model goes to the devices of the model.
        devices: if params.draft_devices.is_empty() { &params.devices } else { &params.draft_devices }
            .clone(),
        ..params.clone()
    }
}

/// The flags for the context of the model's own prediction layers: the model's, with a draft's cache types
/// (`speculative.cpp: common_base_params_to_speculative @ b11063`).
pub(crate) fn prediction_params(params: &ModelParams) -> ModelParams {
    ModelParams { cache_key: params.draft_cache_key, cache_value: params.draft_cache_value, ..params.clone() }
}

#[cfg(test)]
mod tests {
    use super::EngineBuild;

    #[test]
    fn a_build_is_read_from_either_spelling_of_a_version() {
        for (text, number) in [
            ("10605 (c1d0e7a)", Some(Some(10_605))),
            ("b10605", Some(Some(10_605))),
            ("llama-b9000", Some(Some(9_000))),
            ("8799-abc", Some(Some(8_799))),
            ("0.5.0-dev (build 11063, commit c1d0e7a)", Some(Some(11_063))),
            ("0.7.0 (build 11669, commit Debian)", Some(Some(11_669))),
            ("0.7.0", Some(None)),
            ("0.5.0-dev (build 0, commit unknown)", Some(None)),
            ("0 (unknown)", Some(None)),
            ("0.5", None),
            ("xllamacpp-2026.10.11549 (build 11549, commit unknown)", Some(Some(11_549))),
            ("0.x.1 (build seven)", None),
            ("0.5.0 (build x)", None),
            ("99999999999", None),
            ("-1", None),
            ("", None),
            ("latest", None),
        ] {
            assert_eq!(EngineBuild::number_in(text), number, "{text}");
        }
    }
}
