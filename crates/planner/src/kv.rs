//! The KV cache and recurrent state: exact from the header and the context.
//!
//! Mirrors `llama-kv-cache.cpp`, `llama-kv-cache-iswa.cpp` and `llama-memory-recurrent.cpp` (constructors)
//! `@ b10605`. One K and one V tensor a layer, on the layer's device; sliding layers have fewer cells; layers that
//! share a cache, and encoders, have none; recurrent layers keep a state that does not depend on the context.

use plimsoll_base::Bytes;
use plimsoll_model::{HyperParameters, Model, TensorType};

use super::error::PlanError;
use super::latent::{LatentAttention, LatentCache};
use super::layout::{DeviceLayout, TensorDevice};
use super::reserve::Reserve;
use super::weights::{CARD_ALIGNMENT, HOST_ALIGNMENT, row_padding};

/// The types and the shape of a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheKind {
    pub(super) key: TensorType,
    pub(super) value: TensorType,
    /// Where flash attention is off from the start V is stored transposed, every layer as wide as the widest.
    pub(super) transposed: bool,
    /// `-nkvo` keeps the whole cache in host memory.
    pub(super) offload: bool,
    /// Draft tokens whose state can be rolled back (`n_rs_seq`).
    pub(super) rollback: u64,
    /// LatentAttention attention in ik_llama.cpp's ways; llama.cpp's needs nothing more than the header.
    pub(super) latent: Option<LatentAttention>,
}

impl CacheKind {
    /// Elements of one token's K and V in a layer, without the transposition's padding.
    fn rows(self, hyper: &HyperParameters, layer: u32) -> (u64, u64) {
        match self.latent {
            Some(latent) => latent.rows(hyper.heads.at(layer), !self.transposed),
            None => (hyper.key_row(layer), hyper.value_row(layer)),
        }
    }

    /// The type that K has in the end (`llama.cpp: llama_kv_cache_init`, 8337e4cd): without flash attention the vectors have V's.
    fn key_type(self) -> TensorType {
        let vectors = self.latent.filter(|_| self.transposed);
        match vectors.map(|latent| (latent.mode, latent.cached(false))) {
            Some((2.., LatentCache::Vector)) => self.value,
            _ => self.key,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cache {
    pub(super) devices: Vec<Bytes>,
    pub(super) host: Bytes,
}

/// The cache of `layers` of a model: the main ones, or the prediction layers alone.
pub(super) fn cache(
    model: &Model,
    layers: std::ops::Range<u32>,
    reserve: &Reserve,
    kind: CacheKind,
    layout: &DeviceLayout,
) -> Result<Cache, PlanError> {
    let mut cache = Cache {
        devices: vec![Bytes::ZERO; layout.devices.len()],
        host: Bytes::ZERO,
    };
    let widest = (0..model.hyper.layers)
        .map(|layer| model.hyper.value_row(layer))
        .max()
        .unwrap_or(0);
    for layer in layers {
        let place = if kind.offload {
            layout.layer(layer)
        } else {
            TensorDevice::Host
        };
        for tensor in tensors(&model.hyper, layer, reserve, kind, widest)? {
            match place {
                TensorDevice::Host => cache.host += tensor.data.padded(HOST_ALIGNMENT),
                TensorDevice::Card(device) => {
                    cache.devices[usize::from(device)] +=
                        (tensor.data + tensor.padding).padded(CARD_ALIGNMENT)
                }
            }
        }
    }
    Ok(cache)
}

/// Cells of a layer's cache in one stream.
pub(super) fn cells(hyper: &HyperParameters, layer: u32, reserve: &Reserve) -> u64 {
    match &hyper.sliding {
        Some(sliding) if hyper.slides(layer) => reserve.sliding_cells(u64::from(sliding.window)),
        _ => reserve.per_sequence,
    }
}

/// One tensor of the cache: its data, and what a card adds at the end.
struct CacheTensor {
    data: Bytes,
    padding: Bytes,
}

fn tensors(
    hyper: &HyperParameters,
    layer: u32,
    reserve: &Reserve,
    kind: CacheKind,
    widest_value: u64,
) -> Result<Vec<CacheTensor>, PlanError> {
    let mut tensors = recurrent_state(hyper, layer, reserve, kind);
    if !hyper.caches(layer) {
        return Ok(tensors);
    }
    let rows = cells(hyper, layer, reserve).saturating_mul(reserve.streams);
    let (key, value) = kind.rows(hyper, layer);
    let value = match value {
        0 => 0,
        _ if kind.transposed && kind.latent.is_none() => widest_value,
        own => own,
    };
    for (kind, elements) in [
        (kind.key_type(), key),
        (kind.value, value),
        (kind.key, index_row(hyper, layer)),
    ] {
        let row = kind.row(elements).ok_or(PlanError::CacheRow {
            kind: kind.name,
            elements,
            block: kind.block,
        })?;
        tensors.push(CacheTensor {
            data: row * rows,
            padding: if elements > 0 {
                row_padding(kind, elements)
            } else {
                Bytes::ZERO
            },
        });
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

/// `llama-memory-recurrent.cpp @ b10605`: F32, one cell a sequence and one more for every draft token.
fn recurrent_state(
    hyper: &HyperParameters,
    layer: u32,
    reserve: &Reserve,
    kind: CacheKind,
) -> Vec<CacheTensor> {
    let Some(recurrent) = hyper.recurrent.as_ref().filter(|_| hyper.recurs(layer)) else {
        return Vec::new();
    };
    let cells = reserve.sequences.saturating_mul(kind.rollback.saturating_add(1));
    [recurrent.rolling, recurrent.state]
        .into_iter()
        .filter(|&elements| elements > 0)
        .map(|elements| CacheTensor {
            data: Bytes::new(4) * elements * cells,
            padding: Bytes::ZERO,
        })
        .collect()
}

/// Bytes that one more token of context costs over all places, for layers whose cache grows with it.
pub(super) fn bytes_per_token(
    hyper: &HyperParameters,
    layers: std::ops::Range<u32>,
    reserve: &Reserve,
    kind: CacheKind,
) -> Bytes {
    layers
        .filter(|&layer| hyper.caches(layer))
        .filter(|&layer| cells(hyper, layer, reserve) == reserve.per_sequence)
        .map(|layer| {
            let (key, value) = kind.rows(hyper, layer);
            let key = kind.key_type().row(key).unwrap_or_default();
            let value = kind.value.row(value).unwrap_or_default();
            let index = kind.key.row(index_row(hyper, layer)).unwrap_or_default();
            key + value + index
        })
        .sum()
}
