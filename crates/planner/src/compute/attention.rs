//! Attention half of a layer in the compute graph: grouped-query and latent attention (MLA).
//!
//! The code mirrors `llama-graph.cpp: build_attn @ b10605`.

mod cache;
mod kernel;
mod projections;

use self::projections::Projections;
use super::decoder::Decoder;
use super::graph::Id;
use super::model_layers::{Layer, shares_cache};

impl Decoder<'_> {
    pub(super) fn attention(&mut self, block: &Layer<'_>, input: Id) -> Id {
        let latent = self.cache.latent;
        if let Some(attended) = latent.and_then(|latent| self.latent_attention(block, input, &latent)) {
            return attended;
        }
        let Some(projections) = self.projections(block, input) else {
            return self.linear(block, "attn_output", input).unwrap_or(input);
        };
        let gate = projections.gate;
        let mut attended = self.attend(block, projections);
        if let Some(gate) = gate {
            attended = self.gated(attended, gate);
        }
        self.linear(block, "attn_output", attended).unwrap_or(attended)
    }

    fn attend(&mut self, block: &Layer<'_>, mut p: Projections) -> Id {
        let hyper = &self.layers.model.hyper;
        let inputs = match hyper.slides(block.layer) {
            true => self.inputs.sliding,
            false => self.inputs.full,
        };
        // Queries are rotated like the keys, so that their products stay the same.
        if let Some(rotation) = inputs.key_rotation {
            p.query = self.hadamard(p.query, rotation);
            p.key = self.hadamard(p.key, rotation);
        }
        if let Some(rotation) = inputs.value_rotation {
            p.value = self.hadamard(p.value, rotation);
        }
        // The engine expands these in the order of its two `build_attn` functions, which decides when each is freed.
        let order = if shares_cache(hyper, block.layer) {
            [p.query; 3]
        } else if hyper.sliding.is_some() || !hyper.cached {
            [p.query, p.key, p.value]
        } else {
            [p.query, p.value, p.key]
        };
        for id in order {
            self.graph.expand(id);
        }
        let views = match hyper.cached {
            true => self.cache_views(block, &p, &inputs),
            false => self.batch_views(&p),
        };
        let mut attended = self.attention_core(block, &p, &views, inputs.mask);
        self.graph.expand(attended);
        if let Some(rotation) = inputs.value_rotation {
            attended = self.hadamard(attended, rotation);
        }
        attended
    }

    /// `llama_mul_mat_hadamard`.
    fn hadamard(&mut self, of: Id, rotation: Id) -> Id {
        let shape = self.graph.shape(of);
        let side = self.graph.shape(rotation)[0].max(1);
        let elements = shape.iter().fold(1, |all: u64, &n| all.saturating_mul(n));
        let rows = self.graph.view(of, [side, elements / side, 1, 1]);
        let rotated = self.graph.multiply(rotation, rows);
        self.graph.view(rotated, shape)
    }
}
