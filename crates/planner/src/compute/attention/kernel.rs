//! Attention in the compute graph: scores, the weighted sum of the values, and the scratch memory of flash
//! attention.
//!
//! The code mirrors `llama-graph.cpp: build_attn_mha` and `fattn-common.cuh:
//! ggml_cuda_flash_attn_ext_get_f16_extra_data @ b10605`.

use plimsoll_base::Bytes;
use plimsoll_model::TensorType;

use super::cache::CacheViews;
use super::projections::Projections;
use crate::compute::decoder::Decoder;
use crate::compute::graph::{F16, F32, Id};
use crate::compute::model_layers::Layer;
use crate::{flash, weights};

impl Decoder<'_> {
    /// `build_attn_mha`.
    pub(super) fn attention_core(
        &mut self,
        block: &Layer<'_>,
        p: &Projections,
        views: &CacheViews,
        mask: Id,
    ) -> Id {
        let streams = self.graph.shape(views.key)[3];
        let [length, heads, tokens, _] = self.graph.shape(p.query);
        // Every stream has an equal share of the batch.
        let each = tokens / streams.max(1);
        let query = self.graph.view(p.query, [length, heads, each, streams]);
        let query = self.graph.view(query, [length, each, heads, streams]);
        let sinks = self.weight(block, "attn_sinks.weight");
        if !self.flash.on {
            return self.plain_attention(p, views, [query, mask], sinks);
        }
        let attended = self.flash_attention(block, views, [query, mask], sinks);
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
    fn flash_attention(
        &mut self,
        block: &Layer<'_>,
        views: &CacheViews,
        [query, mask]: [Id; 2],
        sinks: Option<Id>,
    ) -> Id {
        let [_, each, heads, streams] = self.graph.shape(query);
        let shape = [views.width, heads, each, streams];
        let key = self.as_f16(views.key, self.cache.key);
        let value = self.as_f16(views.value, self.cache.value);
        let mask = self.cast_mask(mask);
        let mut sources = vec![query, key, value, mask];
        sources.extend(sinks);
        let bytes = shape.into_iter().fold(F32, u64::saturating_mul);
        let scratch = self.scratch(bytes, views.copies);
        let attended = self.graph.attention(shape, scratch, &sources);
        self.attention_nodes.push((attended, block.place));
        let types = [self.cache.key, self.cache.value];
        // With a quantised V the engine keeps flash attention on and computes such layers on the host.
        if self.flash.missing.is_some()
            && flash::unsupported(&self.layers.model.hyper, block.layer, types).is_some()
        {
            self.graph.node_mut(attended).host_only = true;
        }
        attended
    }

    /// The copy is made at its first use and serves all layers (`llama-graph.cpp: build_attn_inp_kv_impl @ b8799`).
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

    fn plain_attention(
        &mut self,
        p: &Projections,
        views: &CacheViews,
        [query, mask]: [Id; 2],
        sinks: Option<Id>,
    ) -> Id {
        let [_, each, heads, streams] = self.graph.shape(query);
        let cells = self.graph.shape(views.key)[1];
        // The whole KQ matrix: with many cells it is the largest tensor of the graph.
        let scores = self.graph.own([cells, each, heads, streams], &[views.key, query]);
        let mut sources = vec![scores, mask];
        sources.extend(sinks);
        let odds = self.graph.in_place(&sources);
        let turned = self.turned_values(views);
        let shape = [views.width, each, heads, streams];
        let values = self.graph.own(shape, &[turned, odds]);
        let values = match p.decompress {
            Some(decompress) => self.graph.multiply(decompress, values),
            None => values,
        };
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
        let wanted = copies.into_iter().filter(|&copy| copy > 0);
        let end = wanted
            .fold(Bytes::new(bytes), |end, copy| end.padded(weights::CARD_ALIGNMENT) + Bytes::new(copy));
        end.get().saturating_sub(bytes)
    }
}
