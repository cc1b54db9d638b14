//! Tests of problem reports in users' own words and of process tables.
//!
//! The wording is invented, and the diagnosis must recognise the meaning.

use plimsoll_doctor::Cause::*;
use plimsoll_doctor::{Cause, Diagnosis, LineSource, LogReader, diagnose};

fn judged(log: &str, context: &str) -> Diagnosis {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log.as_bytes());
    reader.feed(LineSource::Context, context.as_bytes());
    diagnose(&reader.finish())
}

fn expect(cases: &[(&str, &str, Cause)]) {
    for (log, context, cause) in cases {
        let found = judged(log, context);
        assert_eq!(found.cause, *cause, "{log}\n{}", found.reason);
    }
}

#[test]
fn a_card_that_was_not_chosen_is_seen_by_its_number() {
    expect(&[
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of \
             23.6 GiB of which 40.00 MiB is free. Process 77 has 21.50 GiB memory in use. Including non-PyTorch memory, \
             this process has 2.00 GiB memory in use. Of the allocated memory 1.40 GiB is allocated by PyTorch, and \
             100.00 MiB is reserved by PyTorch but unallocated.",
            "python run.py --gpu-id 3",
            WrongDeviceContext,
        ),
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 900.00 MiB on device 2: cudaMalloc failed: out of memory",
            "CUDA_VISIBLE_DEVICES=4,5",
            WrongDeviceContext,
        ),
    ]);
}

#[test]
fn a_choice_that_holds_is_no_fault() {
    let found = judged(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 23.6 GiB of \
         which 40.00 MiB is free. Process 77 has 21.50 GiB memory in use. Including non-PyTorch memory, this process has \
         2.00 GiB memory in use. Of the allocated memory 1.40 GiB is allocated by PyTorch, and 100.00 MiB is reserved by \
         PyTorch but unallocated.",
        "CUDA_VISIBLE_DEVICES=3",
    );
    assert_eq!(found.cause, ForeignProcess, "the hidden cards have no number: {}", found.reason);
    assert!(found.confidence >= 0.8);
}

#[test]
fn tables_show_who_is_gone_and_who_holds_the_card() {
    expect(&[
        (
            "|    0     4711      C   Unknown Error                               6120MiB |",
            "",
            ForeignProcess,
        ),
        (
            "PID     PROCESS NAME      GPU  VRAM USED\n4711  python3  1  88151137280 0 0",
            "the next start fails on an MI300X",
            ForeignProcess,
        ),
        (
            "After Ctrl-C the worker stays alive; nvidia-smi shows no process, and the memory is still occupied.",
            "",
            ForeignProcess,
        ),
    ]);
}

#[test]
fn figures_that_are_repeated_are_weighed_as_the_allocator_s_own() {
    let found = judged(
        "OOM for 2.0 GiB with 14.0 GiB reserved, 9.5 GiB allocated and 0.1 GiB free of 16 GiB total",
        "",
    );
    assert_eq!(found.cause, FragmentationCachingAllocator, "{}", found.reason);
    expect(&[
        ("vram after the change: +12.5 MiB/request", "", Leak),
        (
            "[start]  MemFree=90.10 MemAvailable=110.20 Cached=20.00\n[copied] MemFree=30.10 MemAvailable=110.00 Cached=80.00",
            "GB10",
            UnifiedMemoryRefused,
        ),
    ]);
}

#[test]
fn impossible_sizes_and_kills_by_other_monitors_are_not_card_memory() {
    expect(&[
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 131072.00 GiB (GPU 0; 23.70 GiB total capacity; 1.20 GiB \
             already allocated; 20.00 GiB free; 1.30 GiB reserved in total by PyTorch)",
            "",
            NotOom,
        ),
        ("2 worker(s) were killed due to the node running low on memory", "", HostOom),
        (
            "misc dxg: dxgk: dxgkio_make_resident: Ioctl failed: -12",
            "CUDA driver error: device not ready",
            Other,
        ),
        (
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376",
            "",
            NotOom,
        ),
        ("RuntimeError: CUDA error: invalid device ordinal", "", NotOom),
        ("hipErrorNoBinaryForGpu: Unable to find code object", "", NotOom),
        ("cudaErrorSystemNotReady", "", DriverOrHw),
        ("vk::IncompatibleDriverError: ErrorIncompatibleDriver", "", DriverOrHw),
    ]);
}

#[test]
fn a_guess_is_called_a_guess() {
    let mut reader = LogReader::new();
    reader.feed(
        LineSource::Log,
        b"CUDA error: out of memory\nwe run out of memory with a long context and a large batch size",
    );
    let diagnosis = diagnose(&reader.finish());
    assert!(diagnosis.confidence < 0.8, "{}", diagnosis.reason);
    let headline = diagnosis.reason.to_string();
    assert!(headline.contains(", most likely: ") || headline.contains(", perhaps: "), "{headline}");
    assert_eq!(diagnosis.brief().is_some(), diagnosis.confidence >= 0.4);
}

/// What no rule sees: the words decide, and the verdict says so.
#[test]
fn cause_estimated_from_words_is_marked_and_below_certainty() {
    let reported = judged(
        "We start the job on the second card.\nnvidia-smi shows a process on every gpu, and a small context of each rank on gpu 0, although \
         CUDA_VISIBLE_DEVICES is set to another device.\nThe first device fills up.",
        "",
    );
    let reason = format!("{:#}", reported.reason);
    assert!(reason.contains("the cause was estimated from these words of the text: "), "{reason}");
    assert!(reported.confidence < 0.8, "{reason}");
    assert!(!reported.evidence.is_empty(), "the lines in which the words stand are shown");
}

/// Less than three tenths is no answer to follow.
#[test]
fn a_text_that_is_hardly_like_any_cause_has_none() {
    let reported = judged(
        "The notebook kernel restarts when the second cell begins, the newest image does the same, the previous image was fine, and \
         nvidia-smi lists nothing unusual beside an empty table.",
        "",
    );
    assert_eq!((reported.cause, reported.confidence), (Cause::Other, 0.0), "{}", reported.reason);
}

#[test]
fn a_server_at_work_is_like_no_failure() {
    let reported = judged(
        "load_tensors: offloaded 33/33 layers to GPU\nload_tensors:        CUDA0 model buffer size =  4155.99 MiB\nllama_kv_cache: size = 1024.00 \
         MiB\nmain: server is listening on http://127.0.0.1:8080 - starting the main loop\nsrv  update_slots: all slots are idle\nslot \
         launch_slot_: id  3 | task 0 | processing task\nprompt eval time =     812.33 ms /  4096 tokens\n",
        "",
    );
    assert_eq!((reported.cause, reported.confidence), (Other, 0.0), "{}", reported.reason);
}

#[test]
fn a_manual_names_failures_and_a_report_with_chapters_shows_one() {
    let refusal = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory\n\
                   llama_kv_cache_init: failed to allocate buffer for kv cache\n";
    let reported =
        format!("# Title\nIt prints `{}` on a Jetson.\n## A\n## B\n## C\n", refusal.replace('\n', " "));
    assert_eq!(judged(&reported, "").confidence, 0.0, "{}", judged(&reported, "").reason);
    let quoted = format!("{reported}```console\n$ plimsoll doctor x.log\n    line 117: {refusal}```\n");
    assert!(judged(&quoted, "").evidence.iter().all(|line| !line.text.contains("line 117")));
    let report = format!("{reported}```\n{refusal}```\n");
    let found = judged(&report, "");
    assert_eq!(found.cause, KvCacheTooLarge, "{}", found.reason);
}

/// Two of the pool's lines, and what a user says of the card.
#[test]
fn a_desktop_on_the_card_explains_a_pool_that_had_not_grown() {
    let refused = "hipErrorOutOfMemory\n  in function alloc at x\n";
    for reported in [
        "the card drives the desktop too",
        "it drives a desktop",
        "that card is driving the display",
        "it drives the display",
    ] {
        let found = judged(refused, reported);
        assert_eq!(found.cause, ForeignProcess, "{reported}: {}", found.reason);
        assert!(found.confidence < 0.8, "what a user says is never sure: {}", found.reason);
    }
    let grown = format!("slot launch_slot_: id  0 | task 0 | processing task\n{refused}");
    assert_eq!(judged(&grown, "the card drives the desktop too").cause, PoolGrowth);
    assert_eq!(judged(refused, "a desktop computer").cause, PoolGrowth);
}

/// Words of a journal's prefix are of no cause: the same report reads alike whatever host and day it is of.
#[test]
fn the_prefix_of_a_log_counts_for_no_cause() {
    let text = |prefix: &str| {
        let lines = [
            "the second request fails on the gpu",
            "nvidia-smi lists a process of another user on the gpu",
            "the memory of the card is full before the server starts",
        ];
        lines.map(|line| format!("{prefix}{line}\n")).concat()
    };
    let plain = judged(&text(""), "");
    assert!(plain.confidence > 0.0, "{}", plain.reason);
    for prefix in
        ["Apr 03 12:00:01 box app[312]: ", "[2026-04-03 12:00:01] ", "2026-04-03T12:00:01.1Z stderr F "]
    {
        let found = judged(&text(prefix), "");
        assert_eq!(
            (found.cause, found.confidence),
            (plain.cause, plain.confidence),
            "{prefix}{}",
            found.reason
        );
    }
}
