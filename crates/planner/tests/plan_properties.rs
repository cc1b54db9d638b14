//! Property tests of plans for random models and flags, such as that a longer context never takes less
//! memory.

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::{FlashAttention, GpuLayers, ModelParams, Parallel, ProgramKind};
use plimsoll_model::{Model, PerLayer, types};
use plimsoll_planner::{EngineBuild, EngineKind, Plan, PlanError, PlanRequest, plan};
use proptest::prelude::*;

use super::zoo;

fn shape(name: &str, layers: u32) -> Model {
    let recipe = plimsoll_specimens::Recipe { layers, ..plimsoll_specimens::shape(name).unwrap() };
    let draft = recipe.files(1).remove(0);
    zoo::read(&draft)
}

fn cards(count: usize) -> Vec<Card> {
    (0..count).map(|i| format!("name=card{i},total=80GiB,cc=8.9").parse().unwrap()).collect()
}

fn planned(model: &Model, params: &ModelParams, cards: &[Card]) -> Result<Plan, PlanError> {
    plan(&PlanRequest {
        model,
        draft: None,
        projector: None,
        params,
        engine: EngineBuild::LLAMA_CPP,
        program: ProgramKind::LlamaServer,
        cards,
        contexts: &[],
        processor: None,
    })
}

/// Weights, cache and compute buffers on all cards and in host memory.
fn cost(plan: &Plan) -> Bytes {
    plan.cards.iter().map(|card| card.peak).sum::<Bytes>() + plan.host.peak
}

fn shapes() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["l8", "q30", "oss", "qwen3-4b", "kimi-k2", "tiny"])
}

prop_compose! {
    fn params()(
        context in 256_u32..262_144,
        micro_batch in prop::sample::select(vec![1_u32, 64, 512, 2048]),
        slots in prop::option::of(1_u32..9),
        unified in prop::option::of(any::<bool>()),
        layers in prop::option::of(0_u32..40),
        experts in 0_u32..9,
        flash in prop::sample::select(vec![FlashAttention::Auto, FlashAttention::On, FlashAttention::Off]),
    ) -> ModelParams {
        ModelParams {
            context,
            micro_batch,
            parallel: slots.map_or(Parallel::Auto, Parallel::Count),
            unified_cache: unified,
            gpu_layers: layers.map_or(GpuLayers::Auto, GpuLayers::Count),
            experts_on_host: experts,
            flash_attention: flash,
            ..ModelParams::of(ProgramKind::LlamaServer)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn twice_the_context_never_costs_less(name in shapes(), params in params(), count in 0_usize..4) {
        let model = shape(name, 8);
        let before = planned(&model, &params, &cards(count)).unwrap();
        let larger = ModelParams { context: params.context * 2, ..params };
        let after = planned(&model, &larger, &cards(count)).unwrap();
        prop_assert!(cost(&before) <= cost(&after), "{} then {}", cost(&before), cost(&after));
    }

    #[test]
    fn a_quantised_cache_is_never_larger(name in shapes(), params in params(), count in 1_usize..4) {
        let model = shape(name, 8);
        let params = ModelParams { flash_attention: FlashAttention::On, ..params };
        let quantised = ModelParams { cache_key: types::Q8_0, cache_value: types::Q8_0, ..params.clone() };
        let kv = |plan: &Plan| plan.cards.iter().map(|card| card.terms.kv.known()).sum::<Bytes>() + plan.host.terms.kv.known();
        let plain = planned(&model, &params, &cards(count)).unwrap();
        match planned(&model, &quantised, &cards(count)) {
            Ok(smaller) => prop_assert!(kv(&smaller) <= kv(&plain)),
            Err(error) => prop_assert!(matches!(error, PlanError::CacheRow { .. }), "{error}"),
        }
    }

    #[test]
    fn spreading_over_more_cards_moves_weights_and_cache_but_adds_none(name in shapes(), params in params(), count in 1_usize..5) {
        let model = shape(name, 8);
        let total = |count: usize| {
            let plan = planned(&model, &params, &cards(count)).unwrap();
            let sum = |term: fn(&plimsoll_planner::Terms) -> Bytes| plan.cards.iter().map(|card| term(&card.terms)).sum::<Bytes>();
            (
                sum(|terms| terms.weights.known()) + plan.host.terms.weights.known(),
                sum(|terms| terms.kv.known()) + plan.host.terms.kv.known(),
            )
        };
        prop_assert_eq!(total(count), total(1));
    }

    #[test]
    fn the_largest_context_fits_and_the_next_does_not(name in shapes(), free in 1_u64..60) {
        let model = shape(name, 8);
        let card: Card = format!("name=card,total={free}GiB,cc=8.9").parse().unwrap();
        let params = ModelParams::of(ProgramKind::LlamaServer);
        let plan = planned(&model, &params, std::slice::from_ref(&card)).unwrap();
        let at = |tokens: u64| {
            let params = ModelParams { context: u32::try_from(tokens).unwrap(), ..params.clone() };
            planned(&model, &params, std::slice::from_ref(&card)).unwrap().fits
        };
        if let Some(tokens) = plan.largest_context {
            prop_assert!(at(tokens));
            let trained = u64::from(model.hyper.context_train);
            prop_assert!(tokens >= trained || !at(tokens + 256));
        } else {
            prop_assert!(!at(256));
        }
    }

    #[test]
    fn no_header_is_absurd_enough_for_a_panic(
        name in shapes(),
        params in params(),
        numbers in prop::array::uniform10(any::<u32>()),
        shape_numbers in prop::collection::vec(any::<u64>(), 4),
        ik in any::<bool>(),
        count in 0_usize..3,
    ) {
        let mut model = shape(name, 3);
        let hyper = &mut model.hyper;
        let [layers, embedding, vocabulary, heads, heads_kv, key, value, window, trained, rope] = numbers;
        hyper.layers = layers % 2000;
        hyper.embedding = embedding;
        hyper.vocabulary = vocabulary;
        hyper.heads = PerLayer::Same(heads);
        hyper.heads_kv = PerLayer::Each(vec![heads_kv, 0, 1]);
        hyper.key_length = key;
        hyper.value_length = value;
        hyper.rope_dimension = rope;
        hyper.context_train = trained;
        if let Some(sliding) = &mut hyper.sliding {
            sliding.window = window;
        }
        for (tensor, number) in model.tensors.iter_mut().zip(shape_numbers) {
            tensor.shape[0] = number;
            tensor.bytes = Bytes::new(number);
        }
        let kind = if ik { EngineKind::IkLlamaCpp } else { EngineKind::LlamaCpp };
        let params = ModelParams { batch: u32::MAX, micro_batch: heads, parallel: Parallel::Count(window), ..params };
        let _ = plan(&PlanRequest {
            model: &model,
            draft: Some(&model),
            projector: Some(&model),
            params: &params,
            engine: EngineBuild { kind, build: Some(key) },
            program: ProgramKind::Library,
            cards: &cards(count),
            contexts: &[],
            processor: None,
        });
    }
}
