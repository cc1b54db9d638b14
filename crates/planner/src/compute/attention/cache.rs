//! Adds to the compute graph the keys and values that attention reads, from the KV cache; an encoder has none
//! and reads its batch.
//!
//! The code mirrors `llama-kv-cache.cpp: get_k, get_v, cpy_k, cpy_v @ b10605`.

use plimsoll_base::Bytes;
use plimsoll_model::TensorType;

use super::projections::Projections;
use crate::compute::inputs::CacheInputs;
use crate::compute::{Decoder, F16, Id, OpKind};
use crate::{TensorDevice, kv};

/// Views of a layer's KV cache that attention reads.
pub(super) struct CacheViews {
    pub(super) key: Id,
    pub(super) value: Id,
    /// Length of a head's value.
    pub(super) width: u64,
    /// Bytes of the f16 copies of K and V that the kernel keeps behind its result.
    pub(super) copies: [u64; 2],
}

impl Decoder<'_> {
    /// Stores the batch in the cache and views all of it.
    pub(super) fn cache_views(&mut self, p: &Projections, inputs: &CacheInputs) -> CacheViews {
        let hyper = &self.layers.model.hyper;
        let place = self.cache.device(self.layers.cache_place(self.block()));
        let cells = kv::cells(hyper, self.block().layer, self.reserve);
        let streams = self.reserve.streams;
        let (key_row, value_row) = (hyper.key_row(self.block().layer), hyper.value_row(self.block().layer));
        let heads_kv = u64::from(hyper.heads_kv.at(self.block().layer)).max(1);
        let latent = hyper.mla.as_ref().map(|mla| u64::from(mla.kv_lora_rank));
        let caches = hyper.caches(self.block().layer);
        let (tokens, transposed) = (self.tokens, self.cache.transposed);
        let rows = cells.saturating_mul(streams);

        let key_cache = self.cache_tensor(self.cache.key, key_row, rows, place);
        // The value of latent attention is a part of its key.
        let value_cache = match latent {
            Some(_) => key_cache,
            None => self.cache_tensor(self.cache.value, value_row, rows, place),
        };
        // A layer that shares an earlier layer's cache stores nothing.
        if caches {
            let flat = self.graph.view(p.key, [key_row, tokens, 1, 1]);
            self.graph.write(&[flat, inputs.key_rows, key_cache], key_cache);
            if latent.is_none() {
                // Transposed, each row of one element lands in a row of its own.
                let all = value_row.saturating_mul(tokens);
                let shape = if transposed { [1, all, 1, 1] } else { [value_row, tokens, 1, 1] };
                let flat = self.graph.view(p.value, shape);
                self.graph.write(&[flat, inputs.value_rows, value_cache], value_cache);
            }
        }
        let width = latent.unwrap_or(value_row / heads_kv);
        let key_shape = [key_row / heads_kv, cells, heads_kv, streams];
        let value_shape =
            if transposed { [cells, width, heads_kv, streams] } else { [width, cells, heads_kv, streams] };
        let [key, value] = [(key_cache, key_shape), (value_cache, value_shape)].map(|(cache, shape)| {
            let bytes = self.graph.node(cache).bytes;
            self.graph.cache_view(cache, shape, bytes)
        });
        // An F32 cache is cast before attention sees it.
        let copy = |kind: TensorType, row: u64| match kind.name {
            "f16" | "f32" => 0,
            _ => (Bytes::new(F16) * row * rows).get(),
        };
        // V shows K's memory, so one copy serves both.
        let value_copied = if latent.is_some() { 0 } else { value_row };
        CacheViews {
            key,
            value,
            width,
            copies: [copy(self.cache.key, key_row), copy(self.cache.value, value_copied)],
        }
    }

    pub(in crate::compute) fn cache_tensor(
        &mut self,
        kind: TensorType,
        row: u64,
        rows: u64,
        place: TensorDevice,
    ) -> Id {
        let bytes = (kind.row(row).unwrap_or_default() * rows).get();
        self.graph.stored(OpKind::Cache(place), bytes, 0, [row, rows, 1, 1])
    }

    /// Encoders attend to the batch itself.
    pub(super) fn batch_views(&mut self, p: &Projections) -> CacheViews {
        let [key_length, heads, tokens, _] = self.graph.shape(p.key);
        let width = self.graph.shape(p.value)[0];
        let mut key = self.graph.view(p.key, [key_length, tokens, heads, 1]);
        let mut value = self.graph.view(p.value, [width, tokens, heads, 1]);
        if self.flash.on {
            key = self.graph.own_of(F16, [key_length, tokens, heads, 1], &[key]);
            value = self.graph.own_of(F16, [width, tokens, heads, 1], &[value]);
        } else {
            // The product with the scores reads V by columns.
            value = self.graph.turned(value, [tokens, width, heads, 1]);
        }
        CacheViews { key, value, width, copies: [0, 0] }
    }
}
