//! The scores, their weighting of the values, and what flash attention wants behind its result.
//!
//! Mirrors `llama-graph.cpp: build_attn_mha` and `fattn-common.cuh: ggml_cuda_flash_attn_ext_get_f16_extra_data @ b10605`.

use plimsoll_base::Bytes;
use plimsoll_model::TensorType;

use super::cache::CacheViews;
use super::projections::Projections;
use crate::compute::decoder::Decoder;
use crate::compute::graph::{F16, F32, TensorId};
use crate::compute::sketch::ModelBlock;
use crate::{flash, weights};

impl Decoder<'_> {
    /// `build_attn_mha`.
    pub(super) fn attention_core(
        &mut self,
        block: &ModelBlock<'_>,
        p: &Projections,
        views: &CacheViews,
        mask: TensorId,
    ) -> TensorId {
        let streams = self.graph.shape(views.key)[3];
        let [length, heads, tokens, _] = self.graph.shape(p.query);
        let each = tokens / streams.max(1);
        let query = self.graph.view(p.query, [length, heads, each, streams]);
        let query = self.graph.view(query, [length, each, heads, streams]);
        let sinks = self.weight(block, "attn_sinks.weight");
        if self.flash.on {
            self.flash_attention(
                block,
                p,
                views,
                [views.width, heads, each, streams],
                [query, mask],
                sinks,
            )
        } else {
            self.plain_attention(
                p,
                views,
                [views.width, heads, each, streams],
                [query, mask],
                sinks,
            )
        }
    }

    fn flash_attention(
        &mut self,
        block: &ModelBlock<'_>,
        p: &Projections,
        views: &CacheViews,
        [width, heads, each, streams]: [u64; 4],
        [query, mask]: [TensorId; 2],
        sinks: Option<TensorId>,
    ) -> TensorId {
        let (key, value) = (
            self.as_f16(views.key, self.cache.key),
            self.as_f16(views.value, self.cache.value),
        );
        let mask = self.cast_mask(mask);
        let mut sources = vec![query, key, value, mask];
        sources.extend(sinks);
        let bytes = [width, heads, each, streams]
            .into_iter()
            .fold(F32, u64::saturating_mul);
        let scratch = self.scratch(bytes, views.copies);
        let attended = self
            .graph
            .attention([width, heads, each, streams], scratch, &sources);
        self.attention_nodes.push((attended, block.place));
        let types = [self.cache.key, self.cache.value];
        if self.flash.missing.is_some()
            && flash::unsupported(&self.sketch.model.hyper, block.layer, types).is_some()
        {
            self.graph.keep_on_host(attended);
        }
        let Some(decompress) = p.decompress else {
            return self.graph.view(
                attended,
                [width.saturating_mul(heads), each.saturating_mul(streams), 1, 1],
            );
        };
        let turned = self.graph.view(attended, [width, each, heads, streams]);
        let values = self.graph.multiply(decompress, turned);
        self.merge_heads(values)
    }

    /// The copy is made where it is first used, and stays for all layers (`llama-graph.cpp: build_attn_inp_kv_impl @ b8799`).
    fn cast_mask(&mut self, mask: TensorId) -> TensorId {
        if !self.quirks.casts_mask {
            return mask;
        }
        if let Some((_, copy)) = self.masks.iter().find(|(of, _)| *of == mask) {
            return *copy;
        }
        let copy = self.graph.own(F16, self.graph.shape(mask), &[mask]);
        self.masks.push((mask, copy));
        copy
    }

    /// Flash attention reads f16; an F32 cache is cast in a tensor of its own.
    fn as_f16(&mut self, id: TensorId, kind: TensorType) -> TensorId {
        if kind.name != "f32" || !self.sketch.model.hyper.cached {
            return id;
        }
        let shape = self.graph.shape(id);
        self.graph.own(F16, shape, &[id])
    }

    fn plain_attention(
        &mut self,
        p: &Projections,
        views: &CacheViews,
        [width, heads, each, streams]: [u64; 4],
        [query, mask]: [TensorId; 2],
        sinks: Option<TensorId>,
    ) -> TensorId {
        let cells = self.graph.shape(views.key)[1];
        let scores = self
            .graph
            .own(F32, [cells, each, heads, streams], &[views.key, query]);
        let mut sources = vec![scores, mask];
        sources.extend(sinks);
        let odds = self.graph.in_place(&sources);
        let turned = self.turned_values(views, width);
        let values = self
            .graph
            .own(F32, [width, each, heads, streams], &[turned, odds]);
        let values = match p.decompress {
            Some(decompress) => self.graph.multiply(decompress, values),
            None => values,
        };
        self.merge_heads(values)
    }

    /// A cache that was not stored for this is turned over first.
    fn turned_values(&mut self, views: &CacheViews, width: u64) -> TensorId {
        if self.cache.transposed || !self.sketch.model.hyper.cached {
            return views.value;
        }
        let element = self.cache.value.row(width).unwrap_or_default().get() / width.max(1);
        let [_, cells, heads, streams] = self.graph.shape(views.key);
        let view = self.graph.view(views.value, [cells, width, heads, streams]);
        self.graph.own(element, [cells, width, heads, streams], &[view])
    }

    /// `[width, tokens, heads]` → `[width * heads, tokens]`, which needs a copy.
    fn merge_heads(&mut self, values: TensorId) -> TensorId {
        let [width, each, heads, streams] = self.graph.shape(values);
        let turned = self.graph.view(values, [width, heads, each, streams]);
        self.graph.own(
            F32,
            [width.saturating_mul(heads), each.saturating_mul(streams), 1, 1],
            &[turned],
        )
    }

    /// Room behind a result of `bytes` for the f16 copies.
    fn scratch(&self, bytes: u64, copies: [u64; 2]) -> u64 {
        if !self.quirks.copies_cache {
            return 0;
        }
        let wanted = copies.into_iter().filter(|&copy| copy > 0);
        let end = wanted.fold(Bytes::new(bytes), |end, copy| {
            end.padded(weights::CARD_ALIGNMENT) + Bytes::new(copy)
        });
        end.get().saturating_sub(bytes)
    }
}
