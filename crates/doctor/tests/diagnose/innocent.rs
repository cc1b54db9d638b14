//! Tests of texts without a failure: documents, manuals, source, configuration, and logs of working programs.
//!
//! The diagnosis names no cause for them, but does for a problem report in the same form.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_doctor::{Cause, Diagnosis, LineSource, LogReader, diagnose};

fn judged(text: &str) -> Diagnosis {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, text.as_bytes());
    diagnose(&reader.finish())
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &str, kind: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join(folder)).expect("the folder is part of the repository");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.is_file() && path.to_string_lossy().ends_with(kind)).collect();
    paths.sort();
    paths
}

fn expect_nothing(name: &str, text: &str) {
    let found = judged(text);
    assert_eq!((found.cause, found.confidence), (Cause::Other, 0.0), "{name}: {}", found.reason);
}

#[test]
fn documents_journals_and_manuals_have_no_cause() {
    let ours = [
        "CHANGELOG.md",
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "SPECIFICATION.md",
    ];
    let ours = ours.map(|name| repository().join(name)).into_iter();
    let documents = files("docs", ".md")
        .into_iter()
        .chain(files("docs/reference", ".md"))
        .chain(files("data/innocent", ""));
    for path in ours.chain(documents) {
        expect_nothing(&path.to_string_lossy(), &fs::read_to_string(&path).expect("a text"));
    }
}

#[test]
fn source_and_configuration_have_no_cause() {
    let kinds = [
        ("crates/doctor/src", ".rs"),
        ("crates/doctor/src/rules", ".rs"),
        ("bench/gpu", ".py"),
        (".", ".toml"),
        ("crates/doctor", ".toml"),
    ];
    // These two hold whole logs in strings of several lines.
    let hold_logs = ["remedy.rs", "sizes.rs", "pattern.rs"];
    for path in kinds.into_iter().flat_map(|(folder, kind)| files(folder, kind)) {
        if !hold_logs.iter().any(|name| path.ends_with(name)) {
            expect_nothing(&path.to_string_lossy(), &fs::read_to_string(&path).expect("a text"));
        }
    }
    let compose = "services:\n  llama:\n    image: ghcr.io/ggml-org/llama.cpp:server-cuda\n    # avoids CUDA error: out of memory\n    command: -m /models/a.gguf -c 131072 -ngl 99\n    \
                   environment:\n      CUDA_VISIBLE_DEVICES: \"0\"\n      GGML_CUDA_ENABLE_UNIFIED_MEMORY: \"1\"\n    volumes:\n      - /models:/models\n    restart: on-failure\n";
    expect_nothing("compose.yaml", compose);
    let notes = "v0.9.1\n\nThis release fixes memory on NVIDIA GPUs.\n\n- models that no longer fit are evicted instead of failing with CUDA error: out of memory\n\
                 - fixed a leak of VRAM when a model was reloaded many times\n- ROCm cards are found after sleep\n";
    expect_nothing("notes of a release", notes);
}

/// An hour of llama-server under systemd: one request each fifteen seconds.
fn an_hour_of_work() -> String {
    let mut log = String::new();
    let mut say = |second: u32, line: &str| {
        let (minute, second) = (second / 60 % 60, second % 60);
        log += &format!("Apr 03 09:{minute:02}:{second:02} box llama-server[4242]: {line}\n");
    };
    for line in [
        "main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 15",
        "srv    load_model: loading model '/models/qwen2.5-7b-q4_k_m.gguf'",
        "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) - 23640 MiB free",
        "llama_model_loader: loaded meta data with 33 key-value pairs and 339 tensors from /models/qwen2.5-7b-q4_k_m.gguf (version GGUF V3 (latest))",
        "load_tensors: offloaded 29/29 layers to GPU",
        "load_tensors:        CUDA0 model buffer size =  4168.09 MiB",
        "llama_context: constructing llama_context",
        "llama_context: n_ctx         = 8192",
        "llama_kv_cache:      CUDA0 KV buffer size =   448.00 MiB",
        "llama_context:      CUDA0 compute buffer size =   304.00 MiB",
        "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
    ] {
        say(1, line);
    }
    for request in 0..240 {
        for line in [
            "slot launch_slot_: id  0 | task 50 | processing task",
            "slot update_slots: id  0 | task 50 | prompt processing progress, n_past = 300, n_tokens = 300, progress = 1.000000",
            "prompt eval time =     112.33 ms /   300 tokens (    0.37 ms per token,  2671.11 tokens per second)",
            "slot      release: id  0 | task 50 | stop processing: n_past = 700, truncated = 0",
            "srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 200",
        ] {
            say(request * 15, line);
        }
    }
    log
}

#[test]
fn a_server_at_work_and_its_shutdown_have_no_cause() {
    let log = an_hour_of_work();
    expect_nothing("an hour", &log);
    expect_nothing("its start", &log[..log.len() / 20]);
}

/// Other programs that work, the driver's table, the kernel at its start, and an end that was asked for.
#[test]
fn output_of_healthy_programs_has_no_cause() {
    for (name, log) in [
        (
            "vLLM",
            "INFO 04-03 12:00:05 [api_server.py:1034] vLLM API server version 0.9.1\nINFO 04-03 12:00:40 [gpu_worker.py:227] Available KV cache memory: 4.32 GiB\n\
                  INFO 04-03 12:00:40 [kv_cache_utils.py:715] GPU KV cache size: 35,360 tokens\nINFO 04-03 12:00:40 [kv_cache_utils.py:719] Maximum concurrency for 8,192 tokens \
                  per request: 4.32x\nINFO:     Application startup complete.\n",
        ),
        (
            "ComfyUI",
            "Total VRAM 12288 MB, total RAM 32086 MB\npytorch version: 2.6.0+cu124\nSet vram state to: NORMAL_VRAM\nDevice: cuda:0 NVIDIA GeForce RTX 3060 : cudaMallocAsync\n\
                     To see the GUI go to: http://127.0.0.1:8188\ngot prompt\nloaded completely 9.5367431640625e+25 4897.0483474731445 True\nPrompt executed in 8.22 seconds\n",
        ),
        (
            "nvidia-smi",
            "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n|   0  NVIDIA GeForce RTX 4090        On  |   00000000:01:00.0 Off |  Off |\n\
                        |  0%   34C    P8             12W /  450W |     312MiB /  24564MiB |      0%      Default |\n|    0   N/A  N/A            1501      G   /usr/lib/xorg/Xorg  250MiB |\n",
        ),
        (
            "dmesg",
            "[    0.000000] Memory: 65536000K/67108864K available (22528K kernel code)\n[    2.123456] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.133.07\n\
                   [    2.223456] nvidia: module verification failed: signature and/or required key missing - tainting kernel\n[   12.123456] nvidia-uvm: Loaded the UVM driver, major \
                   device number 236.\n",
        ),
        (
            "SIGTERM",
            "Apr 03 12:00:00 box systemd[1]: Started llama.service.\nApr 03 12:05:00 box systemd[1]: llama.service: Main process exited, code=killed, status=15/TERM\n\
                     Apr 03 12:05:00 box systemd[1]: llama.service: Deactivated successfully.\n",
        ),
    ] {
        expect_nothing(name, log);
    }
}

#[test]
fn a_report_in_markdown_keeps_its_cause() {
    let refused = "```\nllama_context: constructing llama_context\nllama_context: n_ctx         = 131072\n\
                   ggml_backend_cuda_buffer_type_alloc_buffer: allocating 16384.00 MiB on device 0: cudaMalloc failed: out of memory\n\
                   alloc_tensor_range: failed to allocate CUDA0 buffer of size 17179869184\n```\n";
    for before in [
        "### What happened?\n\nLoading fails since the update.\n\n",
        "# llama-server crashes\n\n## Describe the bug\n\nIt stops.\n\n## Steps to reproduce\n\nllama-server -c 131072\n\n## Logs\n\n",
        "## Problem\n\nIt stops.\n\n## My setup\n\nRTX 3060\n\n",
    ] {
        let found = judged(&format!("{before}{refused}"));
        assert_eq!(found.cause, Cause::KvCacheTooLarge, "{before}{}", found.reason);
        let line = u64::try_from(before.lines().count()).expect("few lines") + 4;
        assert!(found.evidence.iter().any(|quote| quote.line == line), "{:?}", found.evidence);
    }
    let prose = "# Every rank uses the first card\n\nI start the job on card 1.\nnvidia-smi shows a process on every gpu, and a small context of each rank on gpu 0, \
                 although CUDA_VISIBLE_DEVICES is set to another device.\nThe first device fills up.\n";
    assert_eq!(judged(prose).cause, Cause::WrongDeviceContext, "{}", judged(prose).reason);
}

/// A journal with a failure among other units: the words of all units prove nothing, and a refusal does.
#[test]
fn a_failure_in_a_machine_s_journal_is_found() {
    let boot = fs::read_to_string(repository().join("data/innocent/boot.journal")).expect("a journal");
    for (line, cause) in [
        (
            "box kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=812, name=llama-server, GPU has fallen off the bus.",
            Cause::DriverOrHw,
        ),
        (
            "box kernel: Out of memory: Killed process 4242 (llama-server) total-vm:71234567kB, anon-rss:62345678kB, file-rss:0kB, shmem-rss:0kB",
            Cause::HostOom,
        ),
        (
            "box systemd-oomd[700]: Killed /user.slice/user-1000.slice/session-1.scope due to memory pressure for /user.slice being 71.23% > 50.00% for > 20s",
            Cause::HostOom,
        ),
    ] {
        let found = judged(&format!("{boot}Apr 03 09:00:00 {line}\n"));
        assert_eq!(found.cause, cause, "{line}: {}", found.reason);
    }
}

#[test]
fn a_warning_that_was_survived_explains_no_crash_after_it() {
    let text = "warning: failed to mlock 1073741824-byte buffer (after previously locking 0 bytes): Cannot allocate memory\n\
        Try increasing RLIMIT_MEMLOCK ('ulimit -l' as root).\n\
        llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB\n\
        main: server is listening on http://127.0.0.1:8080 - starting the main loop\n\
        CUDA error: an illegal memory access was encountered\n\
        /src/ggml/src/ggml-cuda/ggml-cuda.cu:84: CUDA error\n";
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, text.as_bytes());
    let stated = diagnose(&reader.finish());
    assert_eq!(stated.cause, Cause::DriverOrHw, "{}", stated.reason);
}
