//! Describes how a KV cache lies in its allocation, so that guard can divide it between card and host memory.
//!
//! An engine allocates the cache of a context at once for each card. K and V of one layer follow the other,
//! each with the positions of one stream behind those of another
//! (`llama-kv-cache.cpp: llama_kv_cache @ b10605`). Layers with a sliding window have a cache of their own
//! (`llama-kv-cache-iswa.cpp`), and so have recurrent states.

use plimsoll_model::TensorType;
use plimsoll_wire::cache::{CacheLayout, CacheTensor};

use crate::engine_context::EngineContext;
use crate::kv::{cells, stored_rows};
use crate::weights::row_padding;
use crate::{CARD_ALIGNMENT, Reserve, TensorDevice};

/// The cache allocations of a context that have positions which short conversations leave unused: the
/// position of the card in the request, and the layout. An allocation without one is left out.
pub(super) fn layouts(of: &EngineContext<'_>, reserve: &Reserve) -> Vec<(usize, CacheLayout)> {
    let devices = of.layout.devices.iter().enumerate();
    let each = devices.flat_map(|(device, &card)| {
        let place = TensorDevice::card(device);
        [false, true]
            .into_iter()
            .filter_map(move |sliding| Some((card, layout(of, reserve, place, sliding)?)))
    });
    each.collect()
}

fn layout(of: &EngineContext<'_>, reserve: &Reserve, on: TensorDevice, sliding: bool) -> Option<CacheLayout> {
    let hyper = &of.model.hyper;
    // Sparse attention keeps its index keys in a third cache (`llama-kv-cache-dsa.cpp @ b10605`).
    if hyper.indexer.is_some() {
        return None;
    }
    let positions = u32::try_from(reserve.per_sequence).ok()?;
    let mut layout = CacheLayout::new(u32::try_from(reserve.streams).ok()?, positions)?;
    let stored = stored_rows(of);
    let layers = of.layers.clone().filter(|layer| hyper.caches(*layer) && hyper.slides(*layer) == sliding);
    for layer in layers.filter(|layer| of.graph.cache.device(of.layout.layer(*layer)) == on) {
        // A window smaller than the context is in use as a whole after a few answers.
        if cells(hyper, layer, reserve) != reserve.per_sequence {
            return None;
        }
        let [key, value, _] = stored(layer);
        layout.add(1, [tensor(key, reserve, true)?, tensor(value, reserve, !of.graph.cache.transposed)?])?;
    }
    (layout.size() > 0).then_some(layout)
}

/// A tensor of a layer; `by_position` says that the elements of a position lie side by side.
fn tensor((kind, elements): (TensorType, u64), reserve: &Reserve, by_position: bool) -> Option<CacheTensor> {
    let row = kind.row(elements)?;
    let data = row * reserve.per_sequence.checked_mul(reserve.streams)?;
    let size = (data + row_padding(kind, elements)).padded(CARD_ALIGNMENT);
    Some(CacheTensor { row: if by_position { row.get() } else { 0 }, size: size.get() })
}
