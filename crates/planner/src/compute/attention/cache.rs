//! What attention reads: the cache of a layer, into which the batch is stored first, or the batch itself.
//!
//! Mirrors `llama-kv-cache.cpp: get_k, get_v, cpy_k, cpy_v @ b10605`.

use plimsoll_base::Bytes;
use plimsoll_model::TensorType;

use super::projections::Projections;
use crate::compute::decoder::Decoder;
use crate::compute::graph::{F16, F32, OpKind, TensorId};
use crate::compute::inputs::CacheInputs;
use crate::compute::sketch::ModelBlock;
use crate::kv;
use crate::layout::TensorDevice;

/// The cache of a layer as attention reads it.
pub(super) struct CacheViews {
    pub(super) key: TensorId,
    pub(super) value: TensorId,
    /// Length of a head's value.
    pub(super) width: u64,
    /// Bytes of the f16 copies of K and V that the kernel wants behind its result.
    pub(super) copies: [u64; 2],
}

impl Decoder<'_> {
    /// Stores the batch in the cache and looks at all of it.
    pub(super) fn cache_views(
        &mut self,
        block: &ModelBlock<'_>,
        p: &Projections,
        inputs: &CacheInputs,
    ) -> CacheViews {
        let hyper = &self.sketch.model.hyper;
        let place = if self.cache.offload {
            self.sketch.cache_place(block)
        } else {
            TensorDevice::Host
        };
        let cells = kv::cells(hyper, block.layer, self.reserve);
        let streams = self.reserve.streams;
        let (key_row, value_row) = (hyper.key_row(block.layer), hyper.value_row(block.layer));
        let heads_kv = u64::from(hyper.heads_kv.at(block.layer)).max(1);
        let latent = hyper.mla.as_ref().map(|mla| u64::from(mla.kv_lora_rank));
        let caches = hyper.caches(block.layer);
        let tokens = self.tokens;
        let rows = cells.saturating_mul(streams);

        let key_cache = self.cache_tensor(self.cache.key, key_row, rows, place);
        let value_cache = match latent {
            Some(_) => key_cache,
            None => self.cache_tensor(self.cache.value, value_row, rows, place),
        };
        if caches {
            let flat = self.graph.view(p.key, [key_row, tokens, 1, 1]);
            let store = self.graph.store(flat, inputs.key_rows, key_cache);
            self.graph.expand(store);
            if latent.is_none() {
                let shape = if self.cache.transposed {
                    [1, value_row.saturating_mul(tokens), 1, 1]
                } else {
                    [value_row, tokens, 1, 1]
                };
                let flat = self.graph.view(p.value, shape);
                let store = self.graph.store(flat, inputs.value_rows, value_cache);
                self.graph.expand(store);
            }
        }
        let value_width = latent.unwrap_or(value_row / heads_kv);
        let key_bytes = self.graph.node(key_cache).bytes;
        let value_bytes = self.graph.node(value_cache).bytes;
        let key = self.graph.cache_view(
            key_cache,
            [key_row / heads_kv, cells, heads_kv, streams],
            key_bytes,
        );
        let value_shape = if self.cache.transposed {
            [cells, value_width, heads_kv, streams]
        } else {
            [value_width, cells, heads_kv, streams]
        };
        let value = self.graph.cache_view(value_cache, value_shape, value_bytes);
        // An F32 cache is cast before attention sees it.
        let copy = |kind: TensorType, row: u64| match kind.name {
            "f16" | "f32" => 0,
            _ => (Bytes::new(F16) * row * rows).get(),
        };
        let copied_value = if latent.is_some() {
            0
        } else {
            copy(self.cache.value, value_row)
        };
        CacheViews {
            key,
            value,
            width: value_width,
            copies: [copy(self.cache.key, key_row), copied_value],
        }
    }

    pub(in crate::compute) fn cache_tensor(
        &mut self,
        kind: TensorType,
        row: u64,
        rows: u64,
        place: TensorDevice,
    ) -> TensorId {
        let bytes = (kind.row(row).unwrap_or_default() * rows).get();
        self.graph
            .stored(OpKind::Cache(place), bytes, 0, [row, rows, 1, 1])
    }

    /// Encoders attend to the batch itself.
    pub(super) fn batch_views(&mut self, p: &Projections) -> CacheViews {
        let [key_length, heads, tokens, _] = self.graph.shape(p.key);
        let value_length = self.graph.shape(p.value)[0];
        let mut key = self.graph.view(p.key, [key_length, tokens, heads, 1]);
        let mut value = self.graph.view(p.value, [value_length, tokens, heads, 1]);
        if self.flash.on {
            key = self.graph.own(F16, [key_length, tokens, heads, 1], &[key]);
            value = self.graph.own(F16, [value_length, tokens, heads, 1], &[value]);
        } else {
            let turned = self.graph.view(value, [tokens, value_length, heads, 1]);
            value = self.graph.own(F32, [tokens, value_length, heads, 1], &[turned]);
        }
        CacheViews {
            key,
            value,
            width: value_length,
            copies: [0, 0],
        }
    }
}
