//! Builds the attention half of a layer in the compute graph: grouped-query and latent attention (MLA).
//!
//! The code mirrors `llama-graph.cpp: build_attn, build_attn_mha` and `fattn-common.cuh:
//! ggml_cuda_flash_attn_ext_get_f16_extra_data @ b10605`.

mod cache;
mod projections;

use plimsoll_base::Bytes;
use plimsoll_model::TensorType;

use self::cache::CacheViews;
use self::projections::Projections;
use super::graph::elements;
use super::model_layers::shares_cache;
use crate::compute::{Decoder, F16, F32, Id};
use crate::{CARD_ALIGNMENT, flash};

impl Decoder<'_> {
    pub(super) fn attention(&mut self, input: Id) -> Id {
        let latent = self.cache.latent;
        if let Some(attended) = latent.and_then(|latent| self.latent_attention(input, &latent)) {
            return attended;
        }
        let Some(projections) = self.projections(input) else {
            return self.linear("attn_output", input).unwrap_or(input);
        };
        let gate = projections.gate;
        let attended = self.attend(projections);
        let attended = gate.map_or(attended, |gate| self.gated(attended, gate));
        self.linear("attn_output", attended).unwrap_or(attended)
    }

    fn attend(&mut self, mut p: Projections) -> Id {
        let hyper = &self.layers.model.hyper;
        let inputs = if hyper.slides(self.block().layer) { self.inputs.sliding } else { self.inputs.full };
        // Queries are rotated like the keys, so that their products stay the same.
        if let Some(rotation) = inputs.key_rotation {
            p.query = self.hadamard(p.query, rotation);
            p.key = self.hadamard(p.key, rotation);
        }
        if let Some(rotation) = inputs.value_rotation {
            p.value = self.hadamard(p.value, rotation);
        }
        // The engine expands these in the order of its two `build_attn` functions, which decides when each is
        // freed.
        let order = if shares_cache(hyper, self.block().layer) {
            [p.query; 3]
        } else if hyper.sliding.is_some() || !hyper.cached {
            [p.query, p.key, p.value]
        } else {
            [p.query, p.value, p.key]
        };
        for id in order {
            self.graph.expand(id);
        }
        let views = if hyper.cached { self.cache_views(&p, &inputs) } else { self.batch_views(&p) };
        let mut attended = self.attention_core(&p, &views, inputs.mask);
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
        let rows = self.graph.view(of, [side, elements(&shape) / side, 1, 1]);
        let rotated = self.graph.multiply(rotation, rows);
        self.graph.view(rotated, shape)
    }
}

/// The kernel and what stands in for it.
impl Decoder<'_> {
    /// `build_attn_mha`.
    fn attention_core(&mut self, p: &Projections, views: &CacheViews, mask: Id) -> Id {
        let streams = self.graph.shape(views.key)[3];
        let [length, heads, tokens, _] = self.graph.shape(p.query);
        // Every stream has an equal share of the batch.
        let each = tokens / streams.max(1);
        let query = self.graph.view(p.query, [length, heads, each, streams]);
        let query = self.graph.view(query, [length, each, heads, streams]);
        if !self.flash.on {
            return self.plain_attention(p, views, [query, mask]);
        }
        let attended = self.flash_attention(views, [query, mask]);
        let [width, heads, each, streams] = self.graph.shape(attended);
        match p.decompress {
            None => {
                let flat = [width.saturating_mul(heads), each.saturating_mul(streams), 1, 1];
                self.graph.view(attended, flat)
            }
            Some(decompress) => {
                let turned = self.graph.view(attended, [width, each, heads, streams]);
                let values = self.graph.multiply(decompress, turned);
                self.merge_heads(values)
            }
        }
    }

    /// `[width, heads, tokens, streams]`, before latent vectors are turned back into values.
    fn flash_attention(&mut self, views: &CacheViews, [query, mask]: [Id; 2]) -> Id {
        let [_, each, heads, streams] = self.graph.shape(query);
        let shape = [views.width, heads, each, streams];
        let key = self.as_f16(views.key, self.cache.key);
        let value = self.as_f16(views.value, self.cache.value);
        let mask = self.cast_mask(mask);
        let mut sources = vec![query, key, value, mask];
        sources.extend(self.weight("attn_sinks.weight"));
        let bytes = shape.into_iter().fold(F32, u64::saturating_mul);
        let scratch = self.scratch(bytes, views.copies);
        let attended = self.graph.attention(shape, scratch, &sources);
        self.attention_nodes.push((attended, self.block().place));
        let types = [self.cache.key, self.cache.value];
        // With a quantised V the engine keeps flash attention on and computes such layers on the host.
        if self.flash.missing.is_some()
            && flash::unsupported(&self.layers.model.hyper, self.block().layer, types).is_some()
        {
            self.graph.node_mut(attended).host_only = true;
        }
        attended
    }

    /// The copy is made at its first use and serves all layers (`llama-graph.cpp: build_attn_inp_kv_impl @
    /// b8799`).
    fn cast_mask(&mut self, mask: Id) -> Id {
        if !self.quirks.casts_mask {
            return mask;
        }
        if let Some((_, copy)) = self.masks.iter().find(|(of, _)| *of == mask) {
            return *copy;
        }
        let copy = self.graph.own_of(F16, self.graph.shape(mask), &[mask]);
        self.masks.push((mask, copy));
        copy
    }

    /// Converts to f16, which flash attention reads; an F32 cache is cast into a new tensor.
    fn as_f16(&mut self, id: Id, kind: TensorType) -> Id {
        // Encoders have cast their keys and values already, because these are no cache.
        if kind.name != "f32" || !self.layers.model.hyper.cached {
            return id;
        }
        self.graph.own_of(F16, self.graph.shape(id), &[id])
    }

    fn plain_attention(&mut self, p: &Projections, views: &CacheViews, [query, mask]: [Id; 2]) -> Id {
        let [_, each, heads, streams] = self.graph.shape(query);
        let cells = self.graph.shape(views.key)[1];
        // The whole KQ matrix: with many cells it is the largest tensor of the graph.
        let scores = self.graph.own([cells, each, heads, streams], &[views.key, query]);
        let mut sources = vec![scores, mask];
        sources.extend(self.weight("attn_sinks.weight"));
        let odds = self.graph.in_place(&sources);
        let turned = self.turned_values(views);
        let shape = [views.width, each, heads, streams];
        let values = self.graph.own(shape, &[turned, odds]);
        let values = p.decompress.map_or(values, |decompress| self.graph.multiply(decompress, values));
        self.merge_heads(values)
    }

    /// The values transposed; a copy is made unless the cache stores them so.
    fn turned_values(&mut self, views: &CacheViews) -> Id {
        if self.cache.transposed || !self.layers.model.hyper.cached {
            return views.value;
        }
        let width = views.width;
        let element = self.cache.value.row(width).unwrap_or_default().get() / width.max(1);
        let [_, cells, heads, streams] = self.graph.shape(views.key);
        let view = self.graph.view(views.value, [cells, width, heads, streams]);
        self.graph.own_of(element, [cells, width, heads, streams], &[view])
    }

    /// `[width, tokens, heads]` → `[width * heads, tokens]`, which needs a copy.
    fn merge_heads(&mut self, values: Id) -> Id {
        let [width, each, heads, streams] = self.graph.shape(values);
        let turned = self.graph.view(values, [width, heads, each, streams]);
        let flat = [width.saturating_mul(heads), each.saturating_mul(streams), 1, 1];
        self.graph.own(flat, &[turned])
    }

    /// Room for the f16 copies behind a result of `bytes`.
    fn scratch(&self, bytes: u64, copies: [u64; 2]) -> u64 {
        if !self.quirks.reserves_cache_copy {
            return 0;
        }
        // Each copy starts aligned, so the gap before it counts as well.
        let behind = |end: Bytes, copy| end.padded(CARD_ALIGNMENT) + Bytes::new(copy);
        let end = copies.into_iter().filter(|&copy| copy > 0).fold(Bytes::new(bytes), behind);
        end.get().saturating_sub(bytes)
    }
}
