//! Tests of `plimsoll plan --exact` with a real llama.cpp and its own CUDA backend, on a machine without card
//! and CUDA.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use super::cuda::{BUILD, engine};
use crate::built::built;
use crate::child::{plimsoll, program as cpu_program};

const CARD: &str = "name=A,total=80GiB,cc=8.9";
const MIB: u64 = 1 << 20;

/// A model of 8 billion parameters, a header with a hole behind it, and a cache of its own.
pub(crate) struct Bench {
    folder: TempDir,
    model: PathBuf,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("l8.gguf");
        plimsoll_specimens::write("l8", &model, &plimsoll_specimens::Changes::default()).unwrap();
        Self { folder, model }
    }

    fn ask(&self, engine: &Path, flags: &[&str]) -> Output {
        self.ask_for(&["--card", CARD], engine, flags)
    }

    fn ask_for(&self, options: &[&str], engine: &Path, flags: &[&str]) -> Output {
        self.ask_with(&super::cuda::engine().backend, options, engine, flags)
    }

    pub(crate) fn ask_with(&self, backend: &Path, options: &[&str], engine: &Path, flags: &[&str]) -> Output {
        let mut command = self.command(options, engine, flags);
        super::cuda::engine().prepare(backend, &mut command);
        command.output().unwrap()
    }

    fn command(&self, options: &[&str], engine: &Path, flags: &[&str]) -> Command {
        let mut command = plimsoll();
        command
            .args(["plan", "--json"])
            .args(options)
            .arg(format!("--exact={}", engine.display()))
            .args(["--", "-m"])
            .arg(&self.model)
            .args(flags)
            .env("PLIMSOLL_PHANTOM_LIBRARY", built("libplimsoll_phantom.so", "plimsoll-phantom"))
            .env("XDG_CACHE_HOME", self.folder.path());
        command
    }

    fn entries(&self) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.folder.path().join("plimsoll/exact"));
        folder.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_plan_shows_what_the_engine_says_and_remembers_it() {
    let bench = Bench::new();
    let first = bench.ask(&engine().program, &["-c", "8192", "-fa", "on"]);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let plan: Value = serde_json::from_slice(&first.stdout).unwrap();
    let terms = &plan["cards"][0]["terms"];
    assert_eq!(terms["kv"].as_u64(), Some(1024 * MIB));
    assert_eq!(terms["weights"].as_u64().map(|bytes| bytes / MIB), Some(4650));
    // As an H200 said of llama.cpp 0.5.0: 116.01 MiB, and with 16 384 tokens 124.01 (2026-11-22).
    assert_eq!(terms["compute"].as_u64().map(|bytes| bytes / MIB), Some(116));
    assert_eq!(plan["context"], 8192);
    assert_eq!(plan["largest_context"], 131_072);
    assert_eq!(plan["engine"]["build"], BUILD);
    let reasons = plan["reasons"].to_string();
    assert!(
        reasons.contains("engine_said") && reasons.contains("llama-server with its backend for CUDA 13"),
        "{reasons}"
    );
    // What the backend asked the driver for is what the log says, to the byte of its last digit.
    assert!(!reasons.contains("engine_asked_more"), "{reasons}");

    let entries = bench.entries();
    assert!(!entries.is_empty());
    fs::write(&entries[0], "{").unwrap();
    for _ in 0..2 {
        let again = bench.ask(&engine().program, &["-c", "8192", "-fa", "on"]);
        assert_eq!(text(&again.stdout), text(&first.stdout));
        assert_eq!(bench.entries().len(), entries.len());
    }
    assert!(fs::metadata(&entries[0]).unwrap().len() > 1);
}

#[test]
fn an_installed_engine_is_asked_unless_the_formulas_are_wanted() {
    let bench = Bench::new();
    let engine = engine();
    let planned = |more: &[&str], flags: &[&str]| {
        let mut command = plimsoll();
        command.args(["plan", "--json", "--card", CARD]).args(more).args(["--", "-m"]).arg(&bench.model);
        engine.prepare(&engine.backend, command.args(flags));
        let own = engine.program.parent().unwrap().display();
        let output = command
            .env("PATH", format!("{own}:{}", std::env::var("PATH").unwrap()))
            .env("PLIMSOLL_PHANTOM_LIBRARY", built("libplimsoll_phantom.so", "plimsoll-phantom"))
            .env("XDG_CACHE_HOME", bench.folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        (json(&output), text(&output.stderr))
    };
    let flags = ["-c", "8192", "-fa", "on"];
    let (plan, stated) = planned(&[], &flags);
    assert_eq!(plan["engine"]["build"], BUILD);
    assert!(
        plan["reasons"].to_string().contains("engine_said") && stated.contains("asked llama-server"),
        "{stated}"
    );
    let exact = bench.ask(&engine.program, &flags);
    assert_eq!(plan, json(&exact));
    for more in [&["--formulas"][..], &["--build", "llama.cpp@10605"], &["--program", "library"]] {
        let (plan, stated) = planned(more, &flags);
        assert!(!plan.to_string().contains("engine_said") && !stated.contains("asked"), "{more:?}: {stated}");
    }
}

#[test]
fn refusals_of_the_engine_are_quoted_with_a_hint() {
    let bench = Bench::new();
    for (flags, words) in [
        (&["-c", "8192", "-ctk", "q8_0", "-ctv", "q8_0", "-fa", "off"][..], "requires flash_attn"),
        (&["-c", "8192", "-sm", "row"], "split buffers"),
    ] {
        let refused = bench.ask(&engine().program, flags);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
        let stated = text(&refused.stderr);
        assert!(
            stated.contains("the engine refuses") && stated.contains(words) && stated.contains("hint:"),
            "{stated}"
        );
    }
    assert!(bench.entries().is_empty());
}

/// The engine of `plimsoll engine install` has no CUDA.
#[test]
fn an_engine_without_a_cuda_backend_leaves_the_closed_forms_and_says_so() {
    let bench = Bench::new();
    let flags = ["-c", "8192", "-fa", "on"];
    let requested = bench.command(&["--card", CARD], cpu_program(), &flags).output().unwrap();
    assert_eq!(requested.status.code(), Some(0), "{}", text(&requested.stderr));
    let plan = json(&requested);
    let reason = &plan["warnings"][0];
    assert_eq!(reason["code"], "engine_not_asked", "{plan}");
    let stated = reason["text"].to_string();
    assert!(stated.contains("invalid device: CUDA0") && stated.contains("no CUDA backend"), "{stated}");
    assert!(plan.to_string().contains("formula"), "{plan}");
    assert!(bench.entries().is_empty());
}

#[test]
fn missing_and_silent_engines_are_reported_with_their_cause() {
    let bench = Bench::new();
    let missing = bench.ask(Path::new("/nowhere/llama-server"), &[]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/nowhere/llama-server"), "{}", text(&missing.stderr));
    let silent = bench.ask(Path::new("/bin/true"), &[]);
    assert_eq!(silent.status.code(), Some(2));
    assert!(text(&silent.stderr).contains("without a message"), "{}", text(&silent.stderr));
}

/// Less memory than the model could fill: its largest context is somewhere between.
const SMALL: [&str; 2] = ["--card", "name=A,total=8GiB,cc=8.9"];

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

#[test]
fn the_largest_context_was_said_by_the_engine_and_one_step_more_does_not_fit() {
    let bench = Bench::new();
    let flags = ["-fa", "on", "-c", "4096"];
    let requested = bench.ask_for(&SMALL, &engine().program, &flags);
    let largest = json(&requested)["largest_context"].as_u64().unwrap();
    assert!((4096..131_072).contains(&largest), "{largest}");
    // What was asked for, the same without vocabulary, and contexts in pairs: were they asked with it again,
    // that were six.
    let requested = runs(&requested);
    assert!((4..6).contains(&requested), "{requested}");
    for (context, status) in [(largest, 0), (largest + 256, 1)] {
        let context = context.to_string();
        let again = bench.ask_for(&SMALL, &engine().program, &["-fa", "on", "-c", &context]);
        assert_eq!(again.status.code(), Some(status), "{}", text(&again.stderr));
        assert_eq!(json(&again)["largest_context"], largest);
    }

    let mut options = SMALL.to_vec();
    options.extend(["--fit", "ctx"]);
    let fit = bench.ask_for(&options, &engine().program, &flags);
    let answer = &json(&fit)["answers"][0];
    assert_eq!((&answer["best"], &answer["next"]["value"]), (&largest.into(), &(largest + 256).into()));
    let stated = text(&fit.stderr);
    assert!(stated.contains("asked llama-server: ") && stated.contains("came from the cache"), "{stated}");
    // Twice the micro-batch, twice the slots, a smaller cache: each searched by asking.
    assert_eq!(answer["trades"].as_array().map(Vec::len), Some(3), "{answer}");
}

#[test]
fn a_page_shows_at_every_context_what_the_engine_says() {
    let bench = Bench::new();
    let page = bench.folder.path().join("page.html");
    let mut options = SMALL.to_vec();
    options.extend(["--html", page.to_str().unwrap()]);
    let drawn = bench.ask_for(&options, &engine().program, &["-fa", "on", "-c", "4096"]);
    assert_eq!(drawn.status.code(), Some(0), "{}", text(&drawn.stderr));
    let contexts = fs::read_to_string(page).unwrap().matches("\"context\":").count();
    // A run for every context on the page, but for those that the plan had asked already.
    let runs = runs(&drawn);
    assert!((32..=44).contains(&runs), "{runs} runs, {contexts} contexts");
}

/// How often the engine was asked, as told on stderr.
fn runs(output: &Output) -> usize {
    let stated = text(&output.stderr);
    let runs = stated.split("asked llama-server: the engine ran ").nth(1);
    let runs = runs.and_then(|rest| rest.split([' ', '\n', ';']).next());
    match runs {
        Some("once") => 1,
        other => other.and_then(|runs| runs.parse().ok()).unwrap_or_else(|| panic!("{stated}")),
    }
}
