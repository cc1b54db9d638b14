//! Tests of out-of-memory messages of Metal, Level Zero and RADV (Mesa's Vulkan driver), and of failed calls
//! of any GPU runtime function.

use plimsoll_doctor::{Cause, Diagnosis, LineSource, LogReader, SubCause, diagnose};

fn judged(log: &str) -> Diagnosis {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log.as_bytes());
    diagnose(&reader.finish())
}

fn expect(log: &str, cause: Cause, sub_cause: Option<SubCause>) {
    let stated = judged(log);
    assert_eq!((stated.cause, stated.sub_cause), (cause, sub_cause), "{log}\n{}", stated.reason);
    assert!(
        stated.hints.iter().all(|hint| !hint.to_string().contains("will not help")),
        "{:?}",
        stated.hints
    );
}

const WORK: &str = "ggml_metal_synchronize: error: command buffer 0 failed with status 5\n\
    error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n";

#[test]
fn metal_reports_its_work_its_buffers_and_its_limit() {
    let limit = "ggml_metal_device_init: GPU name:   Apple M1 Max\nggml_metal_device_init: recommendedMaxWorkingSetSize  = 22906.50 MB\n";
    let placed = |weights: u32, cache: u32| {
        format!(
            "load_tensors: Metal_Mapped model buffer size = {weights}.00 MiB\nllama_kv_cache:      Metal KV buffer size = {cache}.00 MiB\n\
             llama_context:      Metal compute buffer size =   500.00 MiB\n"
        )
    };
    expect(&format!("{limit}{}{WORK}", placed(4800, 20_480)), Cause::KvCacheTooLarge, None);
    expect(&format!("{limit}{}{WORK}", placed(24_000, 1024)), Cause::ModelTooLarge, None);
    // Far below the limit, and without one, nothing is proven but the lack.
    for log in [
        format!("{limit}{}{WORK}", placed(4800, 1024)),
        format!("{}{WORK}", placed(4800, 20_480)),
        WORK.to_owned(),
    ] {
        expect(&log, Cause::Other, Some(SubCause::Unexplained));
        assert!(judged(&log).confidence < 0.5);
    }
    let buffer = "llama_context: constructing llama_context\n\
        ggml_metal_buffer_init: error: failed to allocate buffer, size = 40960.00 MiB\n\
        ggml_backend_metal_buffer_type_alloc_buffer: failed to allocate Metal buffer of 42949672960 bytes (out of memory)\n\
        llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n";
    expect(buffer, Cause::KvCacheTooLarge, None);
    let data = "ggml_metal_init: found device: Apple M2\nggml_metal_log_allocated_size: allocated buffer, size =  9216.00 MiB, ( 9216.12 /  5461.34)\n\
        ggml_metal_log_allocated_size: warning: current allocated size is greater than the recommended max working set size\nGGML_ASSERT: ggml-metal.m:1590: false\n";
    expect(data, Cause::ModelTooLarge, None);
    let within = data.replace("9216.12 /  5461.34", "2048.12 /  5461.34");
    expect_other_end(&within.replace(
        "warning: current allocated size is greater than the recommended max working set size",
        "ok",
    ));
    let nil = "ggml_metal_add_buffer: allocated 'kv              ' buffer, size =   512.03 MiB, ( 4458.33 /  4096.00)ggml_metal_add_buffer: warning: current allocated size is greater than the recommended max working set size\n\
        ggml_metal_get_buffer: error: buffer is nil\n";
    expect(nil, Cause::ModelTooLarge, None);
    let mlx = "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n";
    expect(mlx, Cause::Other, Some(SubCause::Unexplained));
}

/// An assertion below the limit is the program's own.
fn expect_other_end(log: &str) {
    assert_eq!(judged(log).cause, Cause::NotOom, "{log}");
}

#[test]
fn level_zero_and_radv_report_a_lack_of_memory() {
    for log in [
        "level_zero backend failed with error: 39 [UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY]\n",
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  zeMemAllocDevice: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY\n",
        "radv/amdgpu: Not enough memory for command submission.\nterminate called after throwing an instance of 'vk::DeviceLostError'\n  what():  vk::Queue::submit: ErrorDeviceLost\n",
    ] {
        expect(log, Cause::Other, Some(SubCause::Unexplained));
    }
    let sized = "load_tensors: loading model tensors, this can take a while... (mmap = true)\n\
        radv/amdgpu: Failed to allocate a buffer:\nradv/amdgpu:    size      : 17179869184 bytes\nradv/amdgpu:    alignment : 2097152 bytes\nradv/amdgpu:    domains   : 4\n";
    let stated = judged(sized);
    assert_eq!(stated.cause, Cause::ModelTooLarge, "{}", stated.reason);
    assert!(stated.reason.to_string().contains("16384 MiB were refused"), "{}", stated.reason);
    let pool = "main: server is listening on http://127.0.0.1:8080 - starting the main loop\n\
        level_zero backend failed with error: 39 [UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY]\nException caught at file:/src/ggml/src/ggml-sycl/ggml-sycl.cpp, line:4102\n";
    expect(pool, Cause::PoolGrowth, None);
}

/// A device is lost after a fault and after a lack of memory.
#[test]
fn a_lost_device_proves_no_fault() {
    for log in [
        "llama_model_load: error loading model: vk::Queue::submit: ErrorDeviceLost\nllama_model_load_from_file_impl: failed to load model\n",
        "terminate called after throwing an instance of 'vk::DeviceLostError'\n",
        "level_zero backend failed with error: 20 [UR_RESULT_ERROR_DEVICE_LOST]\n",
    ] {
        let stated = judged(log);
        assert!(stated.cause == Cause::DriverOrHw && stated.confidence <= 0.7, "{}", stated.reason);
    }
}

/// A legacy pool calls the run time from its first operation on.
#[test]
fn a_legacy_pool_that_is_refused_has_not_grown_for_certain() {
    for function in ["ggml_cuda_pool_malloc_leg", "ggml_cuda_pool_malloc", "alloc"] {
        let log = format!(
            "CUDA error: out of memory\n  current device: 1, in function {function} at /src/ggml-cuda.cu:8584\n  hipMalloc((void **) &ptr, look_ahead_size)\n"
        );
        let stated = judged(&log);
        assert!(stated.confidence <= 0.7, "{}", stated.reason);
    }
}

#[test]
fn a_call_of_any_function_that_runs_out_of_memory_is_seen() {
    let call = |words: &str, function: &str| {
        format!(
            "{words} error: out of memory\n  current device: 0, in function {function} at /src/ggml-cuda/x.cuh:7\n  call(&arena, size)\n"
        )
    };
    for (words, function) in [("ROCm", "stage_get"), ("CUDA", "new_workspace"), ("MUSA", "grow")] {
        let log = call(words, function);
        let stated = judged(&log);
        assert!(stated.cause == Cause::PoolGrowth && stated.confidence < 0.5, "{}", stated.reason);
        let served = judged(&format!("srv  update_slots: all slots are idle\n{log}"));
        assert!(
            served.cause == Cause::PoolGrowth && served.confidence > stated.confidence,
            "{}",
            served.reason
        );
    }
}
