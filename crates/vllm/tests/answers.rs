//! Tests of the plan's answers: whether vLLM starts, what fits, and two engines on one card.

use plimsoll_base::{Bytes, Card, CardSpec};
use plimsoll_vllm::{CONTEXT, DType, ModelConfig, Neighbour, ServeCommand, Tensor, VllmPlan, together};
use proptest::prelude::*;

const CONFIG: &str = r#"{"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072}"#;

fn card(total: u64) -> Vec<Card> {
    let card: CardSpec = format!("name=card,total={total}MiB,free={total}MiB,cc=9.0").parse().unwrap();
    card.cards
}

/// A checkpoint of this many GiB in one matrix.
fn weights(gib: u64) -> Vec<Tensor> {
    let shape = vec![gib << 29];
    let dtype = DType::from_name("BF16").unwrap();
    vec![Tensor {
        name: "model.layers.0.mlp.up_proj.weight".to_owned(),
        dtype,
        shape,
        bytes: Bytes::gib(gib),
    }]
}

fn plan(flags: &str, gib: u64, total: u64) -> VllmPlan {
    let words: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    let command = ServeCommand::read(&words).unwrap();
    VllmPlan::new(&ModelConfig::read(CONFIG).unwrap(), &weights(gib), &command, &card(total)).unwrap()
}

#[test]
fn the_utilisation_is_of_the_whole_card_whatever_is_free() {
    let plan = plan("m --gpu-memory-utilization 0.5 --max-model-len 8192", 15, 80 << 10);
    assert_eq!(plan.allowed, Bytes::gib(40));
    assert!(plan.fits);
    // Its context is beside the utilisation.
    assert_eq!(plan.answers.left, Bytes::gib(40).saturating_sub(CONTEXT));
}

#[test]
fn a_model_that_is_larger_than_the_utilisation_does_not_start() {
    let plan = plan("m --gpu-memory-utilization 0.9 --max-model-len 8192", 75, 80 << 10);
    assert!(!plan.fits && plan.cache.likely.is_zero());
    assert_eq!(plan.answers.utilisation_from, None);
}

#[test]
fn a_context_of_auto_is_the_longest_that_fits() {
    let plan = plan("m --max-model-len auto --max-num-seqs 256", 15, 24 << 10);
    assert!(plan.fits && plan.context > 16_384 && plan.context < 131_072, "{}", plan.context);
}

#[test]
fn a_step_has_no_more_tokens_than_all_sequences_together() {
    let activations = |flags: &str| plan(flags, 15, 80 << 10).terms[1].bytes;
    let usual = activations("m");
    assert_eq!(activations("m --max-num-batched-tokens 8192"), usual);
    let one = activations("m --max-num-seqs 1 --max-model-len 2048");
    assert_eq!(one, activations("m --max-num-seqs 1 --max-num-batched-tokens 2048"));
    assert!(one.likely < usual.likely);
}

#[test]
fn compressed_vectors_have_the_blocks_of_their_cards_kernels() {
    let latent = CONFIG.replace('{', r#"{"kv_lora_rank": 512, "qk_rope_head_dim": 64, "#);
    let sparse = latent.replace('{', r#"{"index_topk": 2048, "index_head_dim": 128, "#);
    let block = |config: &str, flags: &str, cc: &str| {
        let words: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
        let card: CardSpec = format!("name=card,total=80GiB,cc={cc}").parse().unwrap();
        let (config, command) = (ModelConfig::read(config).unwrap(), ServeCommand::read(&words).unwrap());
        VllmPlan::new(&config, &weights(15), &command, &card.cards).unwrap().block
    };
    for (config, flags, cc, expected) in [
        (&latent, "m", "8.6", 16),
        (&latent, "m", "9.0", 64),
        (&latent, "m", "10.0", 64),
        (&latent, "m", "12.0", 16),
        (&latent, "m --block-size 32", "9.0", 64),
        (&latent, "m --block-size 128", "9.0", 128),
        (&latent, "m --block-size 32", "8.9", 32),
        (&sparse, "m", "8.6", 64),
    ] {
        assert_eq!(block(config, flags, cc), expected, "{flags} {cc}");
    }
    assert_eq!(block(CONFIG, "m", "9.0"), 16);
}

#[test]
fn tensor_parallelism_needs_its_cards() {
    let command = ServeCommand::read(&["m", "-tp", "2"].map(str::to_owned)).unwrap();
    let error = VllmPlan::new(&ModelConfig::read(CONFIG).unwrap(), &weights(1), &command, &card(24 << 10));
    assert!(error.unwrap_err().to_string().contains("--card 2xNAME"));
}

#[test]
fn two_engines_start_in_turn_with_utilisations_that_leave_room_for_each_other() {
    let first = plan("m --max-model-len 8192 --max-num-seqs 64", 15, 80 << 10);
    let second = plan("m --max-model-len 8192 --max-num-seqs 64", 8, 80 << 10);
    let neighbours = [
        Neighbour::Vllm { name: "large", plan: &first },
        Neighbour::Vllm { name: "small", plan: &second },
        Neighbour::Fixed { name: "llama.cpp", bytes: Bytes::gib(10) },
    ];
    let found = together(&neighbours, Bytes::gib(80), Bytes::gib(79));
    let names: Vec<&str> = found.starts.iter().map(|start| start.name.as_str()).collect();
    assert_eq!(names, ["llama.cpp", "small", "large"]);
    assert!(found.fits);
    let taken: Bytes = found.starts.iter().map(|start| start.takes).sum();
    assert!(taken <= Bytes::gib(79), "{taken}");
    let crowded = together(&neighbours, Bytes::gib(80), Bytes::gib(30));
    assert!(!crowded.fits);
}

proptest! {
    #[test]
    fn a_smallest_utilisation_starts_with_its_context(gib in 1_u64..60, context in 1_u64..100_000) {
        let asked = plan(&format!("m --max-model-len {context} --max-num-seqs 256"), gib, 80 << 10);
        if let Some(from) = asked.answers.utilisation_from {
            let flags = format!("m --max-model-len {context} --max-num-seqs 256 --gpu-memory-utilization {from}");
            let plan = plan(&flags, gib, 80 << 10);
            prop_assert!(plan.fits && plan.needed <= plan.cache.low, "{plan:?}");
        }
    }

    #[test]
    fn more_memory_never_holds_fewer_tokens(low in 1_u64..90, more in 0_u64..10) {
        let of = |percent: u64| plan(&format!("m --gpu-memory-utilization 0.{percent:02}"), 10, 80 << 10).answers;
        let (few, many) = (of(low.max(1)), of((low + more).min(99)));
        prop_assert!(few.tokens <= many.tokens && few.longest <= many.longest);
    }
}
