//! Fuzz target for the last log lines of a dead engine: no panic, bounded evidence, and no missing-memory
//! figure from text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_base::{End, Stage};
use plimsoll_doctor::{Death, Exit, gives_up, judge};

fuzz_target!(|text: &str| {
    let last_lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for line in &last_lines {
        let _ = gives_up(line, Stage::Serving);
    }
    let verdict = judge(&Death {
        model: "fuzz",
        exit: Exit::Code(1),
        asked: false,
        stuck: false,
        stage: Stage::Loading,
        kernel_oom_kill: false,
        last_lines: &last_lines,
        refused: None,
    });
    if let End::OutOfMemory { shortfall, .. } = verdict.end {
        assert_eq!(shortfall, None);
    }
});
