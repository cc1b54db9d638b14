//! What a plan is asked for.
//!
//! The request is complete: the same request always gives the same plan, on any machine. Which engine and which
//! of its programs matter as much as the model, because they reserve different amounts for the same flags.

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::{Program, Wish};
use plimsoll_model::Model;
use serde::{Deserialize, Serialize};

use super::contexts::MeasuredContext;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EngineKind {
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    #[serde(rename = "ik_llama.cpp")]
    IkLlamaCpp,
}

impl EngineKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llama.cpp",
            Self::IkLlamaCpp => "ik_llama.cpp",
        }
    }
}

/// The engine whose memory is mirrored. No build means the newest that the formulas know, b10605.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Engine {
    pub kind: EngineKind,
    pub build: Option<u32>,
}

/// The first build that reserves the f16 copy of a quantised cache in the compute buffer (PR 23907) and, in its
/// server, only the rows of logits it can need (PR 23861). Both were merged within the same weeks; the exact
/// builds lie between b9305 and b9893.
const RESERVES_CACHE_COPY_SINCE: u32 = 9400;

impl Engine {
    pub const LLAMA_CPP: Self = Self {
        kind: EngineKind::LlamaCpp,
        build: None,
    };

    /// True where the f16 copy of a quantised cache is part of the compute buffer; else it lives in the run-time
    /// pool and grows with depth.
    pub fn reserves_cache_copy(self) -> bool {
        self.is_recent()
    }

    /// True where `ffn_up` and `ffn_gate` of experts are one operation: ik_llama.cpp does so unless told otherwise.
    pub fn fuses_experts(self, wish: &Wish) -> bool {
        self.kind == EngineKind::IkLlamaCpp && wish.fused_experts != Some(false)
    }

    /// True where the attention mask is an F32 input that is cast for flash attention; else it is an F16 input
    /// (`llama-graph.cpp: build_attn_inp_kq_mask @ b8799, b10605`). Which build was the first is not known: taken is the one of the
    /// other changes to this buffer.
    pub fn casts_mask(self) -> bool {
        self.is_older()
    }

    /// True where no architecture keeps the last layer's rows that nobody wants (`src/models/*.cpp @ b8799, b10605`); the first
    /// build that does is not known, either.
    pub fn picks_rows_early(self) -> bool {
        self.is_older()
    }

    /// True where what limits numbers to a range is a view of them (`ggml.c: ggml_clamp @ b8799, b10605`); the first build where it is a
    /// tensor of its own is not known, either.
    pub fn clamps_views(self) -> bool {
        self.is_older()
    }

    /// True where Mamba 2 keeps the sequences of a batch apart through its projections (`models/mamba-base.cpp: build_mamba2_layer
    /// @ b8799, b10605`); the first build that does not is not known, either.
    pub fn projects_by_sequence(self) -> bool {
        self.is_older()
    }

    /// True where `-fa auto` gives flash attention up when a card has no kernel for a quantised V cache, which the engine then refuses
    /// (`llama-context.cpp: llama_context @ b8799`); else such attention is left to the host. The first build is not known, either.
    pub fn gives_up_flash_attention(self) -> bool {
        self.is_older()
    }

    /// True where llama-server reserves logits for `slots * (1 + draft)` rows instead of a whole micro-batch.
    pub fn limits_outputs(self) -> bool {
        self.is_recent()
    }

    /// True where tokens and ready-made embeddings may stand in one batch. Not so in b10605, so in b11549; a build
    /// between them is taken to do so, which costs at most one activation.
    pub fn mixes_embeddings(self) -> bool {
        self.kind == EngineKind::LlamaCpp && self.build.is_some_and(|build| build > 10_605)
    }

    /// False where llama-server clears idle slots when a request begins: it saves them to host memory first
    /// (`server-context.cpp: process_single_task @ b10605`). Which build was the first is not known, so older ones are taken to keep.
    pub fn keeps_idle_slots(self, wish: &Wish) -> bool {
        let clears = self.kind == EngineKind::LlamaCpp && self.build.is_none_or(|build| build >= 10_605);
        !clears || wish.host_cache == Some(Bytes::ZERO)
    }

    /// What decides what it asks of its run-time pool.
    pub(super) fn of_pool(self) -> plimsoll_pool::demand::Engine {
        use plimsoll_pool::demand::Engine;
        match self.kind {
            EngineKind::IkLlamaCpp => Engine::Ik,
            EngineKind::LlamaCpp if self.is_older() => Engine::Copying,
            EngineKind::LlamaCpp => Engine::Reserving,
        }
    }

    /// A build of llama.cpp before the f16 copies went into the compute buffer.
    pub(super) fn is_older(self) -> bool {
        self.kind == EngineKind::LlamaCpp && !self.is_recent()
    }

    fn is_recent(self) -> bool {
        self.kind == EngineKind::LlamaCpp && self.build.is_none_or(|build| build >= RESERVES_CACHE_COPY_SINCE)
    }
}

/// Everything a plan depends on. `cards` are those the engine's process would see, in its order.
#[derive(Clone, Copy, Debug)]
pub struct PlanRequest<'a> {
    pub model: &'a Model,
    pub draft: Option<&'a Model>,
    pub projector: Option<&'a Model>,
    pub wish: &'a Wish,
    pub engine: Engine,
    pub program: Program,
    pub cards: &'a [Card],
    /// What contexts were measured to take; published values where it says nothing.
    pub contexts: &'a [MeasuredContext],
}
