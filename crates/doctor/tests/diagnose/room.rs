//! Tests of requests that are smaller than the free memory of their own log: none is called too large.

use plimsoll_doctor::{Cause, Diagnosis, LineSource, LogReader, SubCause, diagnose};

fn judged(log: &str) -> Diagnosis {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log.as_bytes());
    diagnose(&reader.finish())
}

/// The sub-cause of a log whose verdict is not sure and blames no use of the card.
fn unsure(log: &str) -> Option<SubCause> {
    let stated = judged(log);
    assert!(
        matches!(stated.cause, Cause::Other | Cause::HostOom) && stated.confidence <= 0.7,
        "{log}\n{}",
        stated.reason
    );
    stated.sub_cause
}

const USING: &str = "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) (0000:01:00.0) - 23700 MiB free\n";
const WEIGHTS: &str = "load_tensors:        CUDA0 model buffer size =  8100.00 MiB\nllama_context: constructing llama_context\n";
const REFUSED: &str = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 6000.00 MiB on device 0: cudaMalloc failed: out of memory\n";
const AS_WEIGHTS: &str = "alloc_tensor_range: failed to allocate CUDA0 buffer of size 6291456000\nllama_model_load: error loading model: unable to allocate CUDA0 buffer\n";
const AS_CACHE: &str =
    "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n";
const AS_GRAPH: &str = "ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 6291456000\n";

#[test]
fn a_request_below_the_free_memory_of_its_log_is_never_too_large() {
    for log in [
        format!("{USING}{REFUSED}{AS_WEIGHTS}"),
        format!("{USING}{WEIGHTS}{REFUSED}{AS_CACHE}"),
        format!("{USING}{WEIGHTS}{REFUSED}{AS_GRAPH}"),
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.64 GiB of which 3.90 GiB is free. Of the allocated memory 18.20 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated.\n".to_owned(),
        "common_params_fit_impl: projected to use 20798 MiB of device memory vs. 31827 MiB of free device memory\n\
         ggml_backend_sycl_buffer_type_alloc_buffer: can't allocate 1207959552 Bytes of memory on device\n\
         alloc_tensor_range: failed to allocate SYCL0 buffer of size 1207959552\n".to_owned(),
        // The refused size is not told, but that of the whole load is.
        "source=sched.go:788 msg=\"new model will fit in available VRAM in single GPU, loading\" available=24569131008 required=\"6.5 GiB\"\n\
         llama_model_load: error loading model: unable to allocate ROCm0 buffer\n".to_owned(),
    ] {
        assert_eq!(unsure(&log), Some(SubCause::AlongsideFree), "{log}{}", judged(&log).reason);
    }
}

/// A log that does not list the weights does not tell what the card held.
#[test]
fn unlisted_weights_do_not_count_as_free_memory() {
    for log in [
        format!("{USING}llama_context: constructing llama_context\n{REFUSED}{AS_CACHE}"),
        // Vulkan divides the weights, and this is one part of them.
        "llama_model_load_from_file_impl: using device Vulkan0 (AMD Radeon RX 7600) - 7900 MiB free\n\
         load_tensors: loading model tensors, this can take a while... (mmap = true)\n\
         ggml_vulkan: Device memory allocation of size 1073741824 failed.\nggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n\
         alloc_tensor_range: failed to allocate Vulkan0 buffer of size 1073741824\n".to_owned(),
    ] {
        let stated = judged(&log);
        assert!(matches!(stated.cause, Cause::KvCacheTooLarge | Cause::ModelTooLarge), "{}", stated.reason);
    }
    // By the figures there was just enough: neither is sure.
    let barely = format!("{USING}{WEIGHTS}{REFUSED}{AS_CACHE}").replace("6000.00", "15000.00");
    let stated = judged(&barely);
    assert!(stated.cause == Cause::KvCacheTooLarge && stated.confidence <= 0.7, "{}", stated.reason);
}

const OF_WINDOWS: &str = "msg=\"starting llama server\" cmd=\"C:\\Users\\me\\ollama.exe runner\"\n";

#[test]
fn windows_backs_a_card_with_main_memory_and_page_file() {
    let log = |free: &str, swap: &str| {
        format!(
            "msg=\"system memory\" total=\"15.9 GiB\" free=\"{free}\" free_swap=\"{swap}\"\n\
             msg=\"offload to cuda\" memory.available=\"[22.0 GiB 22.0 GiB]\" memory.required.full=\"30.0 GiB\"\n{OF_WINDOWS}\
             ggml_backend_cuda_buffer_type_alloc_buffer: allocating 15360.00 MiB on device 1: cudaMalloc failed: out of memory\n"
        )
    };
    assert_eq!(unsure(&log("6.0 GiB", "8.0 GiB")), Some(SubCause::CommitLimit));
    assert_eq!(unsure(&log("6.0 GiB", "40.0 GiB")), Some(SubCause::AlongsideFree));
    assert_eq!(unsure(&log("6.0 GiB", "8.0 GiB").replace(OF_WINDOWS, "")), Some(SubCause::AlongsideFree));
    let printed = judged(
        "OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading torch_cuda.dll\n",
    );
    assert_eq!((printed.cause, printed.sub_cause), (Cause::HostOom, Some(SubCause::CommitLimit)));
}

#[test]
fn a_limit_of_one_allocation_is_printed_or_unsure() {
    let sycl = "llama_model_load_from_file_impl: using device SYCL0 (Intel(R) Arc(TM) A770 Graphics) - 15400 MiB free\n\
        print_info: file size   = 9.20 GiB (5.50 BPW)\nload_tensors: loading model tensors, this can take a while... (mmap = true)\n\
        ggml_backend_sycl_buffer_type_alloc_buffer: can't allocate 9663676416 Bytes of memory on device\n\
        alloc_tensor_range: failed to allocate SYCL0 buffer of size 9663676416\n";
    assert_eq!(unsure(sycl), Some(SubCause::AllocationLimit));
    for printed in [
        "ggml_vulkan: Device memory allocation of size 4757131264 failed.\nggml_vulkan: Requested buffer size exceeds device memory allocation limit: ErrorOutOfDeviceMemory\n",
        "RuntimeError: [metal::malloc] Attempting to allocate 38654705664 bytes which is greater than the maximum allowed buffer size of 22906503168 bytes.\n",
        "ggml_metal_add_buffer: buffer 'data' size 21474836480 is larger than buffer maximum of 17179869184\n",
    ] {
        let stated = judged(printed);
        assert_eq!(
            (stated.cause, stated.sub_cause),
            (Cause::Other, Some(SubCause::AllocationLimit)),
            "{}",
            stated.reason
        );
        assert!(stated.confidence >= 0.8, "{}", stated.reason);
    }
    let overflow = "RuntimeError: [metal::malloc] Attempting to allocate 18446744069414600704 bytes which is greater than the maximum allowed buffer size of 22906503168 bytes.\n";
    assert_eq!(judged(overflow).cause, Cause::NotOom);
}

#[test]
fn a_capacity_that_the_kernel_denies_is_misreported() {
    let log = |vram: u32, requested: &str| {
        format!(
            "[    4.1] [drm] amdgpu: {vram}M of VRAM memory ready\ntorch.OutOfMemoryError: HIP out of memory. Tried to allocate {requested} GiB. GPU 0 has a total capacity of 30.52 GiB of which 30.10 GiB is free. \
             Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.\n"
        )
    };
    let stated = judged(&log(98_304, "40.00"));
    assert_eq!(
        (stated.cause, stated.sub_cause),
        (Cause::Other, Some(SubCause::CapacityMisreported)),
        "{}",
        stated.reason
    );
    // The kernel has as much as the run time says.
    let stated = judged(&log(32_768, "40.00"));
    assert!(stated.cause == Cause::ComputeBufferTooLarge && stated.confidence <= 0.7, "{}", stated.reason);
    assert_eq!(judged(&log(98_304, "140.00")).sub_cause, None, "nor has the kernel so much");
}

#[test]
fn idle_memory_that_could_not_have_held_the_request_is_not_in_pieces() {
    for (free, idle) in [("12.90", "122.00 MiB"), ("0.10", "1.20 GiB"), ("3.00", "6.00 GiB")] {
        let log = format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 13.10 GiB. GPU 0 has a total capacity of 23.64 GiB of which {free} GiB is free. Of the allocated memory \
             9.80 GiB is allocated by PyTorch, and {idle} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting \
             PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n"
        );
        let stated = judged(&log);
        assert_ne!(stated.cause, Cause::FragmentationCachingAllocator, "{}", stated.reason);
    }
}

#[test]
fn a_neighbour_on_memory_that_the_host_shares_is_unsure() {
    for board in [
        "AMD Ryzen AI Max+ 395\n",
        "Strix Halo\n",
        "ggml_vulkan: 0 = AMD Radeon 890M Graphics (RADV) (radv) | uma: 1 | fp16: 1\n",
    ] {
        let log = format!(
            "{board}ValueError: Free memory on device cuda:0 (20.10/62.00 GiB) on startup is less than desired GPU memory utilization (0.9, 55.80 GiB).\n"
        );
        let stated = judged(&log);
        assert!(stated.cause == Cause::ForeignProcess && stated.confidence <= 0.7, "{}", stated.reason);
    }
}
