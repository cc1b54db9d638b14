//! Tests of a memory share (`--gpu-memory-utilization`) that is too small for a model which would fit on the
//! whole card.

use plimsoll_doctor::{Cause, Diagnosis, LineSource, LogReader, diagnose};

fn read(log: &str, context: &str) -> Diagnosis {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log.as_bytes());
    reader.feed(LineSource::Context, context.as_bytes());
    diagnose(&reader.finish())
}

/// vLLM's lines of a profiling run, with the card, the share and what is left for the cache, in GiB.
fn profiled(card: f64, share: f64, left: f64) -> String {
    format!(
        "INFO worker.py:267] the current vLLM instance can use total_gpu_memory ({card:.2}GiB) x gpu_memory_utilization ({share:.2}) = {:.2}GiB\n\
        INFO worker.py:267] model weights take 5.20GiB; non_torch_memory takes 0.03GiB; PyTorch activation peak memory takes 1.42GiB; the rest of the memory reserved for KV Cache is {left:.2}GiB.\n\
        ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n",
        card * share
    )
}

const V1: &str = "\
INFO [core.py:58] Initializing a V1 LLM engine (v0.8.5) with config: model='/models/Qwen3-8B'
INFO [gpu_model_runner.py:1347] Model loading took 15.2683 GiB and 7.861 seconds
ERROR [core.py:396] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.
";

#[test]
fn weights_that_fit_the_card_are_not_too_large_for_it() {
    let stated = read(&profiled(24.0, 0.25, -0.65), "");
    assert_eq!(stated.cause, Cause::KvCacheTooLarge, "{}", stated.reason);
    assert!(stated.confidence >= 0.95, "{}", stated.reason);
    let text = stated.reason.to_string();
    assert!(text.contains("vLLM may use 0.25 of the card's 24576 MiB, which is 6144 MiB; weights and activations take 6810 MiB"), "{text}");
    let hints: Vec<String> = stated.hints.iter().map(ToString::to_string).collect();
    let reported = "set --gpu-memory-utilization to 0.9: 0.25 is too little, and weights and activations need at least 0.3";
    assert_eq!(hints, [reported]);
}

#[test]
fn weights_that_do_not_fit_nine_tenths_of_the_card_are_too_large() {
    for (card, share, left) in [(7.0, 0.7, -1.75), (7.0, 0.9, -0.35)] {
        let stated = read(&profiled(card, share, left), "");
        assert_ne!(stated.cause, Cause::KvCacheTooLarge, "{}", stated.reason);
        let text = stated.reason.to_string();
        assert!(text.contains("the weights take 5325 MiB of 7168 MiB"), "{text}");
    }
}

#[test]
fn the_share_is_read_from_the_arguments_and_from_the_context() {
    let arguments = "args: Namespace(model='/models/Qwen3-8B', gpu_memory_utilization=0.4)\n";
    for (log, context) in [
        (format!("{arguments}{V1}"), "RTX 4090"),
        (V1.to_owned(), "RTX 4090, --gpu-memory-utilization 0.4"),
        (format!("{arguments}{V1}"), ""),
    ] {
        let stated = read(&log, context);
        assert_eq!(stated.cause, Cause::KvCacheTooLarge, "{}", stated.reason);
        let hint = stated.hints[0].to_string();
        assert!(hint.starts_with("set --gpu-memory-utilization to 0.9: ") && hint.contains("0.4"), "{hint}");
        // 15.3 GiB and activations of a sixth of the sum are three quarters of 24 GiB.
        assert_eq!(hint.contains("at least 0.75"), !context.is_empty(), "{hint}");
    }
    for context in ["RTX 4090, --gpu-memory-utilization 0.95", "RTX 4090", "RTX 3080 10GB"] {
        let stated = read(V1, context);
        assert!(!stated.hints.iter().any(|hint| hint.to_string().contains("to 0.9:")), "{}", stated.reason);
    }
}
