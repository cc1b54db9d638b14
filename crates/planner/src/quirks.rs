//! Lists the differences between engine builds that change planned memory.
//!
//! Only this file compares build numbers; all other files ask for a named difference (quirk).

use plimsoll_base::Bytes;
use plimsoll_flags::ProgramKind;

use crate::named::interface;
use crate::{EngineBuild, EngineKind, PlanRequest};

// Most differences lie between builds b8799 and b10605, so they share one threshold.
/// First build that counts as recent. The f16 copy of a quantised cache is in the compute buffer (PR 23907),
/// and llama-server reserves only the logits that it can need (PR 23861). Both merged between b9305 and
/// b9893.
const RECENT: u32 = 9400;

/// The newest build that the formulas were compared with.
pub(super) const NEWEST_COMPARED: u32 = 10_605;

/// First build seen that caches prediction layers in their own context alone, and keeps the operands of fused
/// operations.
const PREDICTS_APART: u32 = 11_063;

/// The newest build seen that takes batches of tokens or of embeddings, not of both.
const NEWEST_UNMIXED: u32 = 11_063;

/// Behaviour of one engine build, program and set of flags; `@ b8799, b10605` are the builds around a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineQuirks {
    /// The f16 copy of a quantised cache is in the compute buffer; elsewhere it grows with depth in the pool.
    pub(super) reserves_cache_copy: bool,
    /// llama-server reserves logits for `slots * (1 + draft)` rows instead of a whole micro-batch.
    pub(super) limits_outputs: bool,
    /// The attention mask is an F32 input that is cast for flash attention, instead of an F16 input
    /// (`llama-graph.cpp: build_attn_inp_kq_mask @ b8799, b10605`).
    pub(super) casts_mask: bool,
    /// Every architecture picks the output rows within the last layer (`src/models/*.cpp @ b8799, b10605`).
    pub(super) picks_rows_early: bool,
    /// A clamp is a view of its source instead of a separate tensor (`ggml.c: ggml_clamp @ b8799, b10605`).
    pub(super) clamps_views: bool,
    /// Mamba 2 projects each sequence separately (`models/mamba-base.cpp: build_mamba2_layer @ b8799,
    /// b10605`).
    pub(super) projects_by_sequence: bool,
    /// `-fa auto` turns flash attention off where a card lacks a kernel for a quantised V cache, and the
    /// engine then refuses the cache (`llama-context.cpp: llama_context @ b8799`). Elsewhere the host
    /// computes such attention.
    pub(super) gives_up_flash_attention: bool,
    /// One batch may mix tokens and embeddings, which takes a second input. Not so in b11063 (0.5.0), so in
    /// b11549; builds between them count as mixing, which costs at most one activation.
    pub(super) mixes_embeddings: bool,
    /// ik_llama.cpp: a graph for tokens has no input for embeddings, and a norm with its weight is one
    /// operation. The average batch of one expert, not the whole batch, decides whether its weights are
    /// copied to a card.
    pub(super) is_lean: bool,
    /// ik_llama.cpp: `ffn_up` and `ffn_gate` of the experts are one operation with one result.
    pub(super) fuses_experts: bool,
    /// Norms are pinned to the device of their layer; llama-fit-params loses the pins
    /// (`ggml-backend.cpp: ggml_backend_sched_reserve_size @ b10605`).
    pub(super) pins_norms: bool,
    /// Idle slots stay in the cache. Newer servers save them to host memory when a request begins
    /// (`server-context.cpp: process_single_task @ b10605`); the first such build is not known.
    pub(super) keeps_idle_slots: bool,
    /// A context caches the layers that it computes: the trunk, or the prediction layers
    /// (`llama-model.cpp: create_memory @ b11063`). Before, most architectures' contexts cached all of both.
    pub(super) caches_apart: bool,
    /// A fused kernel for experts keeps its operands until the end: their choice, and the weighted sum of
    /// their outputs (`ggml-cuda.cu: ggml_backend_cuda_graph_optimize @ b11063`).
    pub(super) keeps_experts: bool,
    /// The generation of the run-time pool.
    pub(super) pool: plimsoll_pool::demand::DemandRules,
}

impl EngineQuirks {
    pub(super) fn of(request: &PlanRequest<'_>) -> Self {
        use plimsoll_pool::demand::DemandRules as PoolEngine;
        let (EngineBuild { kind, build }, params) = (request.engine, request.params);
        let ik = kind == EngineKind::IkLlamaCpp;
        // An engine without a build number is taken for the newest that was compared.
        let since = |first: u32| !ik && build.is_none_or(|build| build >= first);
        let recent = since(RECENT);
        let old = !ik && !recent;
        Self {
            reserves_cache_copy: recent,
            limits_outputs: recent,
            casts_mask: old,
            picks_rows_early: old,
            clamps_views: old,
            projects_by_sequence: old,
            gives_up_flash_attention: old,
            mixes_embeddings: !ik && build.is_some_and(|build| build > NEWEST_UNMIXED),
            is_lean: ik,
            fuses_experts: ik && params.fused_experts != Some(false),
            pins_norms: request.program != ProgramKind::LlamaFitParams,
            // Without a host cache there is nowhere to save an idle slot to.
            caches_apart: since(PREDICTS_APART),
            keeps_experts: since(PREDICTS_APART) && interface(request) != "Vulkan",
            keeps_idle_slots: !since(NEWEST_COMPARED) || params.host_cache == Some(Bytes::ZERO),
            pool: match kind {
                EngineKind::IkLlamaCpp => PoolEngine::Ik,
                EngineKind::LlamaCpp if recent => PoolEngine::Reserving,
                EngineKind::LlamaCpp => PoolEngine::Copying,
            },
        }
    }
}
