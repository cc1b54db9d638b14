//! The sizes that the engine settles before it allocates anything.
//!
//! Mirrors `llama-context.cpp: llama_context::llama_context` and `sched_reserve @ b10605`, and for llama-server
//! the defaults in `tools/server/server.cpp` and `server_output_limits`. All later terms are functions of these.

use plimsoll_flags::{Parallel, Program};
use plimsoll_model::{Model, Pooling};

use super::request::{EngineKind, PlanRequest};

/// Cache cells come in multiples of this.
pub(super) const CELLS: u64 = 256;

/// `LLAMA_MAX_SEQ`; the engine refuses more.
pub(super) const MOST_SEQUENCES: u32 = 256;

/// What one context of the engine reserves for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reserve {
    /// `n_ctx`: tokens over all sequences.
    pub(super) context: u64,
    /// `n_ctx_seq`: tokens that one sequence may have.
    pub(super) per_sequence: u64,
    /// `n_seq_max`.
    pub(super) sequences: u64,
    /// `n_stream`: separate caches; 1 if unified.
    pub(super) streams: u64,
    /// `n_ubatch`.
    pub(super) micro_batch: u64,
    /// Tokens of the prompt graph that is reserved.
    pub(super) tokens: u64,
    /// Rows of output of that graph.
    pub(super) outputs: u64,
    /// Rows of output that a run asks for at most; engines that do not limit them reserve for more.
    pub(super) outputs_asked: u64,
    /// Sliding-window caches are kept at full size.
    pub(super) full_sliding: bool,
    /// How the results of each sequence become one embedding; `None` where no embeddings are asked for.
    pub(super) pooling: Option<Pooling>,
}

impl Reserve {
    pub(super) fn of_model(request: &PlanRequest<'_>, context: u64) -> Self {
        let wish = request.wish;
        let server = request.program == Program::LlamaServer;
        let ik = request.engine.kind == EngineKind::IkLlamaCpp;
        let (sequences, unified) = match wish.parallel {
            Parallel::Auto if server && !ik => (4, true),
            Parallel::Auto => (1, wish.unified_cache.unwrap_or(ik)),
            Parallel::Count(n) => (
                u64::from(n.clamp(1, MOST_SEQUENCES)),
                wish.unified_cache.unwrap_or(ik),
            ),
        };
        let all_rows = wish.embeddings || wish.pooling.is_some_and(|pooling| pooling != Pooling::Each);
        let batch = if wish.embeddings && server {
            u64::from(wish.batch.min(wish.micro_batch))
        } else {
            u64::from(wish.batch)
        };
        let draft = if request.draft.is_some() || speculates(request) {
            u64::from(wish.draft_tokens)
        } else {
            0
        };
        let asked = (server && !all_rows).then(|| sequences.saturating_mul(1 + draft).max(1));
        Self::settle(
            request.model,
            ContextParameters {
                context,
                sequences,
                unified,
                batch,
                micro_batch: u64::from(wish.micro_batch),
                rows: asked.filter(|_| request.engine.limits_outputs()),
                asked,
                full_sliding: wish.full_sliding_cache || ik || request.program == Program::Library,
                pooling: wish
                    .pooling
                    .or(request.model.hyper.pooling)
                    .filter(|_| wish.embeddings),
            },
        )
    }

    /// A draft model's context, or that of the model's own prediction layers.
    pub(super) fn of_draft(request: &PlanRequest<'_>, draft: &Model, main: &Self) -> Self {
        let wish = request.wish;
        let context = match u64::from(wish.draft_context) {
            0 => main.context,
            n => n,
        };
        Self::settle(
            draft,
            ContextParameters {
                context,
                sequences: main.sequences,
                unified: main.streams == 1,
                batch: u64::from(wish.batch),
                micro_batch: u64::from(wish.micro_batch),
                rows: request.engine.limits_outputs().then_some(main.sequences),
                asked: Some(main.sequences),
                full_sliding: main.full_sliding,
                pooling: None,
            },
        )
    }

    fn settle(model: &Model, sizes: ContextParameters) -> Self {
        let asked = match sizes.context {
            0 => u64::from(model.hyper.context_train),
            n => n,
        };
        let batch = if model.hyper.causal {
            sizes.batch.min(asked)
        } else {
            sizes.batch
        }
        .max(1);
        let micro_batch = batch.min(if sizes.micro_batch == 0 {
            batch
        } else {
            sizes.micro_batch
        });
        let context = asked.max(1).next_multiple_of(CELLS);
        let (context, per_sequence) = if sizes.unified {
            (context, context)
        } else {
            let each = (context / sizes.sequences).max(1).next_multiple_of(CELLS);
            (each.saturating_mul(sizes.sequences), each)
        };
        let tokens = context.min(micro_batch);
        let rows = |limit: Option<u64>| tokens.min(limit.unwrap_or(batch).min(batch));
        Self {
            context,
            per_sequence,
            sequences: sizes.sequences,
            streams: if sizes.unified { 1 } else { sizes.sequences },
            micro_batch,
            tokens: tokens.next_multiple_of(sizes.sequences),
            outputs: rows(sizes.rows),
            outputs_asked: rows(sizes.asked),
            full_sliding: sizes.full_sliding,
            pooling: sizes.pooling,
        }
    }

    /// A graph in which the engine looks for kernels that a device lacks, with so many tokens of each sequence
    /// (`llama-context.cpp: resolve_fused_ops @ b10605`).
    pub(super) fn probing(&self, tokens_each: u64) -> Self {
        let tokens = self.sequences.saturating_mul(tokens_each);
        Self {
            tokens,
            outputs: tokens,
            outputs_asked: tokens,
            ..*self
        }
    }

    /// Cells of the cache that sliding layers use (`llama-kv-cache-iswa.cpp: llama_kv_cache_iswa @ b10605`).
    pub(super) fn sliding_cells(&self, window: u64) -> u64 {
        if self.full_sliding {
            return self.per_sequence;
        }
        let shared = if self.streams == 1 { self.sequences } else { 1 };
        let needed = window.saturating_mul(shared).saturating_add(self.micro_batch);
        self.per_sequence.min(needed).next_multiple_of(CELLS)
    }
}

/// True when the model's own prediction layers draft (`--spec-type draft-mtp`) rather than a draft model.
pub(super) fn speculates(request: &PlanRequest<'_>) -> bool {
    let asked = request.wish.speculation.iter().any(|kind| kind.contains("mtp"));
    asked && request.draft.is_none() && request.model.hyper.nextn_layers > 0
}

struct ContextParameters {
    context: u64,
    sequences: u64,
    unified: bool,
    batch: u64,
    micro_batch: u64,
    /// Rows of output that the program asks for at most, where that is known.
    asked: Option<u64>,
    /// `n_outputs_max` where the program sets one.
    rows: Option<u64>,
    full_sliding: bool,
    pooling: Option<Pooling>,
}
