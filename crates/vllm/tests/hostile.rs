//! Tests with damaged and contradictory headers, indices, configurations and command lines.

use plimsoll_base::{Bytes, Card, CardSpec};
use plimsoll_fuzz::mutants;
use plimsoll_vllm::{
    CommandError, ConfigError, Header, HeaderError, ModelConfig, ServeCommand, ShardsError, VllmPlan, shards,
};

const CONFIG: &str = r#"{"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 4096,
    "layer_types": ["linear_attention", "sliding_attention", "full_attention", "mamba"], "sliding_window": 16,
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "mamba_ssm_dtype": "float32", "quantization_config": {"quant_method": "fp8"}}"#;

/// A file of this object, with `data` bytes behind it.
fn file(object: &str, data: usize) -> Vec<u8> {
    let mut file = (object.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(object.as_bytes());
    file.resize(file.len() + data, 0);
    file
}

fn read(object: &str, data: usize) -> Result<Header, HeaderError> {
    let file = file(object, data);
    Header::read(&file, file.len() as u64)
}

fn cards() -> Vec<Card> {
    let card: CardSpec = "name=H200,total=143771MiB,free=143000MiB,cc=9.0".parse().unwrap();
    vec![card.cards[0].clone(); 2]
}

#[test]
fn a_header_gives_its_tensors_in_the_order_of_their_data() {
    let object = r#"{"__metadata__": {"format": "pt"}, "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [4, 16]},
        "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}"#;
    let header = read(object, 16).unwrap();
    let names: Vec<&str> = header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!((header.tensors[1].bytes, header.tensors[1].elements()), (Bytes::new(12), 6));
}

#[test]
fn a_header_that_contradicts_itself_is_refused_with_the_tensor_that_does() {
    let of = |dtype: &str, shape: &str, at: &str| {
        format!(r#"{{"t": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {at}}}}}"#)
    };
    for (object, data, expected) in [
        (of("BF16", "[2]", "[0, 4]"), 5, "end at byte 4"),
        (of("BF16", "[2]", "[1, 5]"), 5, "begins at byte 1"),
        (of("BF16", "[3]", "[0, 4]"), 4, "need 6"),
        (of("BF16", "[2]", "[4, 0]"), 4, "0 bytes of data"),
        (of("Q4", "[2]", "[0, 4]"), 4, "unknown type `Q4`"),
        (of("F64", "[4294967296, 4294967296]", "[0, 4]"), 4, "4 bytes of data"),
        (of("BF16", "[-1]", "[0, 4]"), 4, "not the JSON"),
        ("[]".to_owned(), 0, "not the JSON"),
    ] {
        let error = read(&object, data).unwrap_err().to_string();
        assert!(error.contains(expected), "{object}: {error}");
    }
    assert_eq!(Header::read(&[0; 7], 7), Err(HeaderError::TooShort(7)));
    assert_eq!(Header::span(&[255; 8], u64::MAX), Err(HeaderError::Length(u64::MAX)));
    assert_eq!(Header::span(&file("{}", 0), 9), Err(HeaderError::Length(2)));
}

#[test]
fn an_index_names_files_of_its_own_folder_alone() {
    let of = |name: &str| shards(&format!(r#"{{"weight_map": {{"a": "{name}", "b": "{name}"}}}}"#));
    assert_eq!(of("model-1.safetensors").unwrap(), ["model-1.safetensors"]);
    for name in ["../x", "/etc/passwd", "a/b", "", ".hidden", "a\\\\b"] {
        assert!(matches!(of(name), Err(ShardsError::Outside(_))), "{name}");
    }
    assert_eq!(shards(r#"{"weight_map": {}}"#), Err(ShardsError::Empty));
}

#[test]
fn a_field_that_changes_the_cache_in_an_unknown_way_is_refused_by_its_name() {
    let with = |more: &str| ModelConfig::read(&CONFIG.replacen('{', &format!("{{{more},"), 1));
    assert_eq!(with(r#""num_kv_shared_layers": 4"#), Err(ConfigError::Unknown("num_kv_shared_layers")));
    assert!(with(r#""num_kv_shared_layers": 0"#).is_ok());
    let error = ModelConfig::read(&CONFIG.replace("mamba\"", "lightning\"")).unwrap_err();
    assert!(error.to_string().contains("`lightning`"), "{error}");
    let error = ModelConfig::read(&CONFIG.replace("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5"));
    assert_eq!(error, Err(ConfigError::Layers { field: "layer_types", found: 4, layers: 5 }));
    let error = ModelConfig::read(&CONFIG.replace("1000", "99999999999")).unwrap_err();
    assert!(error.to_string().contains("`vocab_size`"), "{error}");
}

#[test]
fn flags_are_read_as_vllm_reads_them() {
    let read =
        |text: &str| ServeCommand::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let command =
        read("m --max_model_len=32K -tp 2 --gpu-memory-utilization .85 --enforce-eager --port 8000").unwrap();
    assert_eq!((command.longest, command.tensor_parallel, command.is_eager), (Some(32 << 10), Some(2), true));
    assert_eq!(command.utilisation.unwrap().to_string(), "0.85");
    assert_eq!(command.model.as_deref(), Some("m"));
    assert_eq!(read("--enforce-eager m --max-model-len -1").unwrap().longest, Some(0));
    for (written, read_as) in
        [("25.6k", 25_600), ("1.5m", 1_500_000), ("0.001T", 0), ("1t", 1_000_000_000_000), ("1.0015k", 1_001)]
    {
        let found = read(&format!("m --max-num-batched-tokens {written}"));
        assert_eq!(
            found.ok().and_then(|command| command.batched),
            (read_as > 0).then_some(read_as),
            "{written}"
        );
    }
    assert_eq!(read("--trust-remote-code m").unwrap().model.as_deref(), Some("m"));
    assert!(matches!(read("m -pp 2"), Err(CommandError::NotPlanned { .. })));
    assert!(read("m -pp 1").is_ok());
    for wrong in [
        "m --gpu-memory-utilization 1.5",
        "m --max-num-seqs 0",
        "m --max-num-seqs 1.5K",
        "m --max-num-seqs 1.k",
        "m --max-num-seqs 1.5",
        "m --kv-cache-dtype q8",
        "m --block-size",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
    assert!(matches!(read("m n"), Err(CommandError::TwoModels(..))));
}

#[test]
fn million_headers_and_configurations_end_without_a_panic() {
    let object = r#"{"a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}}"#;
    let (file, index) = (file(object, 12), br#"{"weight_map": {"a": "m.safetensors"}}"#);
    let seeds: [&[u8]; 3] = [&file, index, CONFIG.as_bytes()];
    let tokens: [&[u8]; 5] = [b"16777216", b"\"shape\"", b"0", b"null", b"\"full_attention_interval\": 2,"];
    let cards = cards();
    let flags =
        "m --max-model-len 100000 --kv-cache-dtype nvfp4 -tp 2 --mamba-cache-mode all".split_whitespace();
    let command = ServeCommand::read(&flags.map(str::to_owned).collect::<Vec<_>>()).unwrap();
    mutants(&seeds, &tokens, |mutant| {
        let header = Header::read(mutant, mutant.len() as u64);
        let text = String::from_utf8_lossy(mutant);
        let _ = shards(&text);
        if let Ok(config) = ModelConfig::read(&text) {
            let tensors = header.map(|header| header.tensors).unwrap_or_default();
            let _ = VllmPlan::new(&config, &tensors, &command, &cards);
        }
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let _ = ServeCommand::read(&words);
    });
}
