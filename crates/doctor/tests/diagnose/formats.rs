//! Tests of single printed lines and the cause that they indicate, in the formats of engines, frameworks,
//! drivers and kernels.
//!
//! They complement the whole logs of `data/logs`. The sizes are invented.

use plimsoll_doctor::Cause::*;
use plimsoll_doctor::{Cause, LineSource, LogReader, diagnose};

fn cause(text: &str) -> (Cause, f64) {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, text.as_bytes());
    let diagnosis = diagnose(&reader.finish());
    (diagnosis.cause, diagnosis.confidence)
}

#[test]
fn program_messages_map_to_causes_by_their_format() {
    let formats: &[(&str, Cause)] = &[
        // Frameworks.
        (
            "ValueError: Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization",
            ModelTooLarge,
        ),
        (
            "AssertionError: Error in memory profiling. Initial free memory 20 GiB, current free memory 22 GiB.",
            ForeignProcess,
        ),
        (
            "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
            ForeignProcess,
        ),
        ("RuntimeError: Prefill out of memory. Try to lower your batch size.", KvCacheTooLarge),
        (
            "init.cc:700 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
            WrongDeviceContext,
        ),
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", ForeignProcess),
        ("RuntimeError: Unable to find a valid cuDNN algorithm to run convolution", ComputeBufferTooLarge),
        (
            "bfc_arena.cc: Failed to allocate memory for requested buffer of size 3145728000",
            ComputeBufferTooLarge,
        ),
        (
            "[TRT] [E] Requested amount of GPU memory (28579323904 bytes) could not be allocated.",
            ComputeBufferTooLarge,
        ),
        ("mkl_malloc: failed to allocate memory", HostOom),
        (
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
            HostOom,
        ),
        ("Warning: Ran out of memory when regular VAE decoding, retrying with tiled VAE decoding.", NotOom),
        (
            "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.2GiB. The caller indicates that this is not a failure",
            NotOom,
        ),
        (
            "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.2GiB. The caller indicates that this is not a failure\nAllocator (GPU_0_bfc) ran out of memory trying to allocate 765.00MiB (rounded to 802160640)requested by op decoder/concat",
            ComputeBufferTooLarge,
        ),
        // ollama and ggml.
        ("Error: memory layout cannot be allocated with num_gpu = 48", ModelTooLarge),
        ("msg=\"insufficient VRAM to load any model layers\"", ModelTooLarge),
        ("Error: timed out waiting for llama runner to start: progress 0.42", NotOom),
        ("llama_decode: could not find a KV slot for the batch", NotOom),
        ("llm_load_tensors: offloaded 0/33 layers to GPU", NotOom),
        ("RuntimeError: Insufficient VRAM in split for model and cache", ModelTooLarge),
        (
            "ggml_vulkan: Requested buffer size exceeds device buffer size limit: ErrorOutOfDeviceMemory",
            Other,
        ),
        (
            "ggml_vulkan: Failed to allocate pinned memory (Requested buffer size exceeds device buffer size limit: ErrorOutOfDeviceMemory)",
            HostPinnedLimit,
        ),
        ("terminate called after throwing an instance of 'vk::DeviceLostError'", DriverOrHw),
        (
            "ggml_backend_sycl_buffer_type_alloc_buffer: can't allocate 3503030272 Bytes of memory on device\nggml_gallocr_reserve_n: failed to allocate SYCL0 buffer of size 3503030272",
            ComputeBufferTooLarge,
        ),
        // Drivers and kernels.
        (
            "CUDA error: an illegal memory access was encountered\n  current device: 0, in function ggml_backend_cuda_synchronize",
            DriverOrHw,
        ),
        ("amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32770)", DriverOrHw),
        (
            "|   0  NVIDIA H200     On  | 00000000:01:00.0 Off |                 ERR! |\n|ERR!  ERR! ERR!    N/A / ERR! |",
            DriverOrHw,
        ),
        ("UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount().", DriverOrHw),
        (
            "kernel version 535.54.3 does not match DSO version 535.86.5 -- cannot find working devices",
            DriverOrHw,
        ),
        ("launcher: subprocess exits with return code = -9", HostOom),
        ("CUDA Setup failed despite GPU being available.", NotOom),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", NotOom),
        (
            "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
            NotOom,
        ),
        (
            "CUDA error: an internal operation failed\n  current device: 0, in function ggml_cuda_op_mul_mat_cublas",
            NotOom,
        ),
        (
            "ggml_cuda_host_malloc: failed to allocate 512.00 MiB of pinned memory: no CUDA-capable device is detected",
            NotOom,
        ),
        // Calls that pin, wherever they stand.
        (
            "  File \"a.py\", line 9, in __init__\n    torch.zeros(shape, pin_memory=True)\nRuntimeError: CUDA error: out of memory",
            HostPinnedLimit,
        ),
        (
            "    return self.model.encode(features)\nRuntimeError: CUDA failed with error out of memory",
            ComputeBufferTooLarge,
        ),
        (
            "RuntimeError: Not enough memory, use lower resolution (max approx. 1536x1536). Need: 9.2GB free, Have:3.1GB free",
            ComputeBufferTooLarge,
        ),
        // Rounds that are counted.
        (
            "after request 1: 9120 MiB\nafter request 10: 9518 MiB\nafter request 50: 11240 MiB\nafter request 100: 13402 MiB",
            Leak,
        ),
        ("turn 1: 8.1 GB\nturn 2: 9.7 GB\nturn 3: 13.3 GB", Leak),
    ];
    let wrong: Vec<_> = formats
        .iter()
        .map(|(text, expected)| (text, expected, cause(text)))
        .filter(|(_, expected, (found, _))| *expected != found)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

const LOADED: &str = "load_tensors: offloaded 41/41 layers to GPU\nload_tensors:        CUDA0 model buffer size =  6148.00 MiB\n";
const CONTEXT: &str = "llama_context: constructing llama_context\nllama_context: n_ctx         = 131072\n";
const CACHE: &str = "llama_kv_cache:      CUDA0 KV buffer size =  2560.00 MiB\n\
    llama_kv_cache: size = 2560.00 MiB ( 16384 cells,  40 layers,  1/1 seqs), K (f16): 1280.00 MiB, V (f16): 1280.00 MiB\n";
const REFUSED: &str = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2454.00 MiB on device 0: cudaMalloc failed: out of memory\n";
const TENSORS: &str = "alloc_tensor_range: failed to allocate CUDA0 buffer of size 2573205504\n";
const AT_RUN_TIME: &str =
    "CUDA error: out of memory\n  current device: 0, in function f at ggml-cuda.cu:2600\n";

#[test]
fn refused_buffer_is_identified_by_the_stage_of_the_load() {
    for (parts, expected) in [
        (vec![LOADED, REFUSED, TENSORS], ModelTooLarge),
        // The same lines, once the context is being made.
        (vec![LOADED, CONTEXT, REFUSED, TENSORS], KvCacheTooLarge),
        (vec![LOADED, CONTEXT, REFUSED], KvCacheTooLarge),
        (vec![LOADED, CONTEXT, CACHE, REFUSED], ComputeBufferTooLarge),
        // A second model, of a draft or of another request.
        (vec![LOADED, CONTEXT, CACHE, LOADED, REFUSED, TENSORS], ModelTooLarge),
        (
            vec![
                "llama_model_load_internal: offloading 60 repeating layers to GPU\nCUDA error 2 at ggml-cuda.cu:2300: out of memory",
            ],
            ModelTooLarge,
        ),
        (vec!["msg=\"llama runner started in 3.02 seconds\"\n", AT_RUN_TIME], PoolGrowth),
        (vec![AT_RUN_TIME, "  cudaGraphInstantiate(&instance, graph, NULL, NULL, 0)"], PoolGrowth),
        (vec!["Processing Prompt [BLAS] (3584 / 7340 tokens)", AT_RUN_TIME], PoolGrowth),
    ] {
        let text = parts.concat();
        assert_eq!(cause(&text).0, expected, "{text}");
    }
}

#[test]
fn free_memory_at_start_is_compared_with_the_card_and_with_own_allocations() {
    let device = |free: u32| format!("using device CUDA0 (NVIDIA GeForce RTX 3090) - {free} MiB free\n");
    let (full, half, empty) = (device(2011), device(9217), device(23_900));
    let refused = |requested: &str| REFUSED.replace("2454.00", requested);
    let (most, larger) = (refused("20286.00"), refused("24100.00"));
    for (parts, expected) in [
        (vec![full.as_str(), REFUSED, TENSORS], ForeignProcess),
        // Why what was free was refused is not told; what the card never had was too large.
        (vec![&empty, REFUSED, TENSORS], Other),
        (vec![&empty, &larger, TENSORS], ModelTooLarge),
        // The request would fit an empty card, but not what others have left of it.
        (vec![&half, &most, TENSORS], ForeignProcess),
        // A model that was loaded before, and lives on.
        (
            vec![
                "load_tensors:        CUDA0 model buffer size = 20148.00 MiB\nllama_model_loader: loaded meta data with 33 keys\n",
                &full,
                REFUSED,
                TENSORS,
            ],
            ModelTooLarge,
        ),
        (vec!["NVIDIA GB10\n", REFUSED, TENSORS], UnifiedMemoryRefused),
    ] {
        let text = parts.concat();
        assert_eq!(cause(&text).0, expected, "{text}");
    }
}

/// Asked, total, free, live and reserved, in MiB, before PyTorch's newer sentence.
fn torch(requested: u32, total: u32, free: u32, live: u32, reserved: u32, before: &str) -> (Cause, f64) {
    cause(&format!(
        "{before}\nRuntimeError: CUDA out of memory. Tried to allocate {requested}.00 MiB (GPU 0; {total}.00 MiB total capacity; \
         {live}.00 MiB already allocated; {free}.00 MiB free; {reserved}.00 MiB reserved in total by PyTorch)"
    ))
}

#[test]
fn the_numbers_of_a_refusal_decide_whatever_its_words_are() {
    const LOADS: &str = "    return t.to(device, dtype if t.is_floating_point() or t.is_complex() else None)";
    const COMPUTES: &str = "  File \"layers.py\", line 12, in forward";
    for (found, expected, sure) in [
        // Idle memory would have done, and is a third of the card.
        (torch(3000, 24_000, 2800, 12_000, 20_000, ""), FragmentationCachingAllocator, true),
        // What a load has left idle is no reason: more would have been asked next.
        (torch(26, 8192, 0, 6656, 6994, LOADS), ModelTooLarge, true),
        // Others hold most of the card, or another library of the program does: the sentence names no
        // process.
        (torch(1700, 14_900, 1300, 650, 1030, COMPUTES), ForeignProcess, false),
        // One tensor is larger than the card, and no frame shows of what.
        (torch(26_700, 24_200, 16_700, 4400, 5100, ""), ComputeBufferTooLarge, false),
        (torch(26_700, 24_200, 16_700, 4400, 5100, COMPUTES), ComputeBufferTooLarge, true),
        // Full of what lives, and a small piece of a computation is refused.
        (torch(20, 16_000, 10, 15_100, 15_200, COMPUTES), ModelTooLarge, false),
        (torch(1500, 10_240, 0, 8830, 8950, COMPUTES), ComputeBufferTooLarge, true),
    ] {
        assert_eq!((found.0, found.1 >= 0.8), (expected, sure), "{found:?}");
    }
    let (found, sure) = torch(512, 12_288, 7370, 2620, 2650, "");
    assert!(found == Other && sure < 0.8, "far more is free than was asked: the host is short");
}
