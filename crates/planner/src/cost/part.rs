//! One context of the engine, with all of it that does not depend on how long the context is.

use plimsoll_flags::{FlashAttention, Wish};
use plimsoll_model::{Model, Tensor};

use super::super::compute::{self, ModelLayers};
use super::super::error::PlanError;
use super::super::flash::{self, Flash};
use super::super::kv::CacheKind;
use super::super::latent::LatentAttention;
use super::super::layout::DeviceLayout;
use super::super::pool;
use super::super::request::PlanRequest;
use super::super::weights::{self, Weights};

/// One context of the engine: the model's, the draft model's, or that of the model's own prediction layers.
pub(super) struct EngineContext<'a> {
    pub(super) model: &'a Model,
    pub(super) layers: std::ops::Range<u32>,
    pub(super) layout: DeviceLayout,
    pub(super) weights: Option<Weights>,
    pub(super) sketch: ModelLayers<'a>,
    /// Distinct matrices of each device.
    pub(super) matrices: Vec<Vec<&'a Tensor>>,
    pub(super) flash: Flash,
    pub(super) cache: CacheKind,
}

impl<'a> EngineContext<'a> {
    pub(super) fn new(
        request: &PlanRequest<'_>,
        model: &'a Model,
        layers: std::ops::Range<u32>,
        loads_prediction_layers: Option<bool>,
        rollback: u64,
    ) -> Result<Self, PlanError> {
        let layout = DeviceLayout::new(request, model)?;
        let mut flash = flash::resolve(request, model, &layout)?;
        let latent = LatentAttention::of(request, model);
        let weights = loads_prediction_layers.map(|all| {
            let mut weights = weights::weights(model, &layout, all);
            if let Some(latent) = latent {
                latent.add_computed(model, &layout, &mut weights);
            }
            weights
        });
        let cache = CacheKind {
            key: request.wish.cache_key,
            value: request.wish.cache_value,
            transposed: !flash.on && request.wish.flash_attention != FlashAttention::Auto,
            offload: request.wish.cache_offload,
            rollback,
            latent,
        };
        let sketch = ModelLayers::new(model, layers.clone(), &layout, flash);
        if flash.may_move(request, &sketch) && !compute::attends_at_home(request, &sketch, cache, flash) {
            flash = Flash::MOVED;
        }
        Ok(Self {
            model,
            sketch,
            matrices: pool::matrices(model, &layout),
            layers,
            weights,
            cache,
            flash,
            layout,
        })
    }
}

/// What the flags for a draft model ask of it, in the words for a model of its own.
pub(crate) fn draft_wish(wish: &Wish) -> Wish {
    Wish {
        gpu_layers: wish.draft_gpu_layers,
        cache_key: wish.draft_cache_key,
        cache_value: wish.draft_cache_value,
        overrides: wish.draft_overrides.clone(),
        experts_on_host: wish.draft_experts_on_host,
        devices: if wish.draft_devices.is_empty() {
            wish.devices.clone()
        } else {
            wish.draft_devices.clone()
        },
        ..wish.clone()
    }
}
