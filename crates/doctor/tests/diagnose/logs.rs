//! Tests of the logs in `data/logs`: one small log of each kind, named after its expected diagnosis.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_doctor::{Cause, Diagnosis, LineSource, LogReader, SubCause, diagnose};

pub(crate) fn logs() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/logs");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder is part of the repository")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "log"))
        .collect();
    files.sort();
    let named = files.into_iter().map(|path| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, fs::read(path).expect("a log"))
    });
    named.collect()
}

fn read(log: &[u8]) -> Diagnosis {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log);
    diagnose(&reader.finish())
}

/// The cause and the sub-cause that a file is named after.
fn expected(name: &str) -> (Cause, Option<SubCause>) {
    let mut parts = name.split('.');
    let cause = parts.next().expect("CAUSE.WHAT.log");
    let sub_cause = parts.next().expect("CAUSE.WHAT.log");
    (
        *Cause::ALL.iter().find(|known| known.code() == cause).expect("a known cause"),
        SubCause::ALL.iter().find(|known| known.code() == sub_cause).copied(),
    )
}

#[test]
fn each_of_our_logs_is_named_as_it_is_called() {
    let logs = logs();
    let mut wrong = Vec::new();
    for (name, log) in &logs {
        let (cause, sub_cause) = expected(name);
        let diagnosis = read(log);
        let right = diagnosis.cause == cause && sub_cause.is_none_or(|sub| diagnosis.sub_cause == Some(sub));
        if !right || (cause != Cause::Other && diagnosis.confidence < 0.6) {
            wrong.push(format!("{name}: {}", diagnosis.reason));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    for cause in Cause::ALL {
        let occupied = logs.iter().any(|(name, _)| expected(name).0 == *cause);
        assert!(occupied, "no log of {cause}");
    }
}

#[test]
fn prefixes_colours_line_ends_and_quotes_change_no_verdict() {
    type Dress = fn(&str) -> String;
    let dresses: [(&str, Dress); 5] = [
        ("journald", |line| format!("Mar 03 10:11:12 box llama-server[812]: {line}\n")),
        ("docker", |line| format!("engine-1  | {line}\n")),
        ("quoted, CRLF", |line| format!("> {line}\r\n")),
        ("colours", |line| format!("\x1b[0;31m{line}\x1b[0m\n")),
        ("llama-swap", |line| format!("[INFO] <model> {line}\n")),
    ];
    for (name, log) in logs() {
        let plain = read(&log);
        // Readings and tables stand at the start of their lines, or are none.
        if name.contains("readings") || name.contains("kernel_slab") || name.contains(".smi") {
            continue;
        }
        for (dress, put_on) in dresses {
            let text: String = String::from_utf8_lossy(&log).lines().map(put_on).collect();
            let dressed = read(text.as_bytes());
            assert_eq!(dressed.cause, plain.cause, "{name} as {dress}\n{}", dressed.reason);
        }
    }
}

#[test]
fn the_size_that_failed_never_comes_from_nvmap_and_lfb_is_no_evidence() {
    for (name, log) in logs() {
        let diagnosis = read(&log);
        let reported: Vec<String> = diagnosis.reason.because.iter().map(|rule| rule.text.clone()).collect();
        let reported = reported.join("\n");
        assert!(!reported.contains("1025 MiB") && !reported.contains("1075072515 "), "{name}: {reported}");
        assert!(!reported.contains("lfb"), "{name}: {reported}");
    }
}

#[test]
fn the_two_symptoms_of_one_nvmap_line_are_distinguished() {
    let log = |name: &str| logs().into_iter().find(|(file, _)| file.contains(name)).unwrap().1;
    let masked = read(&log("pytorch-beside-llama"));
    assert_eq!(masked.cause, Cause::NvmlAssertMasksOom);
    assert_eq!(masked.also[0].cause, Cause::UnifiedMemoryRefused, "what it masks");
    let cache = read(&log("kv_cache_too_large.llama"));
    assert!(
        cache.reason.to_string().contains("131072 MiB were refused for the KV cache"),
        "{}",
        cache.reason
    );
    let reload = read(&log("reload-beside-anonymous-pages"));
    assert_eq!(reload.cause, Cause::UnifiedMemoryRefused);
    assert!(reload.reason.to_string().contains("2050 MiB were requested"), "{}", reload.reason);
}

#[test]
fn json_diagnosis_has_schema_and_numbered_evidence() {
    let (_, log) = logs().into_iter().find(|(name, _)| name.starts_with("pool_growth.vmm")).unwrap();
    let json = serde_json::to_value(read(&log)).unwrap();
    assert_eq!(json["schema"], "plimsoll.diagnosis/1");
    assert_eq!(json["cause"], "pool_growth");
    assert_eq!(json["evidence"][0]["line"], 7);
    assert_eq!(json["evidence"][0]["source"], "log");
    assert_eq!(json["evidence"][0]["text"], "cuMemCreate(&handle, reserve_size, &prop, 0)");
    assert_eq!(json["evidence"][1]["line"], 5);
    assert_eq!(json["evidence"][1]["text"], "CUDA error: out of memory");
    assert_eq!(json["evidence"][0].get("file"), None, "one log needs no name");
    assert!(json["confidence"].as_f64().unwrap() > 0.9);
    assert!(json["hints"][0]["text"].is_string());
}

#[test]
fn nothing_known_gives_no_cause_and_no_confidence() {
    for text in ["", "all is well\n", "\0\0\0", "the model answered in 3 s\n"] {
        let diagnosis = read(text.as_bytes());
        assert_eq!((diagnosis.cause, diagnosis.confidence), (Cause::Other, 0.0), "{text:?}");
        assert!(diagnosis.evidence.is_empty());
    }
}
