//! Tests that the hints for a log are correct by the log's own figures: what they advise fits, and suits the
//! program that failed.

use plimsoll_doctor::{Cause, Diagnosis, LineSource, LogReader, SubCause, diagnose};

fn judged(log: &str) -> Diagnosis {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log.as_bytes());
    diagnose(&reader.finish())
}

/// The cause, and the hints in one text.
fn stated(log: &str) -> (Cause, String) {
    let stated = judged(log);
    (stated.cause, stated.hints.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

const ENCODER: &str = "\
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3060) (0000:01:00.0) - 11800 MiB free
load_tensors:        CUDA0 model buffer size =  8126.00 MiB
llama_context: n_ctx         = 16384
llama_kv_cache:      CUDA0 KV buffer size =  2304.00 MiB
llama_context:      CUDA0 compute buffer size =   304.75 MiB
clip_ctx: CLIP using CUDA0 backend
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1291.40 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 1354131456
";

#[test]
fn an_image_encoder_beside_the_model_is_neither_cache_nor_model() {
    let (cause, hints) = stated(ENCODER);
    assert_eq!(cause, Cause::ModelTooLarge);
    // 11800 - 8126 - 2304 - 305.
    assert!(
        hints.contains("--no-mmproj-offload): 1291 MiB were requested, and 1065 MiB are free"),
        "{hints}"
    );
    assert!(!hints.contains("q8_0") && !hints.contains("the weights take"), "{hints}");
    let shown = judged(ENCODER).reason.to_string();
    assert!(shown.contains("1291 MiB were refused for the image encoder"), "{shown}");
}

const DRAFT: &str = "\
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) (0000:01:00.0) - 23800 MiB free
load_tensors:        CUDA0 model buffer size = 18926.00 MiB
llama_kv_cache:      CUDA0 KV buffer size =  4096.00 MiB
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) (0000:01:00.0) - 431 MiB free
llama_model_loader: loaded meta data with 26 key-value pairs and 290 tensors from /m/qwen2.5-0.5b-q8_0.gguf (version GGUF V3 (latest))
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 500.84 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 525169664
srv    load_model: failed to load draft model, '/m/qwen2.5-0.5b-q8_0.gguf'
";

#[test]
fn a_draft_model_that_finds_no_room_beside_its_model_is_named() {
    let (cause, hints) = stated(DRAFT);
    assert_eq!(cause, Cause::ModelTooLarge);
    assert!(hints.contains("-ngld 0") && !hints.contains("23800"), "{hints}");
}

const TWO_CARDS: &str = "\
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3090) (0000:01:00.0) - 23700 MiB free
llama_model_load_from_file_impl: using device CUDA1 (NVIDIA GeForce RTX 3060) (0000:05:00.0) - 11800 MiB free
load_tensors:        CUDA0 model buffer size = 12800.00 MiB
load_tensors:        CUDA1 model buffer size =  8600.00 MiB
llama_context: constructing llama_context
llama_context: n_seq_max     = 1
llama_context: n_ctx         = 65536
llama_kv_cache:      CUDA0 KV buffer size =  8448.00 MiB
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 7936.00 MiB on device 1: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA1 buffer of size 8321499136
llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
";

/// Card 1 has 11800 - 8600 = 3200 MiB left: 24064 tokens take 2914 there, and the whole cache as q8_0 takes
/// 4216 and one layer of it in 16 bits.
#[test]
fn the_room_is_that_of_the_card_which_refused() {
    let (cause, hints) = stated(TWO_CARDS);
    assert_eq!(cause, Cause::KvCacheTooLarge);
    assert!(hints.contains("-c 24064") && hints.contains("3200 MiB are free"), "{hints}");
    assert!(hints.contains("q8_0 with at most 42240 tokens") && !hints.contains("--tensor-split"), "{hints}");
    // With 8000 MiB more on the other card, another division would do.
    let (_, hints) = stated(&TWO_CARDS.replace("23700 MiB free", "31700 MiB free"));
    assert!(hints.contains("--tensor-split 31700,11800"), "{hints}");
}

const KOBOLD: &str = "\
Welcome to KoboldCpp - Version 1.92.1
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3060) - 11100 MiB free
load_tensors:        CUDA0 model buffer size =  8148.38 MiB
llama_context: n_ctx         = 32896
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5140.00 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 5389680640
llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
";

/// 2952 MiB are free, and the cache in 8 bits takes 2731, with one layer of it in 16 bits beside it: that
/// does not fit.
#[test]
fn other_programs_of_ggml_are_not_advised_of_a_quantised_cache_that_does_not_fit() {
    let (_, hints) = stated(KOBOLD);
    assert!(hints.contains("--quantkv 1 --contextsize 29952"), "{hints}");
    let (_, hints) = stated(&KOBOLD.replace("11100 MiB free", "11500 MiB free"));
    assert!(hints.ends_with("store the KV cache in 8 bits (--flashattention --quantkv 1)"), "{hints}");
    let (_, hints) = stated(&KOBOLD.replace("Welcome to KoboldCpp", "source=sched.go:1 msg=ollama"));
    assert!(hints.contains("OLLAMA_KV_CACHE_TYPE=q8_0, use a context of at most 29952 tokens"), "{hints}");
}

#[test]
fn values_that_the_command_line_withholds_from_fit_are_named() {
    let line = "llama_params_fit: failed to fit params to free device memory: n_gpu_layers already set by user to 99, abort\n";
    assert!(stated(&format!("{line}{TWO_CARDS}")).1.contains("leave out -ngl, -c and -ts"));
    assert!(!stated(TWO_CARDS).1.contains("leave out"));
}

const DIFFUSION: &str = "\
[INFO ] stable-diffusion.cpp:197  - loading model from 'flux1-dev-q8_0.gguf'
[INFO ] stable-diffusion.cpp:516  - total params memory size = 12242.83MB (VRAM 12242.83MB, RAM 0.00MB)
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 6656.00 MiB on device 0: cudaMalloc failed: out of memory
ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 6979321856
[ERROR] ggml_extend.hpp:1031 - vae: failed to allocate the compute buffer
";

#[test]
fn stable_diffusion_cpp_has_options_of_its_own() {
    let (cause, hints) = stated(DIFFUSION);
    assert_eq!(cause, Cause::ComputeBufferTooLarge);
    assert!(hints.starts_with("decode in tiles (--vae-tiling)") && !hints.contains("-np"), "{hints}");
    let (_, hints) = stated(&DIFFUSION.replace("vae: failed", "flux: failed"));
    assert!(
        hints.starts_with("use flash attention (--diffusion-fa)") && !hints.contains("tiling"),
        "{hints}"
    );
}

const SGLANG: &str = "\
[2025-08-02 10:01:12 TP0] Load weight begin. avail mem=23.30 GB
[2025-08-02 10:01:29 TP0] Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=8.83 GB, mem usage=14.47 GB.
    raise RuntimeError(\"Not enough memory. Please try to increase --mem-fraction-static.\")
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.
";

/// 14.47 of 23.30 GB are 62 %.
#[test]
fn a_static_share_that_holds_only_the_weights_is_raised() {
    let (cause, hints) = stated(SGLANG);
    assert_eq!(cause, Cause::KvCacheTooLarge);
    assert!(hints.contains("set --mem-fraction-static to at least 0.65"), "{hints}");
    // Weights of nearly the whole card are another matter.
    let (cause, hints) = stated(&SGLANG.replace("14.47", "22.10"));
    assert!(cause == Cause::ModelTooLarge && hints.contains("--tp-size"), "{hints}");
}

const GRAPHS: &str = "\
INFO 09-14 11:02:31 [gpu_model_runner.py:2392] Model loading took 18.1467 GiB and 19.1 seconds
ERROR 09-14 11:03:12 [core.py:718]   File \"/opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_model_runner.py\", line 3270, in capture_model
ERROR 09-14 11:03:12 [core.py:718] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 130.00 MiB. GPU 0 has a total capacity of 23.52 GiB of which 61.25 MiB is free. Including non-PyTorch memory, this process has 23.45 GiB memory in use. Of the allocated memory 22.49 GiB is allocated by PyTorch, with 402.00 MiB allocated in private pools (e.g., CUDA Graphs), and 101.33 MiB is reserved by PyTorch but unallocated.
";

#[test]
fn graphs_that_find_no_room_beside_the_cache_are_not_weights() {
    let (cause, hints) = stated(GRAPHS);
    assert_eq!(cause, Cause::ComputeBufferTooLarge);
    assert!(hints.contains("--enforce-eager") && !hints.contains("--tensor-parallel-size"), "{hints}");
    let runner = GRAPHS
        .replace("capture_model", "__init__")
        .replace("vllm", "sglang")
        .replace("gpu_model_runner.py", "cuda_graph_runner.py");
    let (cause, hints) = stated(&runner);
    assert!(cause == Cause::ComputeBufferTooLarge && hints.contains("--mem-fraction-static"), "{hints}");
}

/// The card has at least (13.5 - 1.8) / 0.5 = 23.4 GiB, of which the missing 1.8 are 8 %: a share of 0.58
/// would do.
#[test]
fn a_share_of_an_unknown_card_is_small_where_the_shortage_is_a_small_part_of_it() {
    let log = |lacking: &str| {
        format!(
            "\
        $ vllm serve mistralai/Mistral-7B --gpu-memory-utilization 0.5\n\
        INFO 06-11 08:11:30 [gpu_model_runner.py:1624] Model loading took 13.5084 GiB and 21.4 seconds\n\
        INFO 06-11 08:11:50 [gpu_worker.py:227] Available KV cache memory: -{lacking} GiB\n\
        ValueError: No available memory for the cache blocks.\n"
        )
    };
    let (cause, hints) = stated(&log("1.83"));
    assert!(
        cause == Cause::KvCacheTooLarge && hints == "set --gpu-memory-utilization to 0.9: it is 0.5",
        "{hints}"
    );
    // Nearly all of the weights are missing: they fit no card of this size.
    assert_eq!(stated(&log("12.9")).0, Cause::ModelTooLarge);
}

const TGI: &str = "\
2024-05-02T09:14:44.117Z  INFO text_generation_launcher: Args { model_id: \"meta-llama/Meta-Llama-3-8B-Instruct\", max_total_tokens: 8192, max_batch_prefill_tokens: 4096, cuda_memory_fraction: 1.0 }
2024-05-02T09:15:42.882Z ERROR warmup{max_input_length=4096 max_prefill_tokens=4096 max_total_tokens=8192 max_batch_size=None}:warmup: text_generation_client: router/client/src/lib.rs:33: Server error: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 21.99 GiB of which 1.04 GiB is free. Process 4411 has 20.94 GiB memory in use. Of the allocated memory 20.42 GiB is allocated by PyTorch, and 88.03 MiB is reserved by PyTorch but unallocated
";

#[test]
fn tgi_and_jax_have_options_of_their_own() {
    let (_, hints) = stated(TGI);
    assert!(
        hints.starts_with("use a smaller --max-batch-prefill-tokens") && !hints.contains("training"),
        "{hints}"
    );
    let jax = "W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to allocate 6.00GiB (rounded to 6442450944)requested by op\n";
    let (_, hints) = stated(jax);
    assert!(hints.contains("XLA_PYTHON_CLIENT_MEM_FRACTION") && !hints.contains("TF_GPU"), "{hints}");
}

const REFUSED: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 23.64 GiB of which 612.00 MiB is free. Of the allocated memory 15.10 GiB is allocated by PyTorch, and 7.42 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n";

#[test]
fn expandable_segments_that_are_on_are_no_advice() {
    let (cause, hints) = stated(REFUSED);
    assert!(cause == Cause::FragmentationCachingAllocator && hints.starts_with("set PYTORCH"), "{hints}");
    let (_, hints) =
        stated(&format!("+ PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python infer.py\n{REFUSED}"));
    assert!(hints.starts_with("expandable segments are on already"), "{hints}");
}

/// ComfyUI #9121: the log shows that the card had room, and not what the driver lacked.
#[test]
fn a_refusal_beside_free_memory_is_not_laid_on_the_host() {
    let log = "ComfyUI version: 0.3.46\ntorch.OutOfMemoryError: HIP out of memory. Tried to allocate 14.00 MiB. GPU 0 has a total capacity of 15.92 GiB of which 13.60 GiB is free. Of the allocated memory 1.83 GiB is allocated by PyTorch, and 2.00 MiB is reserved by PyTorch but unallocated.\n";
    let (cause, hints) = stated(log);
    let stated = judged(log);
    assert_eq!((cause, stated.sub_cause), (Cause::Other, Some(SubCause::AlongsideFree)), "{}", stated.reason);
    assert!(
        stated.reason.to_string().contains("14 MiB were requested and 13926 MiB are free"),
        "{}",
        stated.reason
    );
    assert!(hints.contains("dmesg") && !hints.contains("DataLoader") && !hints.contains("shm"), "{hints}");
}

#[test]
fn an_estimate_of_ollama_that_fits_explains_no_refusal() {
    // The scheduler's line alone, in bytes.
    let text = "time=2026-11-20T10:00:00Z level=INFO source=sched.go:754 msg=\"new model will fit in available VRAM in single GPU, loading\" gpu=GPU-1 parallel=4 available=24512036864 required=\"13.3 GiB\"\n\
        ggml_backend_cuda_buffer_type_alloc_buffer: allocating 10240.00 MiB on device 0: cudaMalloc failed: out of memory\n\
        alloc_tensor_range: failed to allocate CUDA0 buffer of size 10737418240\n";
    let stated = judged(text);
    assert_eq!(
        (stated.cause, stated.sub_cause),
        (Cause::Other, Some(SubCause::AlongsideFree)),
        "{}",
        stated.reason
    );
    let text = "time=2026-01-03T10:00:01Z level=INFO source=sched.go:777 msg=\"new model will fit in available VRAM in single GPU, loading\" available=11953307648 required=\"10.8 GiB\"\n\
        time=2026-01-03T10:00:01Z level=INFO source=memory.go:356 msg=\"offload to cuda\" memory.available=\"[11.1 GiB]\" memory.required.full=\"10.8 GiB\" memory.required.kv=\"1.0 GiB\" memory.weights.total=\"7.9 GiB\"\n\
        load_tensors:        CUDA0 model buffer size =  8148.38 MiB\n\
        ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8148.38 MiB on device 0: cudaMalloc failed: out of memory\n\
        llama_model_load: error loading model: unable to allocate CUDA0 buffer\n";
    let stated = judged(text);
    assert_eq!(
        (stated.cause, stated.sub_cause),
        (Cause::Other, Some(SubCause::AlongsideFree)),
        "{}",
        stated.reason
    );
}

#[test]
fn a_figure_of_nvidia_smi_in_a_sentence_lists_no_processes() {
    let text = "my 3090 only does 5 t/s with qwen3-32b -ngl 99, it used to be 30. nvidia-smi says 24100MiB / 24576MiB\n";
    let stated = judged(text);
    assert_ne!(stated.cause, Cause::ForeignProcess, "{}", stated.reason);
}

#[test]
fn a_wrong_value_of_a_flag_is_about_no_memory_and_a_dense_model_has_no_experts() {
    let text = "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes\n\
        error: unknown value for --flash-attn: '--flash-atn'\n\nusage: llama-server [options]\n";
    let stated = judged(text);
    assert_eq!(stated.cause, Cause::NotOom, "{}", stated.reason);
    let text = "using device CUDA0 (NVIDIA GeForce RTX 3060) - 11700 MiB free\nprint_info: n_expert         = 0\nprint_info: n_layer          = 128\n\
        load_tensors: loading model tensors, this can take a while... (mmap = true)\n\
        ggml_backend_cuda_buffer_type_alloc_buffer: allocating 17371.00 MiB on device 0: cudaMalloc failed: out of memory\n\
        alloc_tensor_range: failed to allocate CUDA0 buffer of size 18214813696\n";
    let stated = judged(text);
    let hints: String = stated.hints.iter().map(|hint| format!("{hint}\n")).collect();
    assert_eq!(stated.cause, Cause::ModelTooLarge, "{}", stated.reason);
    assert!(hints.contains("fewer than 86 layers") && !hints.contains("experts"), "{hints}");
}

#[test]
fn a_table_of_processes_that_hold_the_card_outweighs_the_size_of_the_model() {
    let refused = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8148.38 MiB on device 0: cudaMalloc failed: out of memory\n\
        llama_model_load: error loading model: unable to allocate CUDA0 buffer\n";
    let table = |card: u64, used: u64| {
        format!(
            "|   {card}  NVIDIA GeForce RTX 3090        Off |   00000000:01:00.0 Off |                  N/A |\n\
             | 30%   45C    P8              25W / 350W |  {used}MiB /  24576MiB |      0%      Default |\n\
             |    {card}   N/A  N/A      4321      C   python3                                   {used}MiB |\n"
        )
    };
    let stated = judged(&format!("{refused}{}", table(0, 19_210)));
    assert_eq!(stated.cause, Cause::ForeignProcess, "{}", stated.reason);
    // What the others leave is room enough, or they hold another card.
    for others in [table(0, 900), table(1, 19_210)] {
        let stated = judged(&format!("{refused}{others}"));
        assert_eq!(stated.cause, Cause::ModelTooLarge, "{}", stated.reason);
    }
}
