//! Tests of the program's activity when memory was refused: training, serving, loading or decoding.

use plimsoll_doctor::Cause::*;
use plimsoll_doctor::{Diagnosis, LineSource, LogReader, SubCause, diagnose};

fn judged(log: &str, context: &str) -> Diagnosis {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log.as_bytes());
    reader.feed(LineSource::Context, context.as_bytes());
    diagnose(&reader.finish())
}

/// A sentence of PyTorch 1.3: `cached` is what is idle.
const PIECES: &str = "RuntimeError: CUDA out of memory. Tried to allocate 600.00 MiB (GPU 0; 7.92 GiB total capacity; 6.10 GiB already \
                      allocated; 400.00 MiB free; 600.00 MiB cached)";

#[test]
fn a_training_run_fills_a_card_by_its_batch_and_idle_blocks_prove_nothing() {
    let found = judged(PIECES, "");
    assert_eq!(found.cause, FragmentationCachingAllocator, "{}", found.reason);
    let found = judged(PIECES, "python train.py --batch_size 32");
    assert_eq!(found.cause, ComputeBufferTooLarge, "{}", found.reason);
    assert!(found.confidence < 0.8, "blocks in pieces are as possible: {}", found.reason);
    // More idle than live: whatever is trained, the blocks are in pieces.
    let idle = PIECES.replace("6.10 GiB", "2.10 GiB").replace("600.00 MiB cached", "4.60 GiB cached");
    assert_eq!(judged(&idle, "python train.py").cause, FragmentationCachingAllocator);
    // Nearly half of the card idle and little requested: neither a batch nor a frame of the backward pass
    // explains that.
    let much = "  File \"train.py\", line 12, in step\n    loss.backward()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 \
                has a total capacity of 23.57 GiB of which 190.00 MiB is free. Including non-PyTorch memory, this process has 23.38 GiB memory in use. Of the allocated memory \
                12.04 GiB is allocated by PyTorch, and 10.87 GiB is reserved by PyTorch but unallocated.";
    assert_eq!(judged(much, "python train.py").cause, FragmentationCachingAllocator);
    let loss = "  File \"loss.py\", line 3, in forward\n    return F.cross_entropy(logits, labels)\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate \
                3.91 GiB. GPU 0 has a total capacity of 47.41 GiB of which 1.62 GiB is free. Including non-PyTorch memory, this process has 45.78 GiB memory in use. Of the \
                allocated memory 35.02 GiB is allocated by PyTorch, and 10.24 GiB is reserved by PyTorch but unallocated.";
    assert_eq!(judged(loss, "").cause, FragmentationCachingAllocator);
}

#[test]
fn tensors_a_little_beyond_vllm_s_share_are_of_its_work_and_far_beyond_it_of_the_load() {
    let sentence = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 22.00 GiB of which \
                    300.00 MiB is free. Including non-PyTorch memory, this process has 21.70 GiB memory in use. Of the allocated memory LIVE GiB is allocated by PyTorch, and 27.10 MiB is reserved by PyTorch but \
                    unallocated.";
    let flags = "vllm serve m --gpu-memory-utilization 0.8";
    for (live, cause) in [("18.10", ComputeBufferTooLarge), ("21.50", ModelTooLarge)] {
        let found = judged(&sentence.replace("LIVE", live), flags);
        assert_eq!(found.cause, cause, "{live}: {}", found.reason);
    }
}

#[test]
fn a_frame_or_a_line_names_what_was_being_made() {
    for (log, cause) in [
        (
            "RuntimeError: cuda runtime error (2) : out of memory at ../aten/src/THC/THCCachingHostAllocator.cpp:280",
            HostPinnedLimit,
        ),
        (
            "  File \"bitsandbytes/nn/modules.py\", line 290, in _quantize\n    w_4bit, state = bnb.functional.quantize_4bit(\nRuntimeError: \
             CUDA driver error: out of memory",
            ModelTooLarge,
        ),
        (
            "total params memory size = 9112.00MB (VRAM 9112.00MB)\ndecoding 1 latents\nggml_vulkan: Device memory allocation of size \
             4831838208 failed.",
            ComputeBufferTooLarge,
        ),
    ] {
        let found = judged(log, "");
        assert_eq!(found.cause, cause, "{log}\n{}", found.reason);
    }
}

#[test]
fn a_board_s_driver_is_of_its_release_so_a_build_for_servers_is_the_wrong_one() {
    let line = "CUDA error: the provided PTX was compiled with an unsupported toolchain.";
    let found = judged(line, "");
    assert_eq!((found.cause, found.sub_cause), (NotOom, Some(SubCause::OldDriver)));
    let found = judged(line, "Jetson Orin Nano");
    assert_eq!((found.cause, found.sub_cause), (NotOom, Some(SubCause::WrongBuild)));
}

#[test]
fn a_kill_by_the_kernel_is_of_the_host_and_on_shared_memory_of_the_model() {
    let line = "Out of memory: Killed process 4711 (llama-server) total-vm:9000000kB, anon-rss:7000000kB";
    assert_eq!(judged(line, "").cause, HostOom);
    assert_eq!(judged(line, "Jetson Orin Nano").cause, ModelTooLarge);
}

#[test]
fn words_name_no_allocator_that_the_program_lacks() {
    let words = "Memory grows after the load while the prompt is evaluated with a quantised cache and flash attention; the pool keeps its largest \
                 buffer and VRAM runs full at a long context.";
    assert_eq!(judged(words, "llama-server").cause, PoolGrowth);
    assert_ne!(judged(words, "vllm serve").cause, PoolGrowth);
}
