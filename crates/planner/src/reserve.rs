//! Computes the sizes that the engine fixes before it allocates memory: context, batches, sequences, outputs.
//!
//! The code mirrors `llama-context.cpp: llama_context::llama_context, sched_reserve` and the defaults in
//! `tools/server/server.cpp @ b10605`.

use plimsoll_flags::{Parallel, ProgramKind};
use plimsoll_model::{Model, Pooling};

use crate::{EngineKind, EngineQuirks, PlanRequest};

/// The number of cache cells is a multiple of this.
pub(super) const CELLS: u64 = 256;

/// `LLAMA_MAX_SEQ`; the engine refuses more.
pub(super) const MOST_SEQUENCES: u32 = 256;

/// Sizes for which one context of the engine reserves memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reserve {
    /// `n_ctx`: tokens over all sequences.
    pub(super) context: u64,
    /// `n_ctx_seq`: maximum tokens of one sequence.
    pub(super) per_sequence: u64,
    /// `n_seq_max`.
    pub(super) sequences: u64,
    /// `n_stream`: separate caches; 1 if unified.
    pub(super) streams: u64,
    /// `n_ubatch`.
    pub(super) micro_batch: u64,
    /// Tokens of the prompt graph that is reserved.
    pub(super) tokens: u64,
    /// Output rows of that graph.
    pub(super) outputs: u64,
    /// Maximum output rows of a run; engines that do not limit them reserve more.
    pub(super) outputs_requested: u64,
    /// Sliding-window caches are kept at full size.
    pub(super) full_sliding: bool,
    /// Pooling of each sequence into one embedding; `None` if no embeddings are requested.
    pub(super) pooling: Option<Pooling>,
}

impl Reserve {
    pub(super) fn of_model(request: &PlanRequest<'_>, context: u64) -> Self {
        let params = request.params;
        let server = request.program == ProgramKind::LlamaServer;
        let ik = request.engine.kind == EngineKind::IkLlamaCpp;
        let (sequences, unified) = match params.parallel {
            // llama-server takes 4 slots over one cache where -np is not given (`tools/server/server.cpp @
            // b10605`).
            Parallel::Auto if server && !ik => (4, true),
            Parallel::Auto => (1, params.unified_cache.unwrap_or(ik)),
            Parallel::Count(n) => (u64::from(n.clamp(1, MOST_SEQUENCES)), params.unified_cache.unwrap_or(ik)),
        };
        // An embedding needs all tokens of its prompt in one micro-batch.
        let most = if params.embeddings && server { params.micro_batch } else { u32::MAX };
        let draft = u64::from(drafted(request));
        let all_rows = params.embeddings || params.pooling.is_some_and(|pooling| pooling != Pooling::Each);
        let wanted = Self {
            context,
            sequences,
            streams: if unified { 1 } else { sequences },
            micro_batch: u64::from(params.batch.min(most)),
            // A drafted token is verified by its own row of logits, beside the one that follows.
            outputs_requested: if server && !all_rows {
                sequences.saturating_mul(1 + draft).max(1)
            } else {
                u64::MAX
            },
            // The C API's default is a full window cache; llama-server's is not (`common.h @ b10605`).
            full_sliding: params.full_sliding_cache || ik || request.program == ProgramKind::Library,
            pooling: params.pooling.or(request.model.hyper.pooling).filter(|_| params.embeddings),
            ..Self::default()
        };
        wanted.settled(request, request.model)
    }

    /// A draft model's context, or that of the model's own prediction layers.
    pub(super) fn of_draft(request: &PlanRequest<'_>, draft: &Model, main: &Self) -> Self {
        let params = request.params;
        let wanted = Self {
            context: if params.draft_context == 0 { main.context } else { u64::from(params.draft_context) },
            micro_batch: u64::from(params.batch),
            outputs_requested: main.sequences,
            pooling: None,
            ..*main
        };
        wanted.settled(request, draft)
    }

    /// The engine's sizes for those that a program wants, whose micro-batch is the batch so far.
    fn settled(self, request: &PlanRequest<'_>, model: &Model) -> Self {
        let requested = if self.context == 0 { u64::from(model.hyper.context_train) } else { self.context };
        // A causal model cannot have more tokens in a batch than in its context; an encoder can.
        let batch =
            if model.hyper.causal { self.micro_batch.min(requested) } else { self.micro_batch }.max(1);
        let micro_batch = match u64::from(request.params.micro_batch) {
            0 => batch,
            n => batch.min(n),
        };
        let context = requested.max(1).next_multiple_of(CELLS);
        // Each stream is rounded up for itself, so the whole may exceed what was asked for.
        let per_sequence = (context / self.streams).max(1).next_multiple_of(CELLS);
        let context = per_sequence.saturating_mul(self.streams);
        let tokens = context.min(micro_batch);
        let rows = |limit: u64| tokens.min(limit).min(batch);
        let limits = EngineQuirks::of(request).limits_outputs;
        Self {
            context,
            per_sequence,
            micro_batch,
            // The reserved graph has equally many tokens of every sequence.
            tokens: tokens.next_multiple_of(self.sequences),
            outputs: rows(if limits { self.outputs_requested } else { u64::MAX }),
            outputs_requested: rows(self.outputs_requested),
            ..self
        }
    }

    /// A small graph with this many tokens of each sequence, with which the engine looks for kernels that a
    /// device lacks (`llama-context.cpp: resolve_fused_ops @ b10605`).
    pub(super) fn probing(&self, tokens_each: u64) -> Self {
        let tokens = self.sequences.saturating_mul(tokens_each);
        Self { tokens, outputs: tokens, outputs_requested: tokens, ..*self }
    }

    /// Cells of the cache that sliding layers use (`llama-kv-cache-iswa.cpp: llama_kv_cache_iswa @ b10605`).
    pub(super) fn sliding_cells(&self, window: u64) -> u64 {
        if self.full_sliding {
            return self.per_sequence;
        }
        // A unified cache holds the windows of all sequences, and a micro-batch is written before old cells
        // are freed.
        let shared = if self.streams == 1 { self.sequences } else { 1 };
        let needed = window.saturating_mul(shared).saturating_add(self.micro_batch);
        self.per_sequence.min(needed).next_multiple_of(CELLS)
    }
}

/// True when the model's own prediction layers draft (`--spec-type draft-mtp`) rather than a draft model.
pub(super) fn speculates(request: &PlanRequest<'_>) -> bool {
    asks(request, MTP) && request.draft.is_none() && request.model.hyper.nextn_layers > 0
}

/// True if a draft model's context computes its prediction layers alone. Without `--spec-type` the file
/// decides (`speculative.cpp: common_speculative_types_from_gguf @ b11063`).
pub(super) fn predicts(request: &PlanRequest<'_>, draft: &Model) -> bool {
    let has_layer = || draft.tensors.iter().any(|tensor| tensor.role() == Some("nextn.eh_proj.weight"));
    (asks(request, MTP) || names_no_kind(request)) && draft.hyper.nextn_layers > 0 && has_layer()
}

/// Draft tokens whose state the model keeps, to take back those that are rejected (`common.h: need_n_rs_seq @
/// b11063`).
pub(super) fn rollback(request: &PlanRequest<'_>) -> u64 {
    let keeps = request.model.hyper.recurrent.as_ref().is_some_and(|recurrent| recurrent.rolls_back);
    let inferred = request
        .draft
        .filter(|_| names_no_kind(request))
        .is_some_and(|draft| draft.architecture == "dflash" || predicts(request, draft));
    let requested =
        [MTP, "draft-eagle3", "draft-dflash", "draft-dspark"].iter().any(|kind| asks(request, kind));
    if keeps && (requested || inferred) { u64::from(request.params.draft_tokens) } else { 0 }
}

/// Maximum tokens of a draft, of whatever kind (`speculative.cpp: common_speculative_n_max @ b11063`).
fn drafted(request: &PlanRequest<'_>) -> u32 {
    let (params, ngram) = (request.params, &request.params.ngram_tokens);
    let by_model = request.draft.is_some() || speculates(request);
    let own = if by_model { params.draft_tokens } else { 0 };
    let tokens = |kind: &String| match kind.as_str() {
        "ngram-simple" => ngram.simple,
        "ngram-map-k" => ngram.map_k,
        "ngram-map-k4v" => ngram.map_k4v,
        "ngram-mod" => ngram.modular,
        // A constant of the engine.
        "ngram-cache" => 8,
        _ => 0,
    };
    params.speculation.iter().map(tokens).max().unwrap_or(0).max(own)
}

const MTP: &str = "draft-mtp";

fn asks(request: &PlanRequest<'_>, kind: &str) -> bool {
    request.params.speculation.iter().any(|requested| requested == kind)
}

fn names_no_kind(request: &PlanRequest<'_>) -> bool {
    request.params.speculation.iter().all(|requested| requested == "none")
}
