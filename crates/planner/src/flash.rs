//! Whether flash attention is used, resolved as the engine does.
//!
//! Mirrors `llama-context.cpp: resolve_fused_ops` and `fattn.cu: ggml_cuda_get_best_fattn_kernel @ b10605`. With
//! `-fa auto` it is used where every layer's card has a kernel for the head size and cache type; one layer
//! without switches it off for all, and the whole KQ matrix appears in the compute buffer. A quantised V cache needs
//! it: with `-fa auto` it then stays on, and layers without a kernel attend in host memory.
//! ik_llama.cpp has it on unless told otherwise, and kernels of its own that are not listed here.

use plimsoll_flags::{FlashAttention, Wish};
use plimsoll_model::{HyperParameters, Model, TensorType};

use super::compute::ModelLayers;
use super::error::PlanError;
use super::layout::{DeviceLayout, TensorDevice};
use super::request::{EngineKind, PlanRequest};

/// On or off, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flash {
    pub(super) on: bool,
    /// Why a card has no kernel: then `-fa auto` is off, and what stays on is computed by the host.
    pub(super) missing: Option<&'static str>,
}

impl Flash {
    /// A layer of the host would attend on a card, or the other way round.
    pub(super) const MOVED: Self = Self {
        on: false,
        missing: Some("a layer in host memory would attend on a card"),
    };

    /// Is it for the engine to see where each layer would attend? Only where not all layers are on cards does that need a look.
    pub(super) fn may_move(&self, request: &PlanRequest<'_>, sketch: &ModelLayers<'_>) -> bool {
        let wish = request.wish;
        let free = wish.flash_attention == FlashAttention::Auto && !wish.cache_value.quantised();
        let llama = request.engine.kind == EngineKind::LlamaCpp;
        self.on && llama && free && sketch.reaches_host()
    }
}

pub(super) fn resolve(
    request: &PlanRequest<'_>,
    model: &Model,
    layout: &DeviceLayout,
) -> Result<Flash, PlanError> {
    let wish = request.wish;
    let own_kernels = request.engine.kind == EngineKind::IkLlamaCpp;
    let missing = match wish.flash_attention {
        FlashAttention::Auto | FlashAttention::On if !own_kernels => missing_kernel(model, layout, wish),
        _ => None,
    };
    let needed = wish.cache_value.quantised() && model.hyper.cached;
    let on = match wish.flash_attention {
        FlashAttention::Auto => missing.is_none() || needed && !request.engine.gives_up_flash_attention(),
        FlashAttention::On => true,
        FlashAttention::Off => false,
    };
    if !on && needed {
        return Err(PlanError::QuantisedCacheNeedsFlashAttention {
            kind: wish.cache_value.name,
            why: missing.unwrap_or("-fa off"),
        });
    }
    Ok(Flash { on, missing })
}

fn missing_kernel(model: &Model, layout: &DeviceLayout, wish: &Wish) -> Option<&'static str> {
    (0..model.hyper.layers)
        .filter(|&layer| model.hyper.attends(layer) && matches!(layout.layer(layer), TensorDevice::Card(_)))
        .find_map(|layer| unsupported(&model.hyper, layer, [wish.cache_key, wish.cache_value]))
}

/// Why the CUDA backend has no kernel for a layer that caches K and V so; `None` if it has one.
pub(super) fn unsupported(
    hyper: &HyperParameters,
    layer: u32,
    [cache_key, cache_value]: [TensorType; 2],
) -> Option<&'static str> {
    let kv_heads = u64::from(hyper.heads_kv.at(layer)).max(1);
    let key = hyper.key_row(layer) / kv_heads;
    let value = match &hyper.mla {
        Some(mla) => u64::from(mla.kv_lora_rank),
        None => hyper.value_row(layer) / kv_heads,
    };
    let ratio = u64::from(hyper.heads.at(layer)) / kv_heads;
    let sizes = match key {
        40 | 64 | 72 | 80 | 96 | 112 | 128 | 256 => value == key,
        192 => value == 128 && ratio >= 2 && ratio.is_multiple_of(8),
        320 => value == 256 && ratio >= 2 && ratio.is_multiple_of(32),
        512 => value == key && ratio >= 2,
        576 => value == 512 && ratio >= 2,
        _ => false,
    };
    if !sizes {
        return Some("no CUDA kernel for the model's head size");
    }
    if !hyper.cached {
        return None;
    }
    if cache_key != cache_value {
        return Some("no CUDA kernel for K and V of different types");
    }
    let supported = matches!(cache_key.name, "f32" | "f16" | "bf16" | "q4_0" | "q8_0");
    (!supported).then_some("no CUDA kernel for this cache type")
}

#[cfg(test)]
mod tests {
    use plimsoll_flags::Program;
    use plimsoll_model::gguf::Header;
    use plimsoll_model::{Dialect, types};

    use super::*;
    use crate::Engine;

    fn resolved(wish: &Wish, change: impl Fn(&mut Model)) -> Result<Flash, PlanError> {
        resolved_by(Engine::LLAMA_CPP, wish, change)
    }

    fn resolved_by(engine: Engine, wish: &Wish, change: impl Fn(&mut Model)) -> Result<Flash, PlanError> {
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
            wish,
            engine,
            program: Program::LlamaServer,
            cards: &cards,
            contexts: &[],
        };
        let layout = DeviceLayout::new(&request, &model)?;
        resolve(&request, &model, &layout)
    }

    fn with_cache(key: &str, value: &str) -> Wish {
        Wish {
            cache_key: types::by_name(key).unwrap(),
            cache_value: types::by_name(value).unwrap(),
            ..Wish::of(Program::LlamaServer)
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
        let off = Wish {
            flash_attention: FlashAttention::Off,
            ..with_cache("q8_0", "q8_0")
        };
        assert!(resolved(&off, |_| {}).is_err());
    }

    /// `quantized V cache was requested, but this requires Flash Attention @ b8799`.
    #[test]
    fn an_older_engine_refuses_it_instead() {
        let older = Engine {
            build: Some(8799),
            ..Engine::LLAMA_CPP
        };
        let error = resolved_by(older, &with_cache("q8_0", "q4_0"), |_| {}).unwrap_err();
        assert!(error.to_string().contains("different types"), "{error}");
        let stays = resolved_by(older, &with_cache("q8_0", "f16"), |_| {}).unwrap();
        assert!(!stays.on && stays.missing.is_some());
    }
}
