//! Tests of `plan --exact` when the engine refuses the configuration.

use super::*;

#[test]
fn a_refusal_has_the_engines_own_message() {
    for (log, kind, words) in [
        (
            "0.00.020.174 E llama_model_load: error loading model: device CUDA0 does not support split buffers\n\
             0.00.020.180 E llama_model_load_from_file_impl: failed to load model",
            EngineRefusalKind::RowSplit,
            "use -sm layer",
        ),
        (
            "0.00.036.119 E llama_init_from_model: quantized V cache requires flash_attn to be enabled\n\
             0.00.036.131 E cmn  common_init_: failed to create context with model 'tiny.gguf'",
            EngineRefusalKind::CacheNeedsFlashAttention,
            "-fa on",
        ),
        (
            "0.00.003.9 E llama_model_load: error loading model: unknown model architecture: 'novel'",
            EngineRefusalKind::Architecture,
            "newer engine",
        ),
        (
            "load_backend: failed to load /x/libggml-cuda.so: libnccl.so.2: no such file\n\
             error while handling argument \"-dev\": invalid device: CUDA0",
            EngineRefusalKind::NoBackend,
            "no CUDA backend",
        ),
        (
            "plimsoll_phantom: static CUDA runtime\n\
             ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n\
             error while handling argument \"-dev\": invalid device: CUDA0",
            EngineRefusalKind::StaticRuntime,
            "links the CUDA runtime statically",
        ),
        ("error: invalid argument: --no-such-flag", EngineRefusalKind::Flag, "--no-such-flag"),
        (
            "llama_model_load: error loading model: missing tensor 'blk.0.attn_q.weight'",
            EngineRefusalKind::File,
            "missing tensor",
        ),
    ] {
        let refusal = Transcript::read(log).refusal();
        assert_eq!(refusal.kind, kind, "{log}");
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
    assert!(Transcript::read("").refusal().to_string().contains("without a message"));
}
