//! Tests of the verdict on dead engines, from exit status, last log lines and the record of guard (the
//! preloaded library).

use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_wire::page::Refusal;

use super::*;

fn verdict(exit: Exit, kernel_oom_kill: bool, lines: &[&str]) -> EngineVerdict {
    let last_lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    judge(&EngineDeath {
        model: "alpha",
        exit,
        requested: false,
        stuck: false,
        stage: Stage::Serving,
        kernel_oom_kill,
        last_lines: &last_lines,
        refused: None,
    })
}

fn refused(why: Refusal, ago: u64) -> RefusedAllocation {
    RefusedAllocation {
        why,
        card: "H200".to_owned(),
        id: None,
        requested: Bytes::mib(512),
        allocated: Bytes::mib(7900),
        budget: Some(Bytes::gib(8)),
        free: Bytes::mib(300),
        count: 1,
        ago: Duration::from_secs(ago),
        neighbours: vec![("beta".to_owned(), Bytes::gib(3))],
        growth: None,
    }
}

fn refused_verdict(lines: &[String], refused: &RefusedAllocation) -> End {
    let death = EngineDeath {
        model: "alpha",
        exit: Exit::Signal(6),
        requested: false,
        stuck: false,
        stage: Stage::Serving,
        kernel_oom_kill: false,
        last_lines: lines,
        refused: Some(refused),
    };
    judge(&death).end
}

#[test]
fn a_refusal_of_guard_gives_the_words_their_numbers_and_a_wordless_end_its_cause() {
    let words = ["CUDA error: out of memory".to_owned()];
    let silence = [String::new()];
    for (lines, refusal, short) in [
        (&words, refused(Refusal::Budget, 60), 7900 + 512 - 8192),
        (&words, refused(Refusal::Driver, 0), 512 - 300),
        (&silence, refused(Refusal::Budget, 1), 7900 + 512 - 8192),
    ] {
        let End::OutOfMemory { reason, shortfall, .. } = refused_verdict(lines, &refusal) else {
            panic!("not seen as out of memory");
        };
        assert_eq!(shortfall.map(|short| short.bytes), Some(Bytes::mib(short)));
        let reported = reason.because.iter().find(|cause| cause.code == "guard_refused").unwrap();
        assert_eq!(reported.because[0].text, "3072 MiB on H200 are held by beta");
    }
    let reported = refused(Refusal::Budget, 0).reason();
    assert_eq!(
        reported.text,
        "a request for 512 MiB more on H200 was refused: the process held 7900 MiB of a budget of 8192 MiB, and 300 MiB \
            were free"
    );
    let old = refused_verdict(&silence, &refused(Refusal::Budget, 60));
    assert!(matches!(old, End::Crashed { .. }), "long ago, and it went on");
}

#[test]
fn an_oom_carries_size_stage_and_the_true_line() {
    let line = "allocating 512.00 MiB on device 0: cudaMalloc failed: out of memory";
    let End::OutOfMemory { stage, reason, shortfall } = verdict(Exit::Code(1), false, &[line]).end else {
        panic!("not seen as out of memory");
    };
    assert_eq!((stage, shortfall), (Stage::Serving, None), "what was free is not told");
    assert_eq!(
        reason.to_string(),
        format!(
            "alpha: the engine ran out of card memory while serving\n  {line}\n  pool_growth, most likely: the run-time pool grew after the load, and no memory was left for its growth (70 %)\n    hint: leave memory free after the load: use a shorter context (-c), fewer layers on the card (-ngl), or a smaller micro-batch (-ub)\n    hint: plimsoll run --pool ours -- CMD replaces ggml's legacy pool; plimsoll plan -- FLAGS shows how large the pool grows"
        )
    );
}

#[test]
fn the_reason_of_a_death_names_its_cause_and_remedy_as_doctor_does() {
    let verdict = verdict(
        Exit::Code(1),
        false,
        &[
            "allocating 39979.48 MiB on device 0: cudaMalloc failed: out of memory",
            "alloc_tensor_range: failed to allocate CUDA0 buffer of size 41921523712",
        ],
    );
    let End::OutOfMemory { reason, .. } = verdict.end else {
        panic!("not seen as out of memory");
    };
    let reported = reason.because.iter().find(|cause| cause.code == "diagnosis").unwrap();
    assert_eq!(reported.facts["cause"], "model_too_large".into());
    assert!(reported.because.iter().any(|cause| cause.code == "hint"));
    assert_eq!(verdict.diagnosis.unwrap().cause.code(), "model_too_large");
}

#[test]
fn without_a_known_line_the_status_and_the_last_lines_are_the_answer() {
    let End::Crashed { reason } = verdict(Exit::Signal(11), false, &["1", "", "2", "3", "4", "5", "6"]).end
    else {
        panic!("not seen as a crash");
    };
    assert_eq!(reason.to_string(), "alpha was killed by signal 11 (SIGSEGV)\n  2\n  3\n  4\n  5\n  6");
}

#[test]
fn a_death_is_explained_by_lines_of_a_level_that_fits_its_kind() {
    let lines = [
        "0.00.029.779 I slot get_availabl: id 3 | task -1",
        "0.00.03 D x",
        "0.00.728.850 W slot   operator(): id  3 | task 6 | need to evaluate at least 1 token",
        "0.00.04 E no room",
        "1.5 Islands",
        "I am",
        "GGML_ASSERT(n > 0) failed",
    ];
    let warning = lines[2];
    for (exit, reported) in [
        (Exit::Signal(9), "was killed by signal 9 (SIGKILL)\n  0.00.04 E no room\n  GGML_ASSERT(n > 0) failed".to_owned()),
        (
            Exit::Signal(11),
            "was killed by signal 11 (SIGSEGV)\n  0.00.04 E no room\n  1.5 Islands\n  I am\n  GGML_ASSERT(n > 0) failed"
                .to_owned(),
        ),
        (
            Exit::Code(3),
            format!(
                "exited with status 3\n  {warning}\n  0.00.04 E no room\n  1.5 Islands\n  I am\n  GGML_ASSERT(n > 0) failed"
            ),
        ),
    ] {
        let End::Crashed { reason } = verdict(exit, false, &lines).end else {
            panic!("not seen as a crash");
        };
        assert_eq!(reason.to_string(), format!("alpha {reported}"));
    }
    let End::Crashed { reason } = verdict(Exit::Signal(9), false, &[warning]).end else {
        panic!("not seen as a crash");
    };
    assert_eq!(reason.to_string(), "alpha was killed by signal 9 (SIGKILL)", "a warning is no cause of it");
}

#[test]
fn the_kernel_is_named_only_where_its_counter_moved_and_the_signal_was_its() {
    let is_oom = |exit, counter| matches!(verdict(exit, counter, &[]).end, End::OutOfMemory { .. });
    assert!(is_oom(Exit::Signal(9), true));
    assert!(!is_oom(Exit::Signal(9), false));
    assert!(!is_oom(Exit::Signal(11), true));
}

#[test]
fn death_by_signal_is_not_explained_by_an_earlier_complaint() {
    let complaint = ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"];
    for signal in [9, 15] {
        let verdict = verdict(Exit::Signal(signal), false, &complaint);
        assert_eq!(verdict.sign, None);
        assert!(matches!(verdict.end, End::Crashed { .. }));
    }
    assert_eq!(verdict(Exit::Signal(6), false, &complaint).sign, Some(CauseSign::CardMemory));
}

#[test]
fn an_engine_that_never_ran_is_unstartable() {
    let missing = "plimsoll exec-child: cannot start nothere: No such file or directory (os error 2)";
    for line in [missing, "couldn't bind HTTP server socket"] {
        let end = verdict(Exit::Code(127), false, &[line]).end;
        assert!(matches!(end, End::Unstartable { .. }), "{line}");
    }
}

#[test]
fn leaving_with_success_or_on_request_is_expected() {
    assert_eq!(verdict(Exit::Code(0), false, &["CUDA error"]).end, End::Expected);
}

/// Log of an H200 with 8 GiB free, 6 GiB of them PyTorch's: without the others the model would have fitted.
#[test]
fn foreign_processes_larger_than_the_load_are_its_cause_and_growth_is_omitted() {
    let lines = [
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1006.58 MiB on device 0: cudaMalloc failed: out of memory",
        "alloc_tensor_range: failed to allocate CUDA0 buffer of size 1055473664",
        "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
    ]
    .map(str::to_owned);
    let refused = RefusedAllocation {
        requested: Bytes::mib(1007),
        allocated: Bytes::ZERO,
        budget: None,
        free: Bytes::mib(914),
        neighbours: vec![("other programs".to_owned(), Bytes::mib(142_339))],
        growth: Some(Bytes::kib(23)),
        ..refused(Refusal::Driver, 0)
    };
    let End::OutOfMemory { reason, .. } = refused_verdict(&lines, &refused) else {
        panic!("not seen as out of memory");
    };
    let reported = reason.to_string();
    assert!(reported.contains("foreign_process: other processes hold the memory"), "{reported}");
    assert!(reported.contains("142339 MiB on H200 are held by other programs"), "{reported}");
    assert!(!reported.contains("each token of context"), "{reported}");
}

#[test]
fn a_rejected_flag_is_named_and_no_value_is() {
    for (line, named) in [
        ("error: invalid argument: --ctxsize", Some("--ctxsize")),
        ("error: invalid argument: --api-key=sk-secret", Some("--api-key")),
        ("error while handling argument \"--ctx-size\": stoi", Some("--ctx-size")),
        ("error: unrecognized arguments: --no-such-flag secret", Some("--no-such-flag")),
        ("error: invalid argument: -xy", Some("-xy")),
        ("error: invalid argument: sk-secret", None),
        ("error: invalid argument: -sk-Secret-1", None),
        ("error: invalid argument: --Secret", None),
        ("error: invalid argument: ", None),
    ] {
        let verdict = verdict(Exit::Code(1), false, &[line]);
        let (End::Crashed { reason }, Some(CauseSign::UnknownFlag)) = (&verdict.end, verdict.sign) else {
            panic!("{line}: {verdict:?}");
        };
        let at = named.map_or(String::new(), |flag| format!(" at `{flag}`"));
        assert_eq!(
            reason.text,
            format!("alpha: the engine rejected its command line{at} while serving"),
            "{line}"
        );
    }
    let long = format!("error: invalid argument: --{}", "a".repeat(60));
    assert_eq!(flag_in(&long), None);
    // Another fault has no flag.
    let verdict = verdict(Exit::Code(1), false, &["error loading model: --mmap"]);
    assert!(format!("{:?}", verdict.end).contains("could not read its model while"), "{:?}", verdict.end);
}
