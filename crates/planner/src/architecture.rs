//! Table of the model architectures whose plans were checked against llama.cpp (`src/models/*.cpp @ b10605`).
//!
//! For these, planned sizes equal the engine's in every recorded row (`data/measured`, `data/exact`).

use plimsoll_model::Model;

use crate::engine_context::EngineContext;
use crate::{EngineBuild, EngineKind};

/// Point of the graph at which the rows that need logits are selected from the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WantedRows {
    /// Within the last layer, before its residual sum.
    #[default]
    WithinLastLayer,
    /// Within the last layer, after its first residual sum.
    AfterFirstSum,
    AfterLastLayer,
    /// After the last norm, which keeps all rows because prediction layers read them.
    AfterLastNorm,
}

/// Properties of a graph that do not follow from the model's tensors; most graphs have none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GraphVariant {
    pub(super) wanted: WantedRows,
    /// The same in the graph of a prediction layer.
    pub(super) wanted_of_prediction: WantedRows,
    /// For each of a layer's two sums: the residual is the first operand, and the sum reuses its memory.
    pub(super) residual_first: [bool; 2],
    /// The norm of a layer is computed before anything else of the layer.
    pub(super) norm_first: bool,
    /// Attention and feed-forward read the same norm.
    pub(super) side_by_side: bool,
    /// Norms subtract the mean even without a bias.
    pub(super) subtracts_mean: bool,
    /// The weights of the chosen experts are not divided by their sum.
    pub(super) keeps_weights: bool,
    /// The router applies its softmax after the choice of experts.
    pub(super) late_softmax: bool,
    /// Values are normed without a weight before they are cached.
    pub(super) norms_values: bool,
    /// Builds before b9400 view the gates of attention in another shape, so their memory is not reused.
    pub(super) views_gates: bool,
    /// The delta net repeats its keys for every value head, with or without its kernel.
    pub(super) repeats_keys: bool,
    /// The norm after the layers is called `token_embd_norm`.
    pub(super) ends_with_token_norm: bool,
    /// A token has 4 positions, because images have a height and a width.
    pub(super) images: bool,
    /// Token embeddings are scaled without being expanded into the graph first.
    pub(super) scales_tokens: bool,
    /// Reranking pools the mean of a sequence, not one of its tokens.
    pub(super) ranks_mean: bool,
    /// The score of a reranker passes through a softmax.
    pub(super) softmaxes_rank: bool,
    /// An encoder that loads its token embedding as output matrix too.
    pub(super) loads_output: bool,
}

/// Recorded rows with which a graph was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparedGraph {
    Attending,
    /// Layers that carry a state.
    Recurrent,
    Not,
}

/// To add an architecture, add its row here once `data/measured` or `data/exact` holds rows of it.
fn row(name: &str) -> (ComparedGraph, GraphVariant) {
    use ComparedGraph::*;
    use WantedRows::*;
    type V = GraphVariant;
    let usual = V { wanted_of_prediction: AfterLastNorm, ..V::default() };
    match name {
        "llama" | "mistral3" | "qwen2" | "qwen3moe" | "gemma" | "gemma2" | "gemma3" | "deepseek2"
        | "internlm2" | "smollm3" | "ernie4_5" | "hunyuan-dense" | "glm4moe" | "bert" | "nomic-bert" => {
            (Attending, usual)
        }
        "qwen3" => (Attending, V { softmaxes_rank: true, ..usual }),
        "qwen3vl" => (Not, V { softmaxes_rank: true, ..usual }),
        // Models with attention alone.
        "gpt-oss" => (Attending, V { wanted: AfterLastLayer, late_softmax: true, ..usual }),
        "phi3" => (Attending, V { residual_first: [false, true], ..usual }),
        "command-r" => (Attending, V { side_by_side: true, subtracts_mean: true, ..usual }),
        "gemma3n" => (Attending, V { norms_values: true, ..usual }),
        "gemma-embedding" => (Attending, V { loads_output: true, ..usual }),
        "modern-bert" => (Attending, V { subtracts_mean: true, ranks_mean: true, ..usual }),
        "nomic-bert-moe" => (Not, V { keeps_weights: true, ..usual }),
        // Layers with a state.
        "mamba" | "mamba2" | "granitehybrid" => (Recurrent, usual),
        "jamba" => (Recurrent, V { residual_first: [true, true], keeps_weights: true, ..usual }),
        "nemotron_h" | "nemotron_h_moe" => (Recurrent, V { wanted: AfterLastNorm, ..usual }),
        "falcon-h1" => (Recurrent, V { wanted: AfterFirstSum, ..usual }),
        "lfm2" | "lfm2moe" => {
            (Recurrent, V { residual_first: [true, true], ends_with_token_norm: true, ..usual })
        }
        "qwen3next" => {
            let within = V { wanted_of_prediction: WithinLastLayer, ..usual };
            let next = V { wanted: AfterLastNorm, norm_first: true, ..within };
            (Recurrent, V { repeats_keys: true, views_gates: true, ..next })
        }
        "qwen35" | "qwen35moe" => {
            (Recurrent, V { wanted: AfterLastNorm, norm_first: true, images: true, ..usual })
        }
        // An unknown architecture is planned like the usual ones, as an estimate.
        _ => (Not, usual),
    }
}

impl GraphVariant {
    /// `old` is a build that picks the output rows early.
    pub(super) fn of(model: &Model, old: bool) -> Self {
        let (_, mut variant) = row(&model.architecture);
        // By prefix, because a new Gemma is likely to scale its tokens too.
        variant.scales_tokens = model.architecture.starts_with("gemma");
        variant.views_gates &= old;
        // Prediction layers, which read rows of their own, came after b8799 (`src/models/*.cpp @ b8799`).
        if old && matches!(variant.wanted, WantedRows::AfterLastLayer | WantedRows::AfterLastNorm) {
            variant.wanted = WantedRows::WithinLastLayer;
        }
        variant
    }
}

/// Builds that recurrent graphs were compared with; they changed somewhere between the two.
const RECURRENT_AT: u32 = 8_799;
const RECURRENT_FROM: u32 = 10_605;

/// First build compared for attention on the host and for a quantised cache of latent vectors.
const RARER_FROM: u32 = 10_605;

/// True if the compute term is the engine's own number rather than an estimate.
pub(super) fn is_compared(of: &EngineContext<'_>, engine: EngineBuild) -> bool {
    let (model, cache) = (of.model, of.graph.cache);
    let rolled_back = cache.rollback == 0 || matches!(model.architecture.as_str(), "qwen35" | "qwen35moe");
    let known = match row(&model.architecture).0 {
        ComparedGraph::Attending => true,
        ComparedGraph::Recurrent => rolled_back && recurrent_is_compared(model, engine),
        ComparedGraph::Not => false,
    };
    let quantised_latent = model.hyper.mla.is_some() && cache.key.quantised();
    let recent = engine.build.is_none_or(|build| build >= RARER_FROM);
    let compared = recent || !(of.graph.flash.is_on_host() || quantised_latent);
    // All rows are of llama.cpp: ik_llama.cpp builds other graphs for the same architectures.
    engine.kind == EngineKind::LlamaCpp && known && compared
}

/// True if a recurrent graph was compared. Not compared are sliding windows combined with states (LFM2), and
/// the tensors of early Qwen3-Next and of large Nemotron 3 files.
fn recurrent_is_compared(model: &Model, engine: EngineBuild) -> bool {
    let ends = |role: &str| model.tensors.iter().any(|tensor| tensor.name.ends_with(role));
    // Qwen3-Next with `ssm_in` is a file from before its projections were split.
    let other = ends(".ssm_ba.weight") && ends(".ssm_in.weight") || ends(".ffn_latent_down.weight");
    let compared = |build| build == RECURRENT_AT || build >= RECURRENT_FROM;
    engine.build.is_none_or(compared) && model.hyper.sliding.is_none() && !other
}
