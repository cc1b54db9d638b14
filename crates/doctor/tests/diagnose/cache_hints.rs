//! Tests of the hints for a KV cache that was refused: what they advise fits beside the compute buffer.

use plimsoll_doctor::{LineSource, LogReader, diagnose};

/// The log of a card with 9188 MiB free that refused 8192 MiB of cache beside 4651 MiB of weights, with
/// `more` lines.
fn log(more: &str) -> String {
    format!(
        "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3080) (0000:01:00.0) - 9188 MiB free\n\
        {more}\
        load_tensors:        CUDA0 model buffer size =  4651.00 MiB\n\
        llama_context: constructing llama_context\n\
        llama_context: n_ctx         = 65536\n\
        llama_context: n_ubatch      = 512\n\
        ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory\n\
        alloc_tensor_range: failed to allocate CUDA0 buffer of size 8589934592\n\
        llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
    )
}

fn hints(log: &str) -> Vec<String> {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log.as_bytes());
    diagnose(&reader.finish()).hints.iter().map(ToString::to_string).collect()
}

/// 4537 MiB are free. A context of 36096 tokens and q8_0 (4352 MiB) would leave nothing for the compute
/// buffer.
#[test]
fn room_is_left_for_the_compute_buffer_and_slots_have_equal_contexts() {
    let reported = |tokens| {
        format!(
            "use a context of at most {tokens} tokens (-c {tokens}): 8192 MiB were needed for 65536 tokens; 4537 MiB are free, of which 256 MiB are left for the compute buffer"
        )
    };
    let shorter =
        "alternatively, store the KV cache as q8_0 with at most 59648 tokens (-ctk q8_0 -ctv q8_0 -c 59648)";
    assert_eq!(hints(&log("")), [reported(34048), shorter.to_owned()]);
    let slots = hints(&log("llama_context: n_seq_max     = 4\n"));
    assert_eq!(slots[0], reported(33792));
    assert!(slots[1].contains("-c 59392"), "{slots:?}");
}

#[test]
fn the_compute_buffer_is_computed_from_the_figures_of_the_log_or_taken_from_it() {
    // 512 tokens with 4 bytes for each of 32000 logits, 5 x 4096 activations and 65536 cells: 230.5 MiB.
    let computed =
        hints(&log("print_info: n_embd                = 4096\nprint_info: n_vocab               = 32000\n"));
    assert!(computed[0].contains("of which 231 MiB are left"), "{computed:?}");
    // An earlier load of the same log got as far as its compute buffer.
    let own = "sched_reserve:      CUDA0 compute buffer size =  700.00 MiB\nllama_model_loader: loaded meta data with 24 key-value pairs\n";
    let own = hints(&log(own));
    assert!(own[0].contains("of which 700 MiB are left") && own[0].contains("-c 30464"), "{own:?}");
}

#[test]
fn a_quantised_cache_that_fits_as_a_whole_stays_the_first_hint() {
    let roomy = log("").replace("9188 MiB free", "9788 MiB free");
    assert!(hints(&roomy)[0].starts_with("store the KV cache as q8_0"), "{:?}", hints(&roomy));
    // Without flash attention the compute buffer grows with the heads: no figure is safe.
    let off = hints(&log("llama_context: flash_attn    = disabled\n"));
    assert!(off[0].starts_with("use a shorter context (-c)"), "{off:?}");
}

#[test]
fn context_hint_has_no_figure_if_even_a_short_context_does_not_fit() {
    let full = hints(&log("").replace("9188 MiB free", "4700 MiB free"));
    assert!(full[0].starts_with("use a shorter context (-c)") && full.len() == 1, "{full:?}");
}

/// `plimsoll plan --build llama.cpp@8799` of this model and card: 36864 tokens are the most beside the pool.
#[test]
fn room_is_left_for_the_pool_that_converts_a_quantised_cache() {
    let of_model = "print_info: n_layer = 32\nprint_info: n_embd = 4096\nprint_info: n_vocab = 128256\n";
    let reported = hints(&log(of_model).replace("9188 MiB free", "7631 MiB free"));
    let tokens = reported[1]
        .rsplit_once("-c ")
        .and_then(|(_, tokens)| tokens.trim_end_matches(')').parse::<u64>().ok());
    assert!(tokens.is_some_and(|tokens| (35_000..=36_864).contains(&tokens)), "{reported:?}");
}

#[test]
fn a_cache_that_is_quantised_is_not_to_be_quantised() {
    let refused = "load_tensors:        CUDA0 model buffer size =  4480.00 MiB\nllama_context: n_ctx         = 65536\n\
        ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory\n\
        llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n";
    for (line, others) in [
        (
            "source=server.go msg=ollama env=\"map[OLLAMA_FLASH_ATTENTION:true OLLAMA_KV_CACHE_TYPE:q8_0]\"\n",
            "OLLAMA_NUM_PARALLEL=1",
        ),
        ("source=server.go msg=ollama OLLAMA_KV_CACHE_TYPE=q8_0\n", "OLLAMA_NUM_PARALLEL=1"),
        ("$ llama-server -m m.gguf -ctk q8_0 -ctv q8_0\n", "-np"),
        ("$ llama-server -m m.gguf --cache-type-k q8_0\n", "-np"),
    ] {
        let reported = hints(&format!("{line}{refused}")).join("\n");
        assert!(
            !reported.contains("KV cache as q8_0") && !reported.contains("TYPE=q8_0"),
            "{line}{reported}"
        );
        assert!(reported.contains(others), "{line}{reported}");
    }
}
