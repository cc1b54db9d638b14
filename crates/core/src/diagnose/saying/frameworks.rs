//! What frameworks and the servers built on them print: PyTorch, vLLM, SGLang, TGI, TensorFlow, JAX, ONNX Runtime, TensorRT, NCCL.
//!
//! Sources: `CUDACachingAllocator.cpp`, `CUDAException.cpp @ torch 0.4 to 2.11`; `gpu_model_runner.py`, `gpu_worker.py @ vLLM 0.29`;
//! `model_runner.py`, `schedule_batch.py @ SGLang`; `bfc_allocator.cc @ TensorFlow`; `bfc_arena.cc @ ONNX Runtime`; `init.cc @ NCCL`.

use super::Saying::*;
use super::{Row, says, sign};
use crate::diagnose::sign::Sign;

pub(super) const ROWS: &[Row] = &[
    // PyTorch, and libraries that it calls.
    sign(
        "cuda driver error: out of memory",
        RuntimeRefused,
        Sign::CardMemory,
    ),
    sign("xpu out of memory", TorchRefused, Sign::CardMemory),
    says("unable to find a valid cudnn algorithm", TensorRefused),
    says("unable to find an engine to execute", TensorRefused),
    says("cudnn_status_alloc_failed", TensorRefused),
    says("cudnn_status_execution_failed", CublasFailed),
    says("cudnn_status_not_supported", CublasFailed),
    says("cudnn_status_mapping_error", CublasFailed),
    says("cuda failure 2: out of memory", RuntimeRefused),
    says("cuda failure 'out of memory'", RuntimeRefused),
    says("cuda failure 2 'out of memory'", RuntimeRefused),
    says("failed to cuda calloc", RuntimeRefused),
    says("cuda runtime error: out of memory", RuntimeRefused),
    says("duplicate gpu detected", CardTwice),
    says("devices are busy or unavailable", CardBusy),
    says("cuda_error_devices_unavailable", CardBusy),
    says("insufficient shared memory", SharedMemoryFull),
    says("unable to open shared memory object", SharedMemoryFull),
    says("error while creating shared memory segment", SharedMemoryFull),
    says("bad allocation", HostRefused),
    says("paging file is too small", HostRefused),
    says("mkl_malloc", HostRefused),
    // SYCL and Level Zero.
    sign("bytes of memory on device", CardRefused, Sign::CardMemory),
    says("not exceeding 4 gb", AllocationLimit),
    says("exceeds device buffer size limit", AllocationLimit),
    says("cl_invalid_buffer_size", AllocationLimit),
    says("cl_mem_object_allocation_failure", OutOfMemory),
    says("error_out_of_resources", OutOfMemory),
    // vLLM, SGLang, TGI, LMDeploy.
    says("error in memory profiling", OthersSeen),
    says("memory capacity is unbalanced", OthersSeen),
    says("failed to load model - not enough gpu memory", BudgetRefused),
    says("prefill out of memory. try to lower", CacheFull),
    says("decode out of memory. try to lower", CacheFull),
    says("kv cache pool is full", CacheFull),
    says("not enough kv cache space", CacheFull),
    says("capture cuda graph failed", FrameComputes),
    says("starting profile run", FrameComputes),
    says("in determine_num_available_blocks", FrameComputes),
    says("in determine_available_memory", FrameComputes),
    says("kvcachemanager", FrameCaches),
    says("shard process was signaled to shutdown with signal 9", KernelKill),
    // ollama.
    says("insufficient vram to load any model layers", BudgetRefused),
    says("too little memory to allocate any layers", BudgetRefused),
    says("memory layout cannot be allocated", BudgetRefused),
    says("timed out waiting for llama runner", WaitedLong),
    says("client connection closed before server finished", WaitedLong),
    // TensorFlow, JAX.
    says("indicates that this is not a failure", Harmless),
    says("of free system memory", Harmless),
    says("ran out of memory trying to allocate", TensorRefused),
    says("blas gemm launch failed", Unworded),
    says("dst tensor is not initialized", Unworded),
    says("retrying with tiled vae", Recovered),
    // ONNX Runtime, TensorRT.
    says("for requested buffer of size", TensorRefused),
    says("requested amount of gpu memory", TensorRefused),
    says("could not find any implementation for node", TensorRefused),
    says("cuda runtime (out of memory)", TensorRefused),
    // Frames.
    says("torch.cat([past_key", FrameCaches),
    says("cache_utils.py", FrameCaches),
    says("load_model(", FrameLoads),
    says("t.cuda(device)", FrameLoads),
    says("f.interpolate(", FrameComputes),
    says("f.conv2d(", FrameComputes),
    says("torch.matmul(", FrameComputes),
    says("torch.bmm(", FrameComputes),
    says("torch.baddbmm(", FrameComputes),
    says(".backward(", FrameComputes),
    says("optimizer.step(", FrameComputes),
];
