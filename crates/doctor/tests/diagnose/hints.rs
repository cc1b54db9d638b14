//! Tests that each hint suits the log: its program, its card, and its figures. A hint never repeats what the
//! user already does.

use plimsoll_doctor::{LineSource, LogReader, diagnose};

fn hints(log: &str) -> String {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log.as_bytes());
    diagnose(&reader.finish()).hints.iter().map(|hint| format!("{hint}\n")).collect()
}

fn without(log: &str, words: &[&str]) -> String {
    let text = hints(log);
    let found: Vec<_> = words.iter().filter(|word| text.contains(**word)).collect();
    assert!(!text.is_empty() && found.is_empty(), "{found:?} in {text}\nof {log}");
    text
}

const OF_NVIDIA: [&str; 6] = ["NVRM", "Xid", "CUDA_VISIBLE", "GGML_CUDA", "nvidia-smi", "NVIDIA"];
const OF_LLAMA: [&str; 6] = ["(-c", "-ngl", "-ub", "-np", "-ctk", "--n-cpu-moe"];

#[test]
fn no_hint_is_of_another_maker_or_interface() {
    for log in [
        "Memory access fault by GPU node-1 (Agent handle: 0x55) on address 0x7f. Reason: Page not present or supervisor privilege.\n",
        "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!\n[drm:amdgpu_job_timedout] *ERROR* ring gfx_0.0.0 timeout\n",
        "ggml_vulkan: 0 = AMD Radeon RX 6800 (RADV NAVI21) (radv) | uma: 0\nggml_vulkan: Failed to allocate pinned memory.\nggml_vulkan: vk::Device::allocateMemory: ErrorOutOfHostMemory\n",
        "level_zero backend failed with error: 20 [UR_RESULT_ERROR_DEVICE_LOST]\n",
        "ROCm error: invalid device function\n  current device: 0, in function ggml_cuda_compute_forward at /src/ggml-cuda.cu:2313\n",
        "ValueError: Free memory on device xpu:0 (0.22/30.3 GiB) on startup is less than desired GPU memory utilization (0.7, 21.21 GiB).\n",
        "ggml_metal_synchronize: error: command buffer 0 failed with status 5\nerror: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n",
    ] {
        without(log, &OF_NVIDIA);
    }
    let nvidia = "NVRM: Xid (PCI:0000:01:00): 79, pid=7, GPU has fallen off the bus.\n";
    assert!(hints(nvidia).contains("dmesg | grep -e NVRM -e Xid"), "{}", hints(nvidia));
    let amd = "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!\n";
    assert!(hints(amd).contains("dmesg | grep amdgpu"), "{}", hints(amd));
}

#[test]
fn no_hint_is_of_another_program() {
    for log in [
        "INFO vllm Model loading took 15.2 GiB\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n",
        "vllm: ValueError: Free memory on device (31.4/47.4 GiB) on startup is less than desired GPU memory utilization (0.95, 45.0 GiB).\n",
        "mlx_lm.generate: RuntimeError: [metal::malloc] Attempting to allocate 38654705664 bytes which is greater than the maximum allowed buffer size of 22906503168 bytes.\n",
        "[METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n",
        "RuntimeError: CUDA failed with error out of memory\n    return self.model.encode(features)\n",
        "llm-1 exited with code 137\n",
    ] {
        without(log, &OF_LLAMA);
    }
}

#[test]
fn vllm_s_three_messages_have_three_remedies() {
    let released = "AssertionError: Error in memory profiling. Initial free memory 82.94 GiB, current free memory 90.17 GiB. This happens when other processes sharing the same container release GPU memory while vLLM is profiling during initialization.\n";
    let text = without(released, &["stop those", "--gpu-memory-utilization"]);
    assert!(text.starts_with("start again while no other program on the card starts or ends"), "{text}");
    let taken = "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization (0.95, 45.01 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n";
    assert!(hints(taken).contains("--gpu-memory-utilization to at most 0.66"), "{}", hints(taken));
    let blocks = "INFO [gpu_model_runner.py:1347] Model loading took 15.2683 GiB and 7.861 seconds\nERROR [core.py:396] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n";
    assert!(hints(blocks).starts_with("raise --gpu-memory-utilization: "), "{}", hints(blocks));
    // Neither a share of 0.97 nor a card that the weights fill has more to give.
    without(&format!("args: gpu_memory_utilization=0.97\n{blocks}"), &["raise"]);
    without(
        &format!(
            "the current vLLM instance can use total_gpu_memory (15.60GiB) x gpu_memory_utilization (0.90) = 14.04GiB\n{blocks}"
        ),
        &["raise"],
    );
}

const WEIGHTS: &str = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 144817.04 MiB on device 0: cudaMalloc failed: out of memory\n\
    alloc_tensor_range: failed to allocate CUDA0 buffer of size 151851674624\nllama_model_load: error loading model: unable to allocate CUDA0 buffer\n";

#[test]
fn no_hint_is_given_that_the_log_has_already() {
    assert!(hints(WEIGHTS).contains("--n-cpu-moe"), "{}", hints(WEIGHTS));
    for given in [
        "llama-server -m a.gguf -cmoe\n",
        "llama-server -m a.gguf --n-cpu-moe 40\n",
        "llama-server -m a.gguf -ot ffn_exps=CPU\n",
    ] {
        without(&format!("{given}{WEIGHTS}"), &["--n-cpu-moe"]);
    }
    let graph = "CUDA error: out of memory\n  current device: 0, in function evaluate_and_capture_cuda_graph at /src/ggml-cuda.cu:4467\n  cudaGraphInstantiate(&graph->instance, graph->graph, __null, __null, 0)\n";
    assert!(
        hints(graph)
            .starts_with("disable CUDA graphs, which keep memory of their own (GGML_CUDA_DISABLE_GRAPHS=1)"),
        "{}",
        hints(graph)
    );
    without(
        &format!("GGML_CUDA_DISABLE_GRAPHS=1 llama-server -m a.gguf\n{graph}"),
        &["GGML_CUDA_DISABLE_GRAPHS"],
    );
    let limit = "ggml_backend_sycl_buffer_type_alloc_buffer: can't allocate 9663676416 Bytes of memory on device\nsycl: not exceeding 4 GB\n";
    assert!(hints(limit).contains("UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1"), "{}", hints(limit));
    without(&format!("export UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1\n{limit}"), &["UR_L0"]);
    let buffers = "graph_reserve: failed to allocate compute buffers\n";
    without(&format!("llama-server -m a.gguf -fa on\n{buffers}"), &["-fa on"]);
}

#[test]
fn the_buffer_of_an_image_is_no_matter_of_the_context() {
    let log = |given: &str| {
        format!(
            "{given}srv  process_chun: processing image...\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 4514.05 MiB on device 0: cudaMalloc failed: out of memory\n\
             ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 4733328896\n"
        )
    };
    let text = without(&log(""), &OF_LLAMA);
    assert!(text.starts_with("keep the image encoder on the host (--no-mmproj-offload)"), "{text}");
    without(&log("llama-server --no-mmproj-offload\n"), &["mmproj"]);
    // Without an image it is of the context.
    let text = hints(&log("").replace("processing image", "processing prompt"));
    assert!(text.contains("(-ub)") && !text.contains("mmproj"), "{text}");
}

/// The cache of 262144 tokens would take 3.6 times as much.
#[test]
fn an_f16_cache_is_advice_only_where_it_fits() {
    let log = |free: u32| {
        format!(
            "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3090) - {free} MiB free\nload_tensors:        CUDA0 model buffer size =  8000.00 MiB\n\
             llama_kv_cache:      CUDA0 KV buffer size =  4000.00 MiB\nllama_kv_cache: size = 4000.00 MiB ( 262144 cells,  32 layers,  1/1 seqs), K (q4_0): 2000.00 MiB, V (q4_0): 2000.00 MiB\n\
             srv  update_slots: all slots are idle\nCUDA error: out of memory\n  current device: 0, in function alloc at /src/ggml-cuda.cu:497\n  cuMemCreate(&handle, reserve_size, &prop, 0)\n"
        )
    };
    without(&log(16_000), &["f16"]);
    without(&log(22_000), &["f16"]);
    assert!(hints(&log(24_000)).contains("use an f16 cache"), "{}", hints(&log(24_000)));
    without(
        "llama-server -ctk q4_0 -ctv q4_0\nCUDA error: out of memory\n  current device: 0, in function ggml_cuda_mul_mat at x.cu:7\n",
        &["f16"],
    );
}
