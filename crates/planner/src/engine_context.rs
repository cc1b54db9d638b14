//! Computes the memory of an engine's context, of a model or its draft, that does not grow with its length.

use std::ops::Range;

use plimsoll_flags::FlashAttention;
use plimsoll_model::{Model, Tensor};

use crate::{
    CacheKind, DeviceBytes, DeviceLayout, Flash, LatentAttention, ModelLayers, PlanError, PlanRequest,
    RepackedBytes, Repacking, compute, flash, pool, repack, weights,
};

/// The layers of an engine context.
pub(crate) struct ContextLayers {
    /// For which a cache is reserved.
    pub(crate) cached: Range<u32>,
    /// Which its graph computes.
    pub(crate) computed: Range<u32>,
    /// Whether it loads prediction layers too; `None` for a context that loads no weights.
    pub(crate) loads_prediction: Option<bool>,
    /// Draft tokens whose state can be rolled back.
    pub(crate) rollback: u64,
}

impl ContextLayers {
    /// All layers of a model.
    pub(crate) fn whole(model: &Model) -> Self {
        let all = 0..model.hyper.layers;
        Self { cached: all.clone(), computed: all, loads_prediction: Some(true), rollback: 0 }
    }
}

/// An engine context: the model's, the draft model's, or that of the model's own prediction layers.
pub(crate) struct EngineContext<'a> {
    pub(crate) model: &'a Model,
    /// The layers for which a cache is reserved.
    pub(crate) layers: Range<u32>,
    pub(crate) layout: DeviceLayout,
    /// Weights that the context loads; `None` if another context of the process loads them.
    pub(crate) weights: Option<DeviceBytes>,
    /// Weights of them that the CPU backend copies.
    pub(crate) repacked: RepackedBytes,
    /// The tensors by layer, with the cache and flash attention that the graph is built for.
    pub(crate) graph: ModelLayers<'a>,
    /// Distinct matrices of each device.
    pub(crate) matrices: Vec<Vec<&'a Tensor>>,
}

impl<'a> EngineContext<'a> {
    pub(crate) fn new(
        request: &PlanRequest<'_>,
        model: &'a Model,
        layers: ContextLayers,
    ) -> Result<Self, PlanError> {
        let ContextLayers { cached, computed, loads_prediction, rollback } = layers;
        let params = request.params;
        let layout = DeviceLayout::new(request, model)?;
        let flash = flash::resolve(request, model, &layout)?;
        // Weights may grow by matrices that the engine computes when it loads.
        let latent = LatentAttention::of(request, model);
        let weights = loads_prediction.map(|all| {
            let mut weights = weights::weights(model, &layout, all, &Repacking::of(request, &layout));
            if let Some(latent) = latent {
                latent.add_computed(model, &layout, &mut weights);
            }
            weights
        });
        let cache = CacheKind {
            key: params.cache_key,
            value: params.cache_value,
            // With -fa auto the cache is allocated before flash attention is decided on, so it is never
            // transposed.
            transposed: !flash.on && params.flash_attention != FlashAttention::Auto,
            offload: params.cache_offload,
            rollback,
            latent,
        };
        let mut graph = ModelLayers::new(model, computed, &layout, cache, flash);
        if flash.may_move(request, &graph) && !compute::attends_at_home(request, &graph) {
            graph.flash = Flash::MOVED;
        }
        let repacked = loads_prediction
            .map(|all| repack::repacked(request, model, &layout, all, weights::tied_output(model)));
        let repacked = repacked.unwrap_or_default();
        let matrices = pool::matrices(model, &layout);
        Ok(Self { model, graph, matrices, layers: cached, weights, repacked, layout })
    }
}
