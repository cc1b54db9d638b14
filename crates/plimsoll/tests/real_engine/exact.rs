//! `plimsoll plan --exact` with a real llama.cpp and the phantom backend: no card is there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::child::{plimsoll, program};
use crate::daemon::built;

const CARD: &str = "name=A,total=80GiB,cc=8.9";
const MIB: u64 = 1 << 20;

/// A model of 8 billion parameters, a header with a hole behind it, and a cache of its own.
struct Bench {
    folder: TempDir,
    model: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("l8.gguf");
        let made = plimsoll().args(["synth", "l8"]).arg(&model).output().unwrap();
        assert!(made.status.success());
        Self { folder, model }
    }

    fn ask(&self, engine: &Path, flags: &[&str]) -> Output {
        plimsoll()
            .args(["plan", "--json", "--card", CARD])
            .arg(format!("--exact={}", engine.display()))
            .args(["--", "-m"])
            .arg(&self.model)
            .args(flags)
            .env(
                "PLIMSOLL_PHANTOM_LIBRARY",
                built("libplimsoll_phantom.so", "plimsoll-phantom"),
            )
            .env("XDG_CACHE_HOME", self.folder.path())
            .output()
            .unwrap()
    }

    fn entries(&self) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.folder.path().join("plimsoll/exact"));
        folder
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_plan_shows_what_the_engine_says_and_remembers_it() {
    let bench = Bench::new();
    let first = bench.ask(program(), &["-c", "8192", "-fa", "on"]);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let plan: Value = serde_json::from_slice(&first.stdout).unwrap();
    let terms = &plan["cards"][0]["terms"];
    assert_eq!(terms["kv"].as_u64(), Some(1024 * MIB));
    assert_eq!(terms["weights"].as_u64().map(|bytes| bytes / MIB), Some(4650));
    let compute = terms["compute"].as_u64().unwrap() / MIB;
    assert!((100..=160).contains(&compute), "{compute}");
    assert_eq!(plan["context"], 8192);
    assert_eq!(plan["largest_context"], 131_072);
    assert_eq!(plan["engine"]["build"], 11_549);
    let reasons = plan["reasons"].to_string();
    assert!(
        reasons.contains("engine_said") && reasons.contains("engine llama-server"),
        "{reasons}"
    );

    let entries = bench.entries();
    assert!(!entries.is_empty());
    fs::write(&entries[0], "{").unwrap();
    for _ in 0..2 {
        let again = bench.ask(program(), &["-c", "8192", "-fa", "on"]);
        assert_eq!(text(&again.stdout), text(&first.stdout));
        assert_eq!(bench.entries().len(), entries.len());
    }
    assert!(fs::metadata(&entries[0]).unwrap().len() > 1);
}

#[test]
fn what_the_engine_refuses_is_said_in_its_own_words() {
    let bench = Bench::new();
    for (flags, words) in [
        (
            &["-c", "8192", "-ctk", "q8_0", "-ctv", "q8_0", "-fa", "off"][..],
            "requires flash_attn",
        ),
        (&["-c", "8192", "-sm", "row"], "split buffers"),
    ] {
        let refused = bench.ask(program(), flags);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
        let said = text(&refused.stderr);
        assert!(
            said.contains("the engine refuses") && said.contains(words) && said.contains("hint:"),
            "{said}"
        );
    }
    assert!(bench.entries().is_empty());
}

#[test]
fn what_is_no_engine_is_told_with_a_remedy() {
    let bench = Bench::new();
    let missing = bench.ask(Path::new("/nowhere/llama-server"), &[]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        text(&missing.stderr).contains("/nowhere/llama-server"),
        "{}",
        text(&missing.stderr)
    );
    let silent = bench.ask(Path::new("/bin/true"), &[]);
    assert_eq!(silent.status.code(), Some(2));
    assert!(
        text(&silent.stderr).contains("without a word"),
        "{}",
        text(&silent.stderr)
    );
}
