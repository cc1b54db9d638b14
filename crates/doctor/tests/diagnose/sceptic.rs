//! Regression tests of conclusions that a log does not support. Each test repeats a case that was once
//! diagnosed wrongly.

use plimsoll_doctor::{Cause, Diagnosis, LineSource, LogReader, SubCause, diagnose};

fn judged(log: &str) -> Diagnosis {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log.as_bytes());
    diagnose(&reader.finish())
}

fn shown(log: &str) -> String {
    format!("{:#}", judged(log).reason)
}

const REFUSED: &str = "\
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) - 23640 MiB free
llama_model_loader: loaded meta data with 33 key-value pairs and 724 tensors from /m/70b.gguf (version GGUF V3 (latest))
load_tensors: loading model tensors, this can take a while... (mmap = true)
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 39979.48 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 41921484800
";
const SERVES: &str = "\
llama_model_loader: loaded meta data with 33 key-value pairs and 339 tensors from /m/7b.gguf (version GGUF V3 (latest))
load_tensors:        CUDA0 model buffer size =  4168.09 MiB
main: server is listening on http://127.0.0.1:8080 - starting the main loop
";

#[test]
fn a_failure_before_a_start_that_succeeded_is_reported_as_past() {
    let past = "a later start in this log succeeded, so this failure is past";
    let both = format!("{REFUSED}{SERVES}");
    assert_eq!(judged(&both).cause, Cause::ModelTooLarge);
    assert!(
        shown(&both).contains(past) && shown(&both).contains("line 8: main: server is listening"),
        "{}",
        shown(&both)
    );
    for log in [REFUSED.to_owned(), format!("{SERVES}{REFUSED}")] {
        assert!(!shown(&log).contains(past), "{}", shown(&log));
    }
}

#[test]
fn the_text_of_a_request_is_no_evidence() {
    for line in [
        "srv  log_server_r: request:  {\"messages\":[{\"role\":\"user\",\"content\":\"CUDA error: out of memory, why?\"}]}",
        "INFO 04-03 12:00:01 [logger.py:39] Received request cmpl-1: prompt: 'CUDA error: out of memory', params: None",
    ] {
        let log = format!("{SERVES}{line}\nslot launch_slot_: id  0 | task 0 | processing task\n");
        let found = judged(&log);
        assert_eq!((found.cause, found.confidence), (Cause::Other, 0.0), "{}", found.reason);
    }
}

#[test]
fn the_process_that_the_kernel_killed_is_named() {
    let log = "[ 8123.451122] llama-server invoked oom-killer: gfp_mask=0x140cca, order=0, oom_score_adj=0\n\
               [ 8123.451420] Out of memory: Killed process 5151 (chrome) total-vm:7123456kB, anon-rss:2345678kB, file-rss:0kB\n";
    let found = judged(log);
    assert_eq!(found.cause, Cause::HostOom);
    assert!(shown(log).contains("the kernel killed chrome because host memory ran out"), "{}", shown(log));
    assert_eq!(found.evidence[0].line, 2, "the line that names it comes first");
}

#[test]
fn a_kill_by_systemd_is_not_laid_on_the_kernel() {
    let log = "Apr 03 12:01:30 box systemd[1]: llama.service: State 'stop-sigterm' timed out. Killing.\n\
               Apr 03 12:01:30 box systemd[1]: llama.service: Killing process 4242 (llama-server) with signal SIGKILL.\n";
    let text = shown(log);
    assert!(text.contains("systemd killed the process") && !text.contains("kernel killed"), "{text}");
}

#[test]
fn shared_memory_is_enlarged_and_not_swap() {
    let found = judged(
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n",
    );
    let hints: Vec<String> = found.hints.iter().map(ToString::to_string).collect();
    assert!(hints.iter().all(|hint| hint.contains("--shm-size") && !hint.contains("swap")), "{hints:?}");
}

#[test]
fn a_line_is_shown_once_for_each_finding() {
    let text = shown("Failed to initialize NVML: Driver/library version mismatch\n");
    assert_eq!(text.matches("line 1: ").count(), 1, "{text}");
}

#[test]
fn ollama_s_estimate_is_reported_in_its_own_words() {
    let text = shown(
        "time=2026-04-03T12:01:01.001Z level=INFO source=sched.go:453 msg=\"NewLlamaServer failed\" error=\"model requires more system memory (45.2 GiB) than is available (30.1 GiB)\"\n",
    );
    assert!(text.contains("the model needs more host memory than is available"), "{text}");
}

/// Lines about cards and ranks, whose words look like those of a wrong card.
const RANKS: &str = "\
node1:812:812 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>
node1:812:840 [1] NCCL INFO comm 0x55d0 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId c1000 - Init START
";

#[test]
fn a_refusal_that_nccl_words_without_a_size_proves_no_cause() {
    for failure in ["Cuda failure 'out of memory'", "Cuda failure 2 'out of memory'"] {
        let log = format!("{RANKS}node1:812:840 [1] transport/p2p.cc:275 NCCL WARN {failure}\n");
        let stated = judged(&log);
        assert_eq!(
            (stated.cause, stated.sub_cause),
            (Cause::Other, Some(SubCause::Unexplained)),
            "{}",
            stated.reason
        );
        assert!(stated.confidence < 0.5 && stated.also.is_empty(), "{}", stated.reason);
        assert!(shown(&log).contains("the driver refused memory, and no line shows"), "{}", shown(&log));
    }
}

#[test]
fn an_assertion_without_a_refusal_is_not_about_memory() {
    for assertion in [
        "/build/ggml/src/ggml.c:3412: GGML_ASSERT(ggml_can_mul_mat(a, b)) failed",
        "GGML_ASSERT: /build/llama.cpp/ggml.c:5410: ggml_nelements(a) == ne0*ne1",
        "llama-server: /build/src/llama-batch.cpp:210: int32_t add(): Assertion `n_tokens > 0' failed.",
    ] {
        let log = format!("{SERVES}slot launch_slot_: id  0 | task 812 | processing task\n{assertion}\n");
        let stated = judged(&log);
        assert_eq!(stated.cause, Cause::NotOom, "{}", stated.reason);
        assert!(stated.confidence >= 0.9 && !shown(&log).contains("from these words"), "{}", shown(&log));
        let refused = judged(&format!("{REFUSED}{assertion}\n"));
        assert_eq!(refused.cause, Cause::ModelTooLarge, "{}", refused.reason);
    }
}

/// `GGML_ASSERT(buffer)` follows a refusal that the log may lack, so it proves nothing, and words prove less.
#[test]
fn an_assertion_about_a_buffer_is_no_guess() {
    let stated = judged(&format!("{RANKS}/build/ggml/src/ggml-backend.cpp:97: GGML_ASSERT(buffer) failed\n"));
    assert_eq!((stated.cause, stated.confidence), (Cause::Other, 0.0), "{}", stated.reason);
}
