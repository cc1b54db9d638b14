//! Decides whether flash attention (`-fa`) is on, and why.
//!
//! The code mirrors `resolve_fused_ops` and `fattn.cu: ggml_cuda_get_best_fattn_kernel @ b10605`.

use plimsoll_flags::{FlashAttention, ModelParams};
use plimsoll_model::{HyperParameters, Model, TensorType};

use crate::{DeviceLayout, EngineKind, EngineQuirks, ModelLayers, PlanError, PlanRequest, TensorDevice};

/// Flash attention on or off, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flash {
    pub(super) on: bool,
    /// Reason why a card has no kernel. If flash attention stays on, the host computes it.
    pub(super) missing: Option<&'static str>,
}

impl Flash {
    /// A layer in host memory would attend on a card, or the other way round.
    pub(super) const MOVED: Self = Self {
        on: false,
        missing: Some("the attention of a layer in host memory would be computed on a card"),
    };

    /// True if the host computes attention, because a card has no kernel for it.
    pub(super) fn is_on_host(&self) -> bool {
        self.on && self.missing.is_some()
    }

    /// True if the engine looks at each layer's device before it decides: only where some layers are not on
    /// cards.
    pub(super) fn may_move(&self, request: &PlanRequest<'_>, layers: &ModelLayers<'_>) -> bool {
        let params = request.params;
        let free = params.flash_attention == FlashAttention::Auto && !params.cache_value.quantised();
        let llama = request.engine.kind == EngineKind::LlamaCpp;
        self.on && llama && free && layers.reaches_host()
    }
}

pub(super) fn resolve(
    request: &PlanRequest<'_>,
    model: &Model,
    layout: &DeviceLayout,
) -> Result<Flash, PlanError> {
    // With `-fa auto`, one layer without a kernel turns flash attention off for all layers. A quantised V
    // cache keeps flash attention on; layers without a kernel then run on the host.
    let params = request.params;
    let own_kernels = request.engine.kind == EngineKind::IkLlamaCpp;
    let asks = params.flash_attention != FlashAttention::Off && !own_kernels;
    let missing = asks.then(|| missing_kernel(model, layout, params)).flatten();
    // Only flash attention reads a quantised V: the other way needs V transposed, which splits its blocks.
    let needed = params.cache_value.quantised() && model.hyper.cached;
    let gives_up = EngineQuirks::of(request).gives_up_flash_attention;
    let on = match params.flash_attention {
        FlashAttention::Auto => missing.is_none() || needed && !gives_up,
        FlashAttention::On => true,
        FlashAttention::Off => false,
    };
    if !on && needed {
        return Err(PlanError::QuantisedCacheNeedsFlashAttention {
            kind: params.cache_value.name,
            why: missing.unwrap_or("-fa off"),
        });
    }
    Ok(Flash { on, missing })
}

fn missing_kernel(model: &Model, layout: &DeviceLayout, params: &ModelParams) -> Option<&'static str> {
    let on_card = |layer: &u32| matches!(layout.layer(*layer), TensorDevice::Card(_));
    (0..model.hyper.layers)
        .filter(|layer| model.hyper.attends(*layer) && on_card(layer))
        .find_map(|layer| unsupported(&model.hyper, layer, [params.cache_key, params.cache_value]))
}

/// The reason why the CUDA backend has no kernel for a layer with this cache; `None` if it has one.
pub(super) fn unsupported(
    hyper: &HyperParameters,
    layer: u32,
    cache: [TensorType; 2],
) -> Option<&'static str> {
    let kv_heads = u64::from(hyper.heads_kv.at(layer)).max(1);
    let key = hyper.key_row(layer) / kv_heads;
    let value = hyper.mla.map_or(hyper.value_row(layer) / kv_heads, |mla| u64::from(mla.kv_lora_rank));
    let ratio = u64::from(hyper.heads.at(layer)) / kv_heads;
    // Large head sizes have kernels only for grouped queries.
    let sizes = match key {
        40 | 64 | 72 | 80 | 96 | 112 | 128 | 256 => value == key,
        192 => value == 128 && ratio >= 2 && ratio.is_multiple_of(8),
        320 => value == 256 && ratio >= 2 && ratio.is_multiple_of(32),
        512 => value == key && ratio >= 2,
        // Latent attention: a vector of 512 and 64 elements of rotary key.
        576 => value == 512 && ratio >= 2,
        _ => false,
    };
    if !sizes {
        return Some("CUDA has no attention kernel for the model's head size");
    }
    if !hyper.cached {
        return None;
    }
    // Mixed types have kernels only in builds with GGML_CUDA_FA_ALL_QUANTS, which releases are not.
    if cache[0] != cache[1] {
        return Some("CUDA has no attention kernel for K and V of different types");
    }
    let supported = matches!(cache[0].name, "f32" | "f16" | "bf16" | "q4_0" | "q8_0");
    (!supported).then_some("CUDA has no attention kernel for this cache type")
}

#[cfg(test)]
mod tests {
    use plimsoll_flags::ProgramKind;
    use plimsoll_model::Dialect;
    use plimsoll_model::gguf::Header;

    use super::*;
    use crate::EngineBuild;

    fn resolved(params: &ModelParams, change: impl Fn(&mut Model)) -> Result<Flash, PlanError> {
        resolved_by(EngineBuild::LLAMA_CPP, params, change)
    }

    fn resolved_by(
        engine: EngineBuild,
        params: &ModelParams,
        change: impl Fn(&mut Model),
    ) -> Result<Flash, PlanError> {
        let draft = plimsoll_specimens::shape("l8").unwrap().files(1).remove(0);
        let bytes = draft.header();
        let length = u64::try_from(bytes.len()).unwrap() + draft.data_length().get();
        let mut model = Model::from_headers(&[Header::read(&bytes, length, Dialect::Ggml).unwrap()]).unwrap();
        change(&mut model);
        let cards = ["name=a,total=80GiB,cc=8.9".parse().unwrap()];
        let request = PlanRequest {
            model: &model,
            draft: None,
            projector: None,
            params,
            engine,
            program: ProgramKind::LlamaServer,
            cards: &cards,
            contexts: &[],
            processor: None,
        };
        let layout = DeviceLayout::new(&request, &model)?;
        resolve(&request, &model, &layout)
    }

    fn with_cache(key: &str, value: &str) -> ModelParams {
        let named = |name: &str| {
            let mut types = (0..64).filter_map(|id| Dialect::Ggml.tensor_type(id));
            types.find(|kind| kind.name == name).unwrap()
        };
        ModelParams {
            cache_key: named(key),
            cache_value: named(value),
            ..ModelParams::of(ProgramKind::LlamaServer)
        }
    }

    #[test]
    fn automatic_is_on_where_every_layer_has_a_kernel() {
        assert!(resolved(&with_cache("f16", "f16"), |_| {}).unwrap().on);
        assert!(resolved(&with_cache("q8_0", "q8_0"), |_| {}).unwrap().on);
    }

    #[test]
    fn automatic_is_off_for_a_head_size_without_kernel() {
        let odd = |model: &mut Model| {
            model.hyper.key_length = 120;
            model.hyper.value_length = 120;
        };
        let flash = resolved(&with_cache("f16", "f16"), odd).unwrap();
        assert!(!flash.on && flash.missing.unwrap().contains("head size"));
    }

    #[test]
    fn a_quantised_v_cache_needs_it_and_gets_it_even_from_the_host() {
        for (key, value) in [("f16", "q8_0"), ("q4_1", "q4_1")] {
            let flash = resolved(&with_cache(key, value), |_| {}).unwrap();
            assert!(flash.on && flash.missing.is_some(), "{key} {value}");
        }
        let off = ModelParams { flash_attention: FlashAttention::Off, ..with_cache("q8_0", "q8_0") };
        assert!(resolved(&off, |_| {}).is_err());
    }

    /// `quantized V cache was requested, but this requires Flash Attention @ b8799`.
    #[test]
    fn an_older_engine_refuses_it_instead() {
        let older = EngineBuild { build: Some(8799), ..EngineBuild::LLAMA_CPP };
        let error = resolved_by(older, &with_cache("q8_0", "q4_0"), |_| {}).unwrap_err();
        assert!(error.to_string().contains("different types"), "{error}");
        let stays = resolved_by(older, &with_cache("q8_0", "f16"), |_| {}).unwrap();
        assert!(!stays.on && stays.missing.is_some());
    }
}
