//! Tests of the rules for each model architecture, with the hyper-parameters of a public model where there is
//! one.

use crate::gguf::{Datum, DraftHeader, Header, ValueType};
use crate::{Dialect, HyperParameters, Model};

/// The hyper-parameters of `architecture` with these keys, on top of the few that all need.
fn hyper(architecture: &str, layers: u32, keys: &[(&str, Datum)]) -> HyperParameters {
    let mut draft = DraftHeader::default();
    draft.put("general.architecture", architecture);
    let mut put = |key: &str, datum: Datum| draft.put(format!("{architecture}.{key}"), datum);
    put("block_count", layers.into());
    put("context_length", 32_768_u32.into());
    put("embedding_length", 2048_u32.into());
    put("attention.head_count", 16_u32.into());
    keys.iter().for_each(|(key, datum)| put(key, datum.clone()));
    let bytes = draft.header();
    let length = u64::try_from(bytes.len()).unwrap();
    let header = Header::read(&bytes, length, Dialect::Ggml).unwrap();
    Model::from_headers(&[header]).unwrap().hyper
}

fn n(number: u32) -> Datum {
    number.into()
}

fn list(numbers: &[u64]) -> Datum {
    Datum::Numbers(ValueType::I32, numbers.to_vec())
}

const WINDOW: &str = "attention.sliding_window";
const PATTERN: &str = "attention.sliding_window_pattern";

/// The sliding layers as a picture: `s` slides, `.` is full.
fn picture(hyper: &HyperParameters) -> String {
    (0..hyper.layers).map(|layer| if hyper.slides(layer) { 's' } else { '.' }).collect()
}

fn window(hyper: &HyperParameters) -> Option<u32> {
    hyper.sliding.as_ref().map(|sliding| sliding.window)
}

#[test]
fn windows_follow_the_rule_of_their_architecture() {
    for (architecture, keys, shown, width) in [
        ("gpt-oss", vec![(WINDOW, n(128))], "s.s.s.s.", Some(128)),
        ("gemma2", vec![], "s.s.s.s.", Some(4096)),
        ("gemma3", vec![(WINDOW, n(1024))], "sssss.ss", Some(1024)),
        ("gemma3", vec![], "........", None),
        ("gemma3", vec![(WINDOW, n(1024)), (PATTERN, n(2))], "s.s.s.s.", Some(1024)),
        ("cohere2", vec![(WINDOW, n(4096))], "sss.sss.", Some(4096)),
        ("exaone4", vec![(WINDOW, n(4096))], "........", None),
        ("llama4", vec![], "sss.sss.", Some(8192)),
        ("llama4", vec![(WINDOW, n(0))], "........", None),
        ("smallthinker", vec![(WINDOW, n(9))], ".sss.sss", Some(4096)),
        ("laguna", vec![(WINDOW, n(512))], ".sss.sss", Some(512)),
        ("gemma4", vec![(WINDOW, n(512)), (PATTERN, list(&[1, 0, 0, 1, 1, 1, 1, 0]))], "s..ssss.", Some(512)),
        ("mellum", vec![(WINDOW, n(512)), (PATTERN, list(&[1, 1, 0, 0, 1, 1, 0, 0]))], "ss..ss..", Some(512)),
        ("mellum", vec![(WINDOW, n(512))], "sss.sss.", Some(512)),
        ("step35", vec![(WINDOW, n(512)), (PATTERN, n(1))], "ssssssss", Some(512)),
        ("phi3", vec![(WINDOW, n(2047))], "........", None),
        ("llama", vec![(WINDOW, n(4096))], "........", None),
    ] {
        let hyper = hyper(architecture, 8, &keys);
        assert_eq!((picture(&hyper).as_str(), window(&hyper)), (shown, width), "{architecture} {keys:?}");
        assert!(hyper.known, "{architecture}");
    }
}

#[test]
fn exaone_4_slides_only_at_its_larger_size() {
    let large = hyper("exaone4", 64, &[]);
    assert_eq!(window(&large), Some(4096));
    assert!(large.slides(62) && !large.slides(63));
}

#[test]
fn sliding_layers_may_have_heads_of_their_own() {
    let keys = [
        (WINDOW, n(1024)),
        (PATTERN, list(&[1, 0])),
        ("attention.head_count_kv", n(2)),
        ("attention.key_length", n(512)),
        ("attention.value_length", n(512)),
        ("attention.key_length_swa", n(256)),
        ("attention.value_length_swa", n(256)),
    ];
    let hyper = hyper("gemma4", 2, &keys);
    assert_eq!((hyper.key_row(0), hyper.value_row(0)), (512, 512));
    assert_eq!((hyper.key_row(1), hyper.value_row(1)), (1024, 1024));
}

#[test]
fn late_layers_of_gemma_share_the_cache_of_earlier_ones() {
    let third_n = hyper("gemma3n", 30, &[(WINDOW, n(512))]);
    assert!(third_n.caches(19) && !third_n.caches(20));
    let keys = [(WINDOW, n(512)), (PATTERN, n(1)), ("attention.shared_kv_layers", n(10))];
    let fourth = hyper("gemma4", 42, &keys);
    assert!(fourth.caches(31) && !fourth.caches(32));
}

/// Qwen3-Next 80B-A3B.
#[test]
fn every_fourth_layer_of_qwen3_next_attends_and_the_rest_keep_a_state() {
    let keys = [
        ("attention.head_count_kv", n(2)),
        ("attention.key_length", n(256)),
        ("attention.value_length", n(256)),
        ("ssm.conv_kernel", n(4)),
        ("ssm.inner_size", n(4096)),
        ("ssm.state_size", n(128)),
        ("ssm.group_count", n(16)),
        ("nextn_predict_layers", n(1)),
    ];
    let hyper = hyper("qwen3next", 49, &keys);
    let cached: Vec<u32> = (0..49).filter(|&layer| hyper.caches(layer)).collect();
    // The last one predicts, in a context of its own.
    assert_eq!(cached, (0..12).map(|group| 4 * group + 3).chain([48]).collect::<Vec<_>>());
    assert!(!hyper.recurs(48) && hyper.trunk() == 48);
    let recurrent = hyper.recurrent.as_ref().unwrap();
    assert_eq!((recurrent.rolling, recurrent.state), (3 * (4096 + 2 * 16 * 128), 128 * 4096));
    assert_eq!(hyper.key_row(3), 512);
}

#[test]
fn layers_without_heads_recur() {
    let ssm = [("ssm.conv_kernel", n(4)), ("ssm.inner_size", n(8192)), ("ssm.state_size", n(16))];
    let kv = ("attention.head_count_kv", list(&[0, 0, 8, 0]));
    let jamba = hyper("jamba", 4, &[&ssm[..], std::slice::from_ref(&kv)].concat());
    assert_eq!((0..4).map(|layer| jamba.recurs(layer)).collect::<Vec<_>>(), [true, true, false, true]);
    assert!(jamba.caches(2) && !jamba.caches(3));
    let nemotron =
        hyper("nemotron_h", 4, &[&ssm[..], &[kv, ("feed_forward_length", list(&[0, 99, 0, 0]))]].concat());
    assert_eq!((0..4).map(|layer| nemotron.recurs(layer)).collect::<Vec<_>>(), [true, false, false, true]);
    assert_eq!(nemotron.key_row(1), 0);
}

#[test]
fn states_have_the_size_of_their_kind() {
    let states = |architecture, keys: &[(&str, Datum)]| {
        let recurrent = hyper(architecture, 4, keys).recurrent.unwrap();
        (recurrent.rolling, recurrent.state, recurrent.attends)
    };
    assert_eq!(states("rwkv7", &[("wkv.head_size", n(64))]), (2 * 2048, 2048 * 64, false));
    assert_eq!(
        states("arwkv7", &[("wkv.head_size", n(64)), ("token_shift_count", n(1))]),
        (2048, 2048 * 64, false)
    );
    assert_eq!(states("lfm2", &[("shortconv.l_cache", n(3))]), (2 * 2048, 0, false));
    let kda = [("kda.head_dim", n(128)), ("ssm.conv_kernel", n(4))];
    assert_eq!(states("kimi-linear", &kda), (9 * 16 * 128, 128 * 128 * 16, false));
    assert_eq!(states("minimax-01", &[]), (0, 128 * 128 * 16, false));
    let ssm = [("ssm.conv_kernel", n(4)), ("ssm.inner_size", n(4096)), ("ssm.state_size", n(16))];
    assert_eq!(states("mamba", &ssm), (3 * 4096, 16 * 4096, false));
    assert_eq!(states("falcon-h1", &ssm), (3 * 4096, 16 * 4096, true));
    let huge = ["ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.group_count"]
        .map(|key| (key, n(u32::MAX)));
    assert_eq!(states("mamba2", &huge).0, u64::MAX);
}

#[test]
fn falcon_h1_keeps_a_state_and_a_cache_in_every_layer() {
    let hyper = hyper("falcon-h1", 4, &[]);
    assert!((0..4).all(|layer| hyper.recurs(layer) && hyper.caches(layer)));
}

/// DeepSeek-V3 as converted since MLA; before, whole heads were cached.
#[test]
fn mla_is_recognised_by_its_lengths() {
    let old = [
        ("attention.kv_lora_rank", n(512)),
        ("attention.key_length", n(192)),
        ("attention.value_length", n(128)),
        ("rope.dimension_count", n(64)),
    ];
    let hyper_old = hyper("deepseek2", 61, &old);
    assert!(hyper_old.mla.is_none());
    assert_eq!(hyper_old.older_mla.map(|mla| mla.kv_lora_rank), Some(512));
    assert_eq!((hyper_old.key_row(0), hyper_old.value_row(0)), (16 * 192, 16 * 128));
    let new = [
        ("attention.head_count_kv", n(1)),
        ("attention.kv_lora_rank", n(512)),
        ("attention.key_length", n(576)),
        ("attention.value_length", n(512)),
        ("attention.key_length_mla", n(192)),
        ("attention.value_length_mla", n(128)),
        ("rope.dimension_count", n(64)),
    ];
    let hyper = hyper("deepseek2", 61, &new);
    assert_eq!((hyper.key_row(0), hyper.value_row(0)), (576, 0));
    assert_eq!(hyper.mla.unwrap().rope_dimension, 64);
    assert_eq!(hyper.older_mla, None);
}

#[test]
fn sparse_attention_keeps_index_keys() {
    let keys = [("attention.indexer.key_length", n(128)), ("nextn_predict_layers", n(1))];
    let deepseek = hyper("deepseek32", 4, &keys);
    assert!(deepseek.indexes(2) && !deepseek.indexes(3));
    let glm = hyper(
        "glm-dsa",
        8,
        &[keys.as_slice(), &[("attention.indexer.types", list(&[1, 1, 1, 0, 0, 0, 1]))]].concat(),
    );
    let indexed: Vec<u32> = (0..8).filter(|&layer| glm.indexes(layer)).collect();
    assert_eq!(indexed, [0, 1, 2, 6]);
    let minimax = hyper(
        "minimax-m3",
        4,
        &[("attention.indexer.key_length", n(64)), ("leading_dense_block_count", n(2))],
    );
    assert!(!minimax.indexes(1) && minimax.indexes(2));
}

#[test]
fn encoders_keep_no_cache() {
    for architecture in ["bert", "nomic-bert", "modern-bert", "gemma-embedding", "dream"] {
        let hyper = hyper(architecture, 4, &[("attention.causal", false.into()), (WINDOW, n(128))]);
        assert!(!hyper.cached && !hyper.caches(0) && !hyper.causal, "{architecture}");
    }
    let embedder = hyper("qwen3", 4, &[("attention.causal", false.into())]);
    assert!(embedder.caches(0) && !embedder.causal);
}

#[test]
fn next_token_layers_are_cached_beside_the_trunk_where_older_builds_do() {
    for (architecture, cached) in
        [("glm4moe", true), ("qwen35", false), ("mimo2", false), ("deepseek2", true)]
    {
        let keys = [("nextn_predict_layers", n(1)), (WINDOW, n(128)), (PATTERN, n(0))];
        let hyper = hyper(architecture, 4, &keys);
        assert!(hyper.caches(3) && hyper.nextn_cached == cached, "{architecture}");
    }
}

#[test]
fn experts_are_counted_and_their_scale_is_a_factor_other_than_one() {
    let keys = [("expert_count", n(8)), ("expert_used_count", n(2))];
    let mixtral = hyper("llama", 4, &keys).experts.unwrap();
    assert_eq!((mixtral.count, mixtral.used, mixtral.scales_weights), (8, 2, false));
    assert_eq!(hyper("llama", 4, &[]).experts, None);
}

#[test]
fn an_architecture_from_the_future_is_read_and_marked() {
    let hyper = hyper("llama9", 4, &[("attention.head_count_kv", n(4))]);
    assert!(!hyper.known && hyper.caches(3));
    assert_eq!(hyper.key_row(0), 512);
}

#[test]
fn projectors_and_adapters_have_weights_and_nothing_else() {
    let mut draft = DraftHeader::default();
    draft.put("general.architecture", "clip");
    let bytes = draft.header();
    let header = Header::read(&bytes, 1 << 20, Dialect::Ggml).unwrap();
    assert_eq!(Model::from_headers(&[header]).unwrap().hyper, HyperParameters::default());
}

#[test]
fn no_architecture_stands_in_two_rows() {
    let mut names: Vec<&str> = super::SPECIAL.iter().flat_map(|(names, _)| names.iter().copied()).collect();
    names.extend(super::PLAIN);
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
