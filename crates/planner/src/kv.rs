//! Computes the size of the KV cache and of recurrent states exactly, from the header and the context length.
//!
//! The code mirrors the constructors in `llama-kv-cache.cpp`, `llama-kv-cache-iswa.cpp` and
//! `llama-memory-recurrent.cpp @ b10605`.

use plimsoll_base::Bytes;
use plimsoll_model::{HyperParameters, TensorType};

use crate::engine_context::EngineContext;
use crate::weights::row_padding;
use crate::{DeviceBytes, LatentAttention, PlanError, Reserve, TensorDevice};

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
        if self.offload { layer } else { TensorDevice::Host }
    }

    /// Types and elements of one token's K, V and index key in a layer, in the order of the engine's
    /// constructors; without the padding of a transposed V.
    fn rows(self, hyper: &HyperParameters, layer: u32) -> [(TensorType, u64); 3] {
        let (key, value) = match self.latent {
            Some(latent) => latent.rows(hyper.heads.at(layer), !self.transposed),
            None => (hyper.key_row(layer), hyper.value_row(layer)),
        };
        // Sparse attention has an index key (`llama-kv-cache-dsa.cpp @ b10605`).
        let index = hyper.indexer.as_ref().filter(|_| hyper.indexes(layer));
        let index = index.map_or(0, |indexer| u64::from(indexer.key_length));
        // Without flash attention, the vectors of modes 2 and 3 have the type of V (`llama.cpp:
        // llama_kv_cache_init`, 8337e4cd).
        let vectors = self.latent.is_some_and(|latent| self.transposed && latent.mode > 1);
        [(if vectors { self.value } else { self.key }, key), (self.value, value), (self.key, index)]
    }
}

/// The cache of a context's layers: the main ones, or the prediction layers alone.
pub(super) fn cache(of: &EngineContext<'_>, reserve: &Reserve) -> Result<DeviceBytes, PlanError> {
    let (hyper, kind) = (&of.model.hyper, of.graph.cache);
    let mut cache = DeviceBytes::none(&of.layout);
    let stored = stored_rows(of);
    for layer in of.layers.clone() {
        let place = kind.device(of.layout.layer(layer));
        if let Some(recurrent) = hyper.recurrent.as_ref().filter(|_| hyper.recurs(layer)) {
            // `llama-memory-recurrent.cpp @ b10605`: F32, one cell for each sequence and each draft token
            // that can be rolled back.
            let cells = reserve.sequences.saturating_mul(kind.rollback.saturating_add(1));
            cache.add(place, Bytes::new(4) * recurrent.rolling * cells, Bytes::ZERO);
            cache.add(place, Bytes::new(4) * recurrent.state * cells, Bytes::ZERO);
        }
        if !hyper.caches(layer) {
            continue;
        }
        let rows = cells(hyper, layer, reserve).saturating_mul(reserve.streams);
        for (kind, elements) in stored(layer) {
            let refused = PlanError::CacheRow { kind: kind.name, elements, block: kind.block };
            cache.add(place, kind.row(elements).ok_or(refused)? * rows, row_padding(kind, elements));
        }
    }
    Ok(cache)
}

/// Types and elements of one token's K, V and index key in a layer, as the cache stores them.
pub(super) fn stored_rows(of: &EngineContext<'_>) -> impl Fn(u32) -> [(TensorType, u64); 3] {
    let (hyper, kind) = (&of.model.hyper, of.graph.cache);
    let widest = widest_value(hyper);
    move |layer| {
        let mut each = kind.rows(hyper, layer);
        // Latent attention caches no V, transposed or not.
        if each[1].1 > 0 && kind.transposed && kind.latent.is_none() {
            each[1].1 = widest;
        }
        each
    }
}

/// Elements of V in the widest layer.
pub(super) fn widest_value(hyper: &HyperParameters) -> u64 {
    (0..hyper.layers).map(|layer| hyper.value_row(layer)).max().unwrap_or(0)
}

/// Cells of a layer's cache in one stream.
pub(super) fn cells(hyper: &HyperParameters, layer: u32, reserve: &Reserve) -> u64 {
    let sliding = hyper.sliding.as_ref().filter(|_| hyper.slides(layer));
    sliding.map_or(reserve.per_sequence, |sliding| reserve.sliding_cells(u64::from(sliding.window)))
}

/// Bytes that one more token of context costs on all devices, over the layers whose cache grows with the
/// context.
pub(super) fn bytes_per_token(of: &EngineContext<'_>, reserve: &Reserve) -> Bytes {
    let hyper = &of.model.hyper;
    // A window that is smaller than the context stays as it is when the context grows.
    let grows = |layer: &u32| hyper.caches(*layer) && cells(hyper, *layer, reserve) == reserve.per_sequence;
    let rows = of.layers.clone().filter(grows).flat_map(|layer| of.graph.cache.rows(hyper, layer));
    rows.map(|(kind, elements)| kind.row(elements).unwrap_or_default()).sum()
}
