//! Tests of the takeover of ggml's legacy pool in a program on AMD's HIP runtime.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use super::{compile, finished};
use crate::runner::artefact;

/// The program and its backend, built for HIP; the backend is opened as ggml opens its own.
fn program() -> (PathBuf, PathBuf) {
    let folder = artefact::target().join("guard-tests/ggml-hip");
    std::fs::create_dir_all(&folder).unwrap();
    let (backend, program) = (folder.join("libbackend.so"), folder.join("opened"));
    compile(&backend, &["backend.cpp"], &["-fPIC", "-shared", "-DHIP"]);
    compile(&program, &["program.cpp"], &["-DLOCAL", "-DHIP"]);
    (program, backend)
}

/// What a scenario printed, on a card of this description.
fn run(scenario: &str, words: Option<&str>, card: &str) -> BTreeMap<String, u64> {
    let (program, backend) = program();
    let mut command = Command::new(program);
    command
        .arg(scenario)
        .arg(backend)
        .env("RECORDING", artefact::root().join("data/traces/b8799-q8_0-distinct.csv"))
        .env("LD_LIBRARY_PATH", artefact::hip("6"))
        .env("PLIMSOLL_FAKE_HIP", card)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    if let Some(words) = words {
        command.env("LD_PRELOAD", artefact::guard()).env("PLIMSOLL_GUARD", words);
    }
    let output = finished(command);
    let text = String::from_utf8(output.stdout).unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), complaints.as_str()), (Some(0), ""), "{text}");
    let stated = text.lines().filter_map(|line| line.split_once(' '));
    stated.map(|(key, value)| (key.to_owned(), value.parse().unwrap_or(0))).collect()
}

#[test]
fn growth_stays_close_to_what_is_live_on_hip() {
    // An event of HIP that is not over is an error, which the next kernel of ggml must not find.
    for card in ["total=8G vmm=1", "total=8G vmm=1 lazy=1"] {
        let before = run("grow", None, card);
        assert!(before["reserved"] > 16 * before["live"], "{before:?}");
        let served = run("grow", Some("pool=ours"), card);
        assert!(served["reserved"] * 100 <= served["live"] * 107, "{card} {served:?}");
        assert_eq!(served["left"], 0);
    }
    let without = run("grow", Some("pool=ours"), "total=8G vmm=0");
    assert!(without["reserved"] <= without["live"] * 5 / 4 + 32, "{without:?}");
    assert_eq!(without["left"], 0);
}

#[test]
fn a_real_prompt_takes_little_more_than_what_was_live_of_it_on_hip() {
    let served = run("replay", Some("pool=ours"), "total=8G vmm=1");
    assert_eq!(served["live"], 240);
    assert!(served["reserved"] * 100 <= 240 * 107, "{served:?}");
}

#[test]
fn no_two_blocks_share_a_byte_on_hip() {
    for card in ["total=8G vmm=1 data=1", "total=8G vmm=0 data=1"] {
        run("pattern", Some("pool=ours"), card);
    }
}
