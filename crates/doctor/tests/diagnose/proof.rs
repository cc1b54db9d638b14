//! Tests that a diagnosis with a confidence of 0.8 or more rests on lines that allow no other explanation.

use plimsoll_doctor::{Cause, Diagnosis, LineSource, LogReader, SubCause, diagnose};

fn judged(log: &str) -> Diagnosis {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log.as_bytes());
    diagnose(&reader.finish())
}

/// The cause, and that it is not called sure.
fn likely(log: &str) -> Cause {
    let stated = judged(log);
    assert!(stated.confidence <= 0.7, "{}\n{log}", stated.reason);
    stated.cause
}

fn sure(log: &str) -> Cause {
    let stated = judged(log);
    assert!(stated.confidence >= 0.8, "{}\n{log}", stated.reason);
    stated.cause
}

/// PyTorch's sentence, with what it says of processes, of the allocated and of the idle memory.
fn torch(requested: &str, free: &str, processes: &str, live: &str, idle: &str) -> String {
    format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {requested}. GPU 0 has a total capacity of 15.77 GiB of which {free} is free. \
         {processes} Of the allocated memory {live} is allocated by PyTorch, and {idle} is reserved by PyTorch but unallocated.\n"
    )
}

#[test]
fn a_process_that_may_be_the_program_itself_is_no_neighbour() {
    // In a container the program appears under a number that it does not know.
    for occupied in ["11.95 GiB", "11.20 GiB", "10.95 GiB"] {
        let one = format!("Process 2116 has {occupied} memory in use.");
        let log = torch("5.00 GiB", "3.40 GiB", &one, "10.97 GiB", "120.00 MiB");
        assert_ne!(judged(&log).cause, Cause::ForeignProcess, "{}", judged(&log).reason);
    }
    // It may hold memory outside the allocator, so even much more is no proof.
    let one = "Process 2116 has 15.10 GiB memory in use.";
    assert_eq!(likely(&torch("1.00 GiB", "0.50 GiB", one, "60.00 MiB", "10.00 MiB")), Cause::ForeignProcess);
}

#[test]
fn a_neighbour_is_proven_by_bytes_that_cannot_be_the_program_s_own() {
    let named = "Including non-PyTorch memory, this process has 5.10 GiB memory in use.";
    for processes in [
        "Process 11 has 10.20 GiB memory in use. Process 12 has 5.10 GiB memory in use.".to_owned(),
        format!("Process 11 has 10.20 GiB memory in use. {named}"),
        named.to_owned(),
    ] {
        let log = torch("1.00 GiB", "0.40 GiB", &processes, "4.60 GiB", "30.00 MiB");
        assert_eq!(sure(&log), Cause::ForeignProcess);
    }
    // It holds less than this program has allocated, and the card has room for both.
    let less =
        torch("1.00 GiB", "0.40 GiB", "Process 11 has 6.10 GiB memory in use.", "8.60 GiB", "30.00 MiB");
    assert_eq!(sure(&less), Cause::ForeignProcess);
}

const METAL: &str = "\
ggml_metal_init: found device: Apple M1
ggml_metal_init: recommendedMaxWorkingSetSize  =  5461.34 MB
";

#[test]
fn an_assertion_of_a_gpu_backend_is_no_proof_that_memory_was_enough() {
    for assertion in [
        "GGML_ASSERT: ggml-metal.m:1645: false",
        "GGML_ASSERT(ggml-metal.m:1645): false",
        "/build/ggml/src/ggml-cuda/ggml-cuda.cu:5925: GGML_ASSERT(stat == 0) failed",
        "/build/src/llama-context.cpp:745: GGML_ASSERT(ctx.data) failed",
    ] {
        let log = format!("llm_load_tensors: VRAM used: 0.00 MB\n{METAL}{assertion}\n");
        let stated = judged(&log);
        assert!(stated.confidence < 0.4, "{}", stated.reason);
    }
    let sizes = "ggml.c:4044: GGML_ASSERT(src == NULL || data_size + view_offs <= ggml_nbytes(src)) failed\n";
    assert_eq!(sure(sizes), Cause::NotOom);
}

#[test]
fn a_graph_that_is_reserved_anew_was_not_refused() {
    let log = "llama_new_context_with_model:      ROCm0 compute buffer size =   164.00 MiB\n\
               ggml_backend_sched: failed to allocate graph, reserving\n";
    let stated = judged(log);
    assert_ne!(stated.cause, Cause::ComputeBufferTooLarge, "{}", stated.reason);
}

#[test]
fn a_working_set_that_is_exceeded_is_of_the_largest_buffer_that_the_log_lists() {
    let failed = "ggml_metal_graph_compute: command buffer 0 failed with status 5\nGGML_ASSERT: ggml-metal.m:1177: false\n";
    let buffer = |name: &str, size: u32, occupied: u32| {
        format!(
            "ggml_metal_add_buffer: allocated '{name:<16}' buffer, size = {size}.00 MB, ({occupied}.00 / 5461.34), warning: current \
             allocated size is greater than the recommended max working set size\n"
        )
    };
    let (data, cache) = (buffer("data", 7630, 7630), buffer("kv", 8192, 9000));
    assert_eq!(sure(&format!("{METAL}{data}{failed}")), Cause::ModelTooLarge);
    assert_eq!(sure(&format!("{METAL}{cache}{failed}")), Cause::KvCacheTooLarge);
    // The list was cut: what filled the set is not shown.
    assert_eq!(likely(&format!("{METAL}{}{failed}", buffer("scr0", 160, 6000))), Cause::ModelTooLarge);
    // The program compared values of its own, which Metal's memory has no part in.
    let own = "GGML_ASSERT: /build/llama.cpp:9084: ctx->logits.capacity() == logits_cap\n";
    assert_eq!(sure(&format!("{METAL}{data}{own}")), Cause::NotOom);
}

#[test]
fn one_refusal_proves_a_state_and_not_how_it_came_about() {
    let log = torch("1.00 GiB", "0.30 GiB", "", "11.20 GiB", "3.80 GiB");
    assert_eq!(sure(&log), Cause::FragmentationCachingAllocator);
    // What is free may not lie beside what is idle.
    let less = torch("4.00 GiB", "0.30 GiB", "", "11.20 GiB", "3.80 GiB");
    assert_eq!(likely(&less), Cause::FragmentationCachingAllocator);
    for reported in [
        "This looks like a memory leak: usage keeps increasing, and it keeps growing overnight.",
        "The node leaks memory and fails after several images; the cache is not released.",
        "Something is leaking; it works for the second run and dies after a few more.",
        "Memory seems to keep increasing or to keep growing over time.",
        "It grows until the card is full; usage increases until the crash, increasing until nothing is left.",
        "VRAM fills gradually with each iteration (every iteration adds some).",
        "It gets worse with each run; every run needs more.",
        "Worse with each generation; every generation adds a GiB, each request too, and after some time it fails.",
        "It fails the second time, or at the second generation, as memory is not freed.",
        "The old model is never released, its cache is never freed, and it does not release the rest.",
    ] {
        likely(&format!("{reported}\n{log}"));
    }
}

#[test]
fn errors_of_level_zero_and_lost_devices_are_read_and_are_no_proof() {
    let level_zero = "Native API failed. Native API returns: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)\n";
    let stated = judged(level_zero);
    assert_eq!(
        (stated.cause, stated.sub_cause),
        (Cause::Other, Some(SubCause::Unexplained)),
        "{}",
        stated.reason
    );
    let lost = "llama_model_load: error loading model: vk::Queue::submit: ErrorDeviceLost\n\
                llama_model_load_from_file_impl: failed to load model\n";
    assert_eq!(likely(lost), Cause::DriverOrHw);
    for word in ["CUDA error: unspecified launch failure", "HSA_STATUS_ERROR_OUT_OF_RESOURCES"] {
        assert_eq!(likely(&format!("{word}\n")), Cause::DriverOrHw);
    }
}

#[test]
fn an_error_without_a_number_leaves_other_causes_open() {
    for (log, cause) in [
        // On a full card cuBLAS cannot start either.
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            Cause::NotOom,
        ),
        // PyTorch queries NVML in order to word a refusal.
        (
            "RuntimeError: NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at \"../c10/cuda/CUDACachingAllocator.cpp\":813",
            Cause::DriverOrHw,
        ),
        ("The job gets oom kills even with 20GB of RAM.", Cause::HostOom),
        ("terminate called after throwing an instance of 'std::bad_alloc'", Cause::HostOom),
        // Other programs may hold the host's memory.
        (
            "Error: model requires more system memory (4.1 GiB) than is available (3.1 GiB)",
            Cause::ModelTooLarge,
        ),
    ] {
        assert_eq!(likely(&format!("{log}\n")), cause);
    }
    let pinned = "ggml_cuda_host_malloc: failed to allocate 3038.00 MiB of pinned memory: invalid argument\n";
    assert_eq!(sure(pinned), Cause::HostPinnedLimit);
    likely(&format!("{pinned}Segmentation fault (core dumped)\n"));
}

#[test]
fn weights_that_an_empty_card_would_hold_are_not_called_too_large_for_sure() {
    let refused = |mib: u32| {
        format!(
            "ggml_cuda_init: found 1 CUDA devices (Total VRAM: 24126 MiB):\n\
             ggml_backend_cuda_buffer_type_alloc_buffer: allocating {mib}.00 MiB on device 0: cudaMalloc failed: out of memory\n\
             alloc_tensor_range: failed to allocate CUDA0 buffer of size {}\n",
            u64::from(mib) << 20
        )
    };
    assert_eq!(likely(&refused(9000)), Cause::ModelTooLarge);
    assert_eq!(sure(&refused(39_000)), Cause::ModelTooLarge);
}
