//! Size of the KV cache and of recurrent states, computed exactly from the model's header and the context
//! length.
//!
//! The code mirrors the constructors in `llama-kv-cache.cpp`, `llama-kv-cache-iswa.cpp` and
//! `llama-memory-recurrent.cpp @ b10605`.

use std::ops::Range;

use plimsoll_base::Bytes;
use plimsoll_model::{HyperParameters, Model, TensorType};

use super::error::PlanError;
use super::latent::{LatentAttention, LatentCache};
use super::layout::{DeviceBytes, DeviceLayout, TensorDevice};
use super::reserve::Reserve;
use super::weights::{CARD_ALIGNMENT, HOST_ALIGNMENT, row_padding};

/// Element types and layout of a KV cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheKind {
    pub(super) key: TensorType,
    pub(super) value: TensorType,
    /// Without flash attention V is stored transposed, every layer as wide as the widest.
    pub(super) transposed: bool,
    /// `-nkvo` keeps the whole cache in host memory.
    pub(super) offload: bool,
    /// Draft tokens whose state can be rolled back (`n_rs_seq`).
    pub(super) rollback: u64,
    /// ik_llama.cpp's latent attention; llama.cpp's needs nothing more than the header.
    pub(super) latent: Option<LatentAttention>,
}

impl CacheKind {
    /// The device of the cache of a layer on `layer`.
    pub(super) fn device(self, layer: TensorDevice) -> TensorDevice {
        match self.offload {
            true => layer,
            false => TensorDevice::Host,
        }
    }

    /// Elements of one token's K and V in a layer, without the padding of a transposed V.
    fn rows(self, hyper: &HyperParameters, layer: u32) -> (u64, u64) {
        match self.latent {
            Some(latent) => latent.rows(hyper.heads.at(layer), !self.transposed),
            None => (hyper.key_row(layer), hyper.value_row(layer)),
        }
    }

    /// The type that K really has (`llama.cpp: llama_kv_cache_init`, 8337e4cd).
    fn key_type(self) -> TensorType {
        // Without flash attention, the vectors of modes 2 and 3 have the type of V.
        let vectors = self.latent.filter(|_| self.transposed);
        match vectors.map(|latent| (latent.mode, latent.cached(false))) {
            Some((2.., LatentCache::Vector)) => self.value,
            _ => self.key,
        }
    }
}

/// The cache of `layers` of a model: the main ones, or the prediction layers alone.
pub(super) fn cache(
    model: &Model,
    layers: Range<u32>,
    reserve: &Reserve,
    kind: CacheKind,
    layout: &DeviceLayout,
) -> Result<DeviceBytes, PlanError> {
    let mut cache = DeviceBytes::none(layout);
    let widest = widest_value(&model.hyper);
    for layer in layers {
        let place = kind.device(layout.layer(layer));
        for (data, padding) in tensors(&model.hyper, layer, reserve, kind, widest)? {
            *cache.at(place) += match place {
                TensorDevice::Host => data.padded(HOST_ALIGNMENT),
                TensorDevice::Card(_) => (data + padding).padded(CARD_ALIGNMENT),
            };
        }
    }
    Ok(cache)
}

/// Elements of V in the widest layer.
pub(super) fn widest_value(hyper: &HyperParameters) -> u64 {
    let rows = (0..hyper.layers).map(|layer| hyper.value_row(layer));
    rows.max().unwrap_or(0)
}

/// Cells of a layer's cache in one stream.
pub(super) fn cells(hyper: &HyperParameters, layer: u32, reserve: &Reserve) -> u64 {
    match &hyper.sliding {
        Some(sliding) if hyper.slides(layer) => reserve.sliding_cells(u64::from(sliding.window)),
        _ => reserve.per_sequence,
    }
}

/// The cache tensors of a layer: the data of each, and the padding that a card adds at its end.
fn tensors(
    hyper: &HyperParameters,
    layer: u32,
    reserve: &Reserve,
    kind: CacheKind,
    widest_value: u64,
) -> Result<Vec<(Bytes, Bytes)>, PlanError> {
    let mut tensors = recurrent_state(hyper, layer, reserve, kind);
    if !hyper.caches(layer) {
        return Ok(tensors);
    }
    let rows = cells(hyper, layer, reserve).saturating_mul(reserve.streams);
    let (key, value) = kind.rows(hyper, layer);
    let value = match value {
        // Latent attention caches no V, transposed or not.
        0 => 0,
        _ if kind.transposed && kind.latent.is_none() => widest_value,
        own => own,
    };
    // K, V and the index key, in the order of the engine's constructors.
    for (kind, elements) in [(kind.key_type(), key), (kind.value, value), (kind.key, index_row(hyper, layer))]
    {
        let row =
            kind.row(elements).ok_or(PlanError::CacheRow { kind: kind.name, elements, block: kind.block })?;
        // A tensor that is not there must not be padded.
        let padding = match elements {
            0 => Bytes::ZERO,
            _ => row_padding(kind, elements),
        };
        tensors.push((row * rows, padding));
    }
    Ok(tensors)
}

/// Elements of the index key of sparse attention (`llama-kv-cache-dsa.cpp @ b10605`).
fn index_row(hyper: &HyperParameters, layer: u32) -> u64 {
    match &hyper.indexer {
        Some(indexer) if hyper.indexes(layer) => u64::from(indexer.key_length),
        _ => 0,
    }
}

/// `llama-memory-recurrent.cpp @ b10605`: F32, one cell for each sequence and each draft token that can be rolled back.
fn recurrent_state(
    hyper: &HyperParameters,
    layer: u32,
    reserve: &Reserve,
    kind: CacheKind,
) -> Vec<(Bytes, Bytes)> {
    let Some(recurrent) = hyper.recurrent.as_ref().filter(|_| hyper.recurs(layer)) else {
        return Vec::new();
    };
    let cells = reserve.sequences.saturating_mul(kind.rollback.saturating_add(1));
    let states = [recurrent.rolling, recurrent.state].into_iter();
    states
        .filter(|&elements| elements > 0)
        .map(|elements| (Bytes::new(4) * elements * cells, Bytes::ZERO))
        .collect()
}

/// Bytes that one more token of context costs on all devices, over the layers whose cache grows with the context.
pub(super) fn bytes_per_token(
    hyper: &HyperParameters,
    layers: Range<u32>,
    reserve: &Reserve,
    kind: CacheKind,
) -> Bytes {
    let row = |layer| {
        let (key, value) = kind.rows(hyper, layer);
        let key = kind.key_type().row(key).unwrap_or_default();
        let value = kind.value.row(value).unwrap_or_default();
        key + value + kind.key.row(index_row(hyper, layer)).unwrap_or_default()
    };
    // A window that is smaller than the context stays as it is when the context grows.
    layers
        .filter(|&layer| hyper.caches(layer) && cells(hyper, layer, reserve) == reserve.per_sequence)
        .map(row)
        .sum()
}
