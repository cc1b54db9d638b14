//! Fuzz tests of the diagnosis with mutated logs, last lines of an engine, and single lines: none may panic.

use std::fs;
use std::path::Path;

use plimsoll_base::{End, Stage};
use plimsoll_doctor::{
    Diagnosis, EngineDeath, Exit, LineSource, LogReader, diagnose, gives_up, judge, read_last_lines,
};
use plimsoll_fuzz::mutants;

/// The ends of the logs that doctor is tested with.
fn logs() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/logs");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let logs = files.iter().filter(|file| file.extension().is_some_and(|end| end == "log"));
    let end = |bytes: Vec<u8>| bytes[bytes.len().saturating_sub(1500)..].to_vec();
    logs.map(|file| end(fs::read(file).unwrap())).collect()
}

const TOKENS: [&[u8]; 8] = [
    b"CUDA error: out of memory\n",
    b"GGML_ASSERT(",
    b"cudaMalloc failed: out of memory",
    b"Tried to allocate 600.00 MiB",
    b" MiB is free",
    b"NvMapMemAllocInternalTagged: error 12",
    b"OOM-killer",
    b"exceeds",
];

fn read(pieces: &[&[u8]]) -> Diagnosis {
    let mut reader = LogReader::new();
    for piece in pieces {
        reader.feed(LineSource::Log, piece);
    }
    diagnose(&reader.finish())
}

#[test]
fn million_logs_have_the_same_verdict_however_they_are_cut() {
    let logs = logs();
    let seeds: Vec<&[u8]> = logs.iter().map(Vec::as_slice).collect();
    mutants(&seeds, &TOKENS, |log| {
        let whole = read(&[log]);
        assert!((0.0..=0.99).contains(&whole.confidence));
        assert!(whole.evidence.len() <= 8);
        let (head, tail) = log.split_at(log.len() / 2);
        assert_eq!(whole, read(&[head, tail]));
    });
}

#[test]
fn million_last_lines_of_a_dead_engine_name_no_shortfall() {
    let logs = logs();
    let seeds: Vec<&[u8]> = logs.iter().map(Vec::as_slice).collect();
    mutants(&seeds, &TOKENS, |log| {
        let text = String::from_utf8_lossy(log);
        let last_lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for line in &last_lines {
            let _ = gives_up(line, Stage::Serving);
        }
        let _ = read_last_lines(text.lines());
        let verdict = judge(&EngineDeath {
            model: "fuzz",
            exit: Exit::Code(1),
            requested: false,
            stuck: false,
            stage: Stage::Loading,
            kernel_oom_kill: false,
            last_lines: &last_lines,
            refused: None,
        });
        if let End::OutOfMemory { shortfall, .. } = verdict.end {
            assert_eq!(shortfall, None, "{text}");
        }
    });
}
