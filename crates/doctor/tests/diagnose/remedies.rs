//! Tests of the remedies: each uses the options of the program that failed, with figures from its log.

use plimsoll_doctor::{Diagnosis, LineSource, LogReader, diagnose};

fn read(log: &str) -> Diagnosis {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log.as_bytes());
    diagnose(&reader.finish())
}

fn hints(log: &str) -> String {
    read(log).hints.iter().map(|hint| format!("{hint}\n")).collect()
}

const LLAMA: &str = "\
ggml_cuda_init: found 1 CUDA devices (Total VRAM: 12288 MiB):
  Device 0: NVIDIA GeForce RTX 3060, compute capability 8.6, VMM: yes, VRAM: 12288 MiB
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3060) (0000:01:00.0) - 11776 MiB free
llama_model_loader: loaded meta data with 24 key-value pairs and 291 tensors from m.gguf (version GGUF V3 (latest))
print_info: n_layer               = 32
";
const LOADED: &str = "\
load_tensors:        CUDA0 model buffer size =  4480.00 MiB
llama_context: constructing llama_context
llama_context: n_ctx         = 65536
";
const CACHED: &str = "llama_kv_cache:      CUDA0 KV buffer size =  4096.00 MiB\n";

#[test]
fn llama_cpp_is_advised_the_context_that_fits_at_most() {
    let refused = "\
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 8589934592
llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
";
    let text = hints(&format!("{LLAMA}{LOADED}{refused}"));
    // 65536 tokens take 8192 MiB, 11776 - 4480 MiB are free, and the log has no figures of the compute
    // buffer.
    assert!(text.contains("use a context of at most 56320 tokens (-c 56320): 8192 MiB were needed for 65536 tokens; 7296 MiB are free, of which 256 MiB are left for the compute buffer"), "{text}");
    assert!(text.starts_with("store the KV cache as q8_0 (-ctk q8_0 -ctv q8_0)"), "{text}");
}

#[test]
fn llama_cpp_is_advised_what_a_compute_buffer_misses() {
    let refused = "\
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory
ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 4294967296
graph_reserve: failed to allocate compute buffers
";
    let text = hints(&format!("{LLAMA}{LOADED}{CACHED}{refused}"));
    assert!(text.contains("(-fa on): 4096 MiB were requested, and 3200 MiB were free"), "{text}");
    assert!(
        text.contains("a context of at most 51200 tokens (-c 51200) frees the missing 896 MiB"),
        "{text}"
    );
}

#[test]
fn one_copy_is_no_cause_and_several_have_a_remedy() {
    let log = |copies: u32| {
        format!(
            "{LLAMA}{LOADED}{CACHED}llama_context: pipeline parallelism enabled (n_copies={copies})\n\
            ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory\n\
            graph_reserve: failed to allocate compute buffers\n"
        )
    };
    assert_eq!(read(&log(4)).sub_cause.map(|sub_cause| sub_cause.code()), Some("pipeline_copies"));
    assert!(
        hints(&log(4)).starts_with("build with GGML_SCHED_MAX_COPIES=1, or keep the last layer on the host")
    );
    assert_eq!(read(&log(1)).sub_cause, None);
    assert!(!hints(&log(1)).contains("COPIES"), "{}", hints(&log(1)));
}

#[test]
fn a_kernel_that_reads_beyond_its_memory_is_a_fault_of_the_program_first() {
    let text = hints(&format!(
        "{LLAMA}{LOADED}{CACHED}CUDA error: an illegal memory access was encountered\n\
        \x20 current device: 1, in function ggml_cuda_op at ggml-cuda.cu:2555\n"
    ));
    assert!(text.starts_with("update the engine") && text.contains("(-mg)"), "{text}");
}

#[test]
fn a_cache_that_is_f16_already_is_no_advice() {
    let grew = "\
slot launch_slot_: id  0 | task 0 | processing task
CUDA error: out of memory
  current device: 0, in function alloc at ggml-cuda.cu:384
  cuMemCreate(&handle, reserve_size, &prop, 0)
";
    let size = |kind: &str| {
        format!(
            "llama_kv_cache: size = 4096.00 MiB ( 65536 cells,  32 layers,  1/1 seqs), K ({kind}): 2048.00 MiB, V ({kind}): 2048.00 MiB\n"
        )
    };
    let reported = |kind: &str| hints(&format!("{LLAMA}{LOADED}{CACHED}{}{grew}", size(kind)));
    // 4480 MiB of weights and 7710 of a cache in f16 exceed 11776; with 3000 of weights they would not.
    assert!(!reported("q8_0").contains("use an f16 cache"), "{}", reported("q8_0"));
    let loaded = LOADED.replace("4480.00", "3000.00");
    let reported = |kind: &str| hints(&format!("{LLAMA}{loaded}{CACHED}{}{grew}", size(kind)));
    assert!(reported("q8_0").contains("use an f16 cache"), "{}", reported("q8_0"));
    assert!(!reported("f16").contains("use an f16 cache"), "{}", reported("f16"));
}

#[test]
fn ollama_without_host_memory_is_not_advised_to_use_more_of_it() {
    let log = "Error: model requires more system memory (18.5 GiB) than is available (12.0 GiB)\n";
    let stated = read(log);
    assert_eq!(stated.sub_cause.map(|sub_cause| sub_cause.code()), Some("host_ram"));
    assert!(!hints(log).contains("num_gpu") && hints(log).contains("add host memory"), "{}", hints(log));
}

#[test]
fn a_driver_that_cannot_be_reached_is_no_matter_of_power_and_cooling() {
    for log in [
        "docker: Error response from daemon: could not select device driver \"\" with capabilities: [[gpu]].\n",
        "Failed to initialize NVML: Driver/library version mismatch\n",
        "RuntimeError: No CUDA GPUs are available\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
    ] {
        assert!(
            hints(log).starts_with("check the driver on the host with nvidia-smi"),
            "{log}{}",
            hints(log)
        );
        assert!(!hints(log).contains("cooling"), "{log}");
    }
}

#[test]
fn flash_attention_that_is_on_is_no_advice() {
    let refused = "\
ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 4294967296
graph_reserve: failed to allocate compute buffers
";
    for (line, is_reported) in [
        ("llama_context: flash_attn    = enabled", false),
        ("llama_new_context_with_model: flash_attn = 1", false),
        ("llama_context: flash_attn    = auto", true),
    ] {
        let text = hints(&format!("{LLAMA}{LOADED}{line}\n{CACHED}{refused}"));
        assert_eq!(text.contains("-fa on"), is_reported, "{line}\n{text}");
        assert!(text.contains("a smaller micro-batch (-ub)"), "{text}");
    }
}

#[test]
fn fewer_slots_are_no_advice_where_the_log_shows_one() {
    let refused = "\
ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 4294967296
graph_reserve: failed to allocate compute buffers
";
    let reported = |slots: u32, more: &str| {
        hints(&format!(
            "llama_context: n_seq_max     = {slots}\n{more}llama_context: n_ctx         = 16384\n{refused}"
        ))
    };
    assert!(reported(4, "").contains("or fewer requests at once (-np)"), "{}", reported(4, ""));
    for more in ["", "llama_context: flash_attn    = enabled\n"] {
        let text = reported(1, more);
        assert!(!text.contains("-np") && text.contains(", or "), "{text}");
    }
}

#[test]
fn plimsolls_own_remark_about_a_missing_driver_is_no_cause() {
    let remark = "2026-11-23T18:00:00.000Z  INFO no NVIDIA card is visible: libnvidia-ml.so.1: cannot open shared object file: No such file or directory\n";
    assert_ne!(read(remark).sub_cause.map(|sub_cause| sub_cause.code()), Some("missing_library"));
    let failed = "2026-11-23T18:00:01.000Z  WARN model a cannot be loaded: a could not be started: cannot open /m/a.gguf: No such file or directory\n";
    let stated = read(&format!("{remark}{failed}"));
    assert_eq!(stated.sub_cause.map(|sub_cause| sub_cause.code()), Some("model_file"), "{stated:?}");
}

#[test]
fn a_handle_of_cublas_may_also_lack_memory() {
    let text =
        hints("CUDA error: the resource allocation failed\n  cublasCreate_v2(&cublas_handles[device])\n");
    assert!(text.contains("on a full card cuBLAS cannot start either"), "{text}");
}

/// llama.cpp refuses a quantised V cache without flash attention, and the context is what is too long.
#[test]
fn a_quantised_cache_is_no_first_advice_where_flash_attention_is_off() {
    for (off, context) in
        [("flash_attn = 0", 1048576), ("flash_attn    = disabled", 65536), ("flash_attn    = 0", 65536)]
    {
        let text = hints(&format!(
            "llama_new_context_with_model: n_ctx      = {context}\nllama_new_context_with_model: {off}\n\
             ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 8589934624\n\
             llama_kv_cache_init: failed to allocate buffer for kv cache\n"
        ));
        assert!(text.starts_with("use a shorter context (-c)"), "{text}");
        assert!(text.contains(&format!("8192 MiB were needed for {context} tokens")), "{text}");
        assert!(text.contains("-fa on -ctk q8_0 -ctv q8_0"), "{text}");
    }
}

/// A pool's first request fails on a full card too, so that without signs of work neither cause is certain,
/// and both are named.
#[test]
fn a_pool_that_is_refused_before_any_work_leaves_two_causes() {
    let log = "\
Error: an unknown error was encountered while running the model CUDA error: out of memory
  current device: 0, in function alloc at /go/src/github.com/ollama/ollama/llm/llama.cpp/ggml-cuda.cu:233
  hipMalloc((void **) &ptr, look_ahead_size)
";
    let diagnosis = read(log);
    assert!(diagnosis.confidence < 0.5, "{}", diagnosis.reason);
    assert_eq!(diagnosis.cause.code(), "foreign_process", "{}", diagnosis.reason);
    assert!(
        diagnosis.reason.to_string().contains("another possible cause is pool_growth"),
        "{}",
        diagnosis.reason
    );
}

/// Weights fill most of the card, and the cache is what can be made smaller without loss of speed.
#[test]
fn llama_cpp_is_advised_of_the_cache_where_half_of_it_is_what_is_missing() {
    let log = |weights: &str, cache: &str| {
        format!(
            "{LLAMA}load_tensors:        CUDA0 model buffer size = {weights} MiB\n\
             llama_kv_cache:      CUDA0 KV buffer size =  {cache} MiB\n\
             ggml_backend_cuda_buffer_type_alloc_buffer: allocating 300.75 MiB on device 0: cudaMalloc failed: out of memory\n\
             ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 315359232\n\
             graph_reserve: failed to allocate compute buffers\n"
        )
    };
    let text = hints(&log("9524.00", "2048.00"));
    assert!(
        text.contains("store the KV cache as q8_0 (-ctk q8_0 -ctv q8_0), which saves about 1024 MiB"),
        "{text}"
    );
    let text = hints(&log("11600.00", "64.00"));
    assert!(!text.contains("KV cache"), "{text}");
}

#[test]
fn llama_cpp_is_advised_how_many_layers_fit_at_most() {
    let refused = "\
load_tensors: loading model tensors, this can take a while... (mmap = true)
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 23552.00 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 24696061952
llama_model_load: error loading model: unable to allocate CUDA0 buffer
";
    let text = hints(&format!("{LLAMA}{refused}"));
    assert!(
        text.contains(
            "fewer than 16 layers on the card (-ngl): the weights take 23552 MiB, 11776 MiB are free, and the cache"
        ),
        "{text}"
    );
}

#[test]
fn advice_for_ggml_s_legacy_pool_is_left_out_where_the_log_shows_the_other() {
    let grew = "\
main: server is listening on http://127.0.0.1:8080 - starting the main loop
slot update_slots: id  0 | task 31 | prompt processing progress, n_tokens = 24576
CUDA error: out of memory
  current device: 0, in function alloc at /src/ggml/src/ggml-cuda/ggml-cuda.cu:497
  CALL
";
    let compute = "llama_context:      CUDA0 compute buffer size =   300.00 MiB\n";
    let paged = read(&format!(
        "{LLAMA}{LOADED}{CACHED}{compute}{}",
        grew.replace("CALL", "cuMemCreate(&handle, reserve_size, &prop, 0)")
    ));
    let text: String = paged.hints.iter().map(|hint| format!("{hint}\n")).collect();
    assert!(!text.contains("--pool ours") && text.contains("plimsoll plan -- FLAGS"), "{text}");
    assert!(text.contains("left 2900 MiB: each 1024 tokens less of context (-c) free 64 MiB"), "{text}");
    assert!(paged.evidence[0].text.starts_with("cuMemCreate("), "{:?}", paged.evidence);
    assert!(paged.reason.to_string().contains("line 15: cuMemCreate("), "{}", paged.reason);
    let legacy = LLAMA.replace("VMM: yes", "VMM: no");
    let text = hints(&format!(
        "{legacy}{LOADED}{CACHED}{}",
        grew.replace("CALL", "ggml_cuda_device_malloc(&ptr, look_ahead_size, device)")
            .replace("in function alloc", "in function ggml_cuda_pool_malloc")
    ));
    assert!(text.contains("plimsoll run --pool ours -- CMD replaces ggml's legacy pool"), "{text}");
}

#[test]
fn ollama_is_advised_of_its_variables_and_parameters() {
    let log = "\
time=2026-03-01T10:00:00Z level=INFO source=memory.go:356 msg=\"offload to cuda\" layers.model=33 memory.available=\"[10.0 GiB]\" memory.required.full=\"14.0 GiB\" memory.required.kv=\"8.0 GiB\" memory.weights.total=\"5.0 GiB\"
time=2026-03-01T10:00:01Z level=INFO source=server.go:405 msg=\"starting llama server\" cmd=\"ollama runner --ctx-size 65536 --batch-size 512 --parallel 4\"
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory
llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
";
    let text = hints(log);
    for word in [
        "num_ctx",
        "OLLAMA_CONTEXT_LENGTH",
        "OLLAMA_FLASH_ATTENTION=1",
        "OLLAMA_KV_CACHE_TYPE=q8_0",
        "OLLAMA_NUM_PARALLEL=1",
    ] {
        assert!(text.contains(word), "{word} in {text}");
    }
    // 8 GiB for 65536 tokens, of which 10 - 6 GiB fit.
    assert!(text.contains("at most 32768 tokens"), "{text}");
    for flag in ["(-c", "-ub", "-fa on", "-ctk"] {
        assert!(!text.contains(flag), "{flag} in {text}");
    }
    let text = hints(
        &log.replace("failed to allocate buffer for kv cache", "failed to allocate compute pp buffers"),
    );
    assert!(
        text.contains("num_batch") && text.contains("OLLAMA_GPU_OVERHEAD") && !text.contains("-ub"),
        "{text}"
    );
}

/// Its log seldom says `ollama`, but names the files of its sources in a way of its own.
#[test]
fn ollama_is_known_by_the_form_of_its_lines() {
    for line in [
        "level=INFO source=server.go:168 msg=offload library=cuda",
        "level=INFO source=routes.go:1234 msg=Listening",
        "level=INFO source=runner.go:963 msg=\"starting go runner\"",
    ] {
        let text = hints(&format!("time=2025-11-20T10:00:00.000Z {line}\n{REFUSED_CACHE}"));
        assert!(text.contains("OLLAMA_KV_CACHE_TYPE=q8_0") && !text.contains("-ctk"), "{text}");
    }
}
const REFUSED_CACHE: &str = "\
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory
llama_kv_cache_init: failed to allocate buffer for kv cache
";

#[test]
fn vllm_is_advised_of_its_options_with_the_figures_that_it_printed() {
    let text = hints(
        "(EngineCore_0 pid=77) ERROR [core.py:712] ValueError: To serve at least one request with the models's max seq len \
         (262144), (36.00 GiB KV cache is needed, which is larger than the available KV cache memory (18.00 GiB). Based on the \
         available memory, the estimated maximum model length is 131072. Try increasing `gpu_memory_utilization`. vllm",
    );
    assert!(
        text.contains("set --max-model-len to at most 131072") && text.contains("--kv-cache-dtype fp8"),
        "{text}"
    );
    assert!(!text.contains("-ctk") && !text.contains("(-c)"), "{text}");
    let text = hints(
        "ValueError: Free memory on device cuda:0 (10.00/24.00 GiB) on startup is less than desired GPU memory utilization \
         (0.9, 21.60 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes. vllm/v1/worker/utils.py",
    );
    assert!(text.contains("--gpu-memory-utilization to at most 0.41"), "{text}");
}

#[test]
fn pytorch_and_what_is_made_with_it_are_advised_of_theirs() {
    let sentence = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 23.69 GiB of \
                    which 512.00 MiB is free. Of the allocated memory IN_USE GiB is allocated by PyTorch, and IDLE GiB is reserved by \
                    PyTorch but unallocated.";
    let full = sentence.replace("IN_USE", "22.10").replace("IDLE", "0.10");
    let text = hints(&full);
    assert!(
        text.contains("a smaller batch or shorter inputs: 4096 MiB were requested, and 512 MiB were free"),
        "{text}"
    );
    let text = hints(&format!("vllm/v1/worker/gpu_model_runner.py\n{full}"));
    assert!(text.contains("--max-num-batched-tokens") && text.contains("--max-num-seqs"), "{text}");
    let text = hints(&format!("ComfyUI: got an error\n{full}"));
    assert!(text.starts_with("use a smaller image") && !text.contains("VAE"), "{text}");
    let text = hints(&sentence.replace("IN_USE", "10.00").replace("IDLE", "12.10"));
    assert!(text.contains("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"), "{text}");
    assert!(text.contains("are idle in blocks that are too small for 4096 MiB"), "{text}");
}

#[test]
fn lines_of_several_logs_are_named_by_file_and_number() {
    let mut reader = LogReader::new();
    reader.file("a.log");
    reader.feed(LineSource::Log, b"all is well\nload_tensors: loading model tensors");
    reader.file("b.log");
    reader.feed(LineSource::Log, b"NVRM: Xid (PCI:0000:01:00): 79, pid=7, GPU has fallen off the bus.\n");
    reader.feed(LineSource::Context, b"told beside the logs");
    let found = diagnose(&reader.finish());
    assert!(found.reason.to_string().contains("b.log:1: NVRM: Xid"), "{}", found.reason);
    assert_eq!(serde_json::to_value(&found).unwrap()["evidence"][0]["file"], "b.log");
}

#[test]
fn a_node_of_comfyui_that_fails_is_shown_comfyuis_options() {
    let log = include_str!("../../../../data/logs/compute_buffer_too_large.decode.comfyui.log");
    let text = hints(log);
    assert!(text.contains("VAE Decode (Tiled)") && !text.contains("-ub"), "{text}");
}

/// The node for tiles helps in the VAE, another form of attention in the sampler.
#[test]
fn the_sampler_of_comfyui_is_not_advised_of_the_vae() {
    let log = |frame: &str| {
        format!(
            "ComfyUI version: 0.3.46\n  File \"/opt/ComfyUI/{frame}\n\
            torch.OutOfMemoryError: HIP out of memory. Tried to allocate 6.46 GiB. GPU 0 has a total capacity of 23.92 GiB of which \
            3.35 GiB is free. Of the allocated memory 16.97 GiB is allocated by PyTorch, and 127.91 MiB is reserved by PyTorch but \
            unallocated.\n"
        )
    };
    let sampler = hints(&log("comfy/ldm/modules/attention.py\", line 312, in attention_split"));
    for reported in [
        "use a smaller image or a smaller batch: 6615 MiB",
        "--use-split-cross-attention",
        "--use-quad-cross-attention",
        "--lowvram",
    ] {
        assert!(sampler.contains(reported), "{reported} in {sampler}");
    }
    assert!(!sampler.contains("VAE"), "{sampler}");
    let vae = hints(&log("comfy/ldm/modules/diffusionmodules/model.py\", line 295, in forward"));
    assert!(vae.contains("VAE Decode (Tiled)") && !vae.contains("cross-attention"), "{vae}");
}

/// Options of llama.cpp that neither whisper.cpp nor KoboldCpp has.
const OF_LLAMA: [&str; 7] = ["-ngl", "-ub", "-ctk", "(-c ", "(-c)", "plimsoll plan -- FLAGS", "--n-cpu-moe"];

#[test]
fn whisper_cpp_and_kobold_cpp_are_advised_of_their_own_options() {
    let whisper = include_str!("../../../../data/logs/model_too_large.whisper.log");
    let kobold = "Welcome to KoboldCpp - Version 1.92\nInitializing dynamic library: koboldcpp_cublas.so\n";
    let weights = "\
load_tensors: loading model tensors, this can take a while... (mmap = true)
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 23552.00 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 24696061952
llama_model_load: error loading model: unable to allocate CUDA0 buffer
";
    let cache = "\
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 8589934592
llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
";
    let graph = "\
whisper_backend_init_gpu: using CUDA0 backend
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory
ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 4294967296
whisper_init_state: failed to allocate compute buffers
";
    for (log, words) in [
        (whisper.to_owned(), ["large-v3-turbo-q5_0", "--no-gpu"]),
        (format!("whisper.cpp: {graph}"), ["--flash-attn", "--beam-size 1"]),
        (format!("{kobold}{LLAMA}{weights}"), ["(--gpulayers 16)", "--moecpu"]),
        (format!("{kobold}{LLAMA}{LOADED}{cache}"), ["(--contextsize 56320)", "--quantkv 1"]),
    ] {
        let text = hints(&log);
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} in {text}");
        assert!(!OF_LLAMA.iter().any(|word| text.contains(word)), "{text}");
    }
}

#[test]
fn a_full_card_is_not_advised_to_give_a_larger_share() {
    let log = |free: &str| {
        format!(
            "INFO vllm.worker: gpu_memory_utilization=0.8\ntorch.OutOfMemoryError: CUDA out of memory. Tried to \
             allocate 16.00 GiB. GPU 0 has a total capacity of 44.53 GiB of which {free} is free. Process 7 has \
             40.00 GiB memory in use. Of the allocated memory 39.50 GiB is allocated by PyTorch, and 335.07 MiB is \
             reserved by PyTorch but unallocated.\n"
        )
    };
    let full = hints(&log("187.94 MiB"));
    assert!(full.contains("--cpu-offload-gb") && !full.contains("raise the share"), "{full}");
    let spare = hints(&log("4.50 GiB"));
    assert!(spare.contains("(--gpu-memory-utilization): 4608 MiB of it are free"), "{spare}");
}

#[test]
fn the_limit_of_a_control_group_and_a_handle_without_room_are_named() {
    let killed = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/system.slice/docker-3f.scope,task=python3,pid=4411\n\
        Memory cgroup out of memory: Killed process 4411 (python3) total-vm:30000000kB, anon-rss:16421000kB, file-rss:0kB\n";
    let stated = read(killed);
    assert!(stated.reason.to_string().contains("control group"), "{}", stated.reason);
    assert!(hints(killed).starts_with("raise the limit (docker run --memory"), "{}", hints(killed));

    let whole = killed
        .replace("CONSTRAINT_MEMCG", "CONSTRAINT_NONE,task_memcg=/user.slice")
        .replace("Memory cgroup out", "Out");
    assert!(read(&whole).reason.to_string().contains("host memory ran out"), "{}", read(&whole).reason);

    let handle = "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce GTX 1060) (0000:01:00.0) - 5991 MiB free\n\
        load_tensors:        CUDA0 model buffer size =  4685.30 MiB\nllama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB\n\
        llama_context:      CUDA0 compute buffer size =   258.50 MiB\nCUDA error: the resource allocation failed\n\
        \x20 current device: 0, in function cublas_handle at /src/ggml-cuda/common.cuh:1072\n  cublasCreate_v2(&cublas_handles[device])\n";
    let stated = read(handle);
    assert_eq!(stated.cause, plimsoll_doctor::Cause::PoolGrowth, "{}", stated.reason);

    let capture = "INFO vllm Model loading took 14.9889 GiB\nINFO Available KV cache memory: 4.91 GiB\n  File \"gpu_model_runner.py\", line 9, in _capture_cudagraphs\n\
        torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 23.57 GiB of which 35.25 MiB is free. \
        Including non-PyTorch memory, this process has 23.50 GiB memory in use. Of the allocated memory 22.40 GiB is allocated by PyTorch, and 120.00 MiB is reserved by \
        PyTorch but unallocated.\n";
    assert!(hints(capture).contains("--enforce-eager"), "{}", hints(capture));

    let state = "  File \"torch/optim/adamw.py\", line 188, in _init_group\n    state[\"exp_avg\"] = torch.zeros_like(\n\
        torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacity of 23.57 GiB of which 118.31 MiB is free. Including \
        non-PyTorch memory, this process has 23.44 GiB memory in use. Of the allocated memory 23.01 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but \
        unallocated.\n";
    assert_eq!(read(state).cause, plimsoll_doctor::Cause::ModelTooLarge, "{}", read(state).reason);
}
