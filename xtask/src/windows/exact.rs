//! `plan --exact` under Wine, on an official engine for Windows that is not modified.
//!
//! Of each row, the bytes that the engine asked of the stand-in are compared with the plan by the formulas,
//! to the byte, and with the plan by the engine, whose log rounds each buffer.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::parts::Shown;
use super::{Toolchain, answers, engine, stand_ins};

/// Recorded rows that are asked.
const ROWS: usize = 20;
/// DECISION: dense, recurrent and hybrid models, and of those with experts the two of 4 and 5 GB. Under Wine
/// the engine reads the pages of its file, and it has 30 s to answer.
const MODELS: [&str; 14] = [
    "bge-base",
    "falcon-h1-1b",
    "falcon-mamba-7b",
    "gemma3-4b",
    "gemma3n-e2b",
    "granite-h-micro",
    "granite-h-tiny",
    "jamba-3b",
    "l8",
    "lfm2-8b",
    "llama-1b",
    "mamba-3b",
    "mamba2",
    "qwen2-7b",
];
/// What a figure of the log may be off, for each of a card's buffers: it has hundredths of a MiB.
const ROUNDING: u64 = 5_243;
/// Buffers of a card, by the engine's log: weights, cache and compute buffer, twice for a hybrid model.
const BUFFERS: u64 = 6;

/// Asks the engine of each row.
pub(super) fn compare(toolchain: &Toolchain, program: &Path) -> io::Result<Shown> {
    let library = stand_ins::build(toolchain)?.join("plimsoll_phantom.dll");
    let server = engine::folder()?.join("llama-server.exe");
    let models = answers::models(&toolchain.root)?;
    let (mut equal, mut different) = (0, 0);
    for row in answers::rows_of(&toolchain.root, engine::BUILD, &MODELS, ROWS)? {
        let words = row.words(engine::BUILD, &models)?;
        let cache = toolchain.work("cache");
        if cache.exists() {
            fs::remove_dir_all(&cache)?;
        }
        let mut plan = toolchain.wine();
        plan.arg(program).args(&words[..1]).arg(format!("--exact={}", server.display())).args(&words[1..]);
        plan.env("PLIMSOLL_PHANTOM_LIBRARY", &library).env("XDG_CACHE_HOME", drive(&cache));
        let by_engine = terms(&json(plan.current_dir(&models))?);
        let mut plan = toolchain.wine();
        plan.arg(program).args(&words[..1]).arg("--formulas").args(&words[1..]);
        let by_formulas = terms(&json(plan.current_dir(&models))?);
        let requested = requested(&cache.join("plimsoll/exact"), row.context())?;
        let is_near = |(one, other): (&u64, &u64)| one.abs_diff(*other) <= ROUNDING * BUFFERS;
        if requested == by_formulas && requested.iter().zip(&by_engine).all(is_near) {
            equal += 1;
        } else {
            different += 1;
            eprintln!(
                "windows: {row}: the engine asked for {requested:?} bytes, the formulas say {by_formulas:?}, and the \
                plan by the engine {by_engine:?}"
            );
        }
    }
    let figure = format!("of {equal} rows the engine asked for the bytes of the plan, of {different} not");
    Ok(Shown::of_compared(equal, different, figure))
}

/// The path as a program under Wine has it: its drive Z is the root.
fn drive(path: &Path) -> String {
    format!("Z:{}", path.display())
}

fn json(command: &mut Command) -> io::Result<Value> {
    let output = command.stdin(Stdio::null()).output()?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        io::Error::other(format!("plan printed no JSON: {}", String::from_utf8_lossy(&output.stderr)))
    })
}

/// Weights, cache and compute buffer of each card, in bytes.
fn terms(plan: &Value) -> Vec<u64> {
    let of = |card: &Value| {
        let bytes = ["weights", "kv", "compute"].map(|term| card["terms"][term].as_u64().unwrap_or(0));
        bytes.iter().sum()
    };
    plan["cards"].as_array().into_iter().flatten().map(of).collect()
}

/// What the engine asked of each card of the stand-in, from the kept answer for this context: a plan asks for
/// others too.
fn requested(cache: &Path, context: &str) -> io::Result<Vec<u64>> {
    let flag = format!("\n--ctx-size\n{context}\n");
    for entry in fs::read_dir(cache)?.flatten() {
        let kept: Value = serde_json::from_slice(&fs::read(entry.path())?)?;
        let is_of_context = kept["question"].as_str().unwrap_or("").contains(&flag);
        if let (true, Some(cards)) = (is_of_context, kept["answer"]["memory"]["cards"].as_object()) {
            return Ok(cards.values().filter_map(|card| card["asked"].as_u64()).collect());
        }
    }
    Err(io::Error::other("the engine's answer was not kept"))
}
