//! Tests that a real CUDA backend requests the same memory on simulated cards (without a GPU) as its own log
//! shows on an H200.
//!
//! CI has llama.cpp 0.5.0. The formulas mirror b10605, whose rows need that engine: a folder in
//! `PLIMSOLL_MIRRORED_ENGINE` with a server and llama-fit-params, built with CUDA. If its backend lies
//! elsewhere, `GGML_BACKEND_PATH` names it.

#![allow(clippy::print_stderr, reason = "the number of equal rows is the result of the measurement")]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_planner::exact::{BufferKind, BufferPlace, Transcript};
use serde::Deserialize;
use serde_json::Value;

use super::cuda;
use super::vulkan_rows::until_slots;
use crate::built::built;
use crate::child::plimsoll;

const CARD: &str = "total=150754820096B,free=150092120064B,cc=9.0";
/// The lines have two digits of a MiB.
const OFF: f64 = 0.05;

const MIRRORED: &str = "PLIMSOLL_MIRRORED_ENGINE";

#[derive(Deserialize)]
struct Recording {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    program: String,
    model: String,
    draft: Option<String>,
    projector: Option<String>,
    cards: usize,
    args: String,
    log: Vec<String>,
    /// Each `cudaMalloc` in order as card and bytes, below 0 for what was freed, where they were recorded.
    #[serde(default)]
    requests: Vec<(usize, i64)>,
}

/// What llama-fit-params said of one card: whole MiB, cut off.
#[derive(Deserialize)]
struct Reserved {
    model: String,
    args: String,
    #[serde(rename = "CUDA0")]
    card: Sizes,
    #[serde(rename = "Host")]
    host: Sizes,
}

#[derive(Deserialize)]
struct Sizes {
    model: u64,
    context: u64,
    compute: u64,
}

#[derive(Deserialize)]
struct Totals {
    #[serde(rename = "static", default)]
    reserved: Vec<Reserved>,
    totals: Vec<Total>,
}

/// MiB of the process by nvidia-smi.
#[derive(Deserialize)]
struct Total {
    model: String,
    args: String,
    after_load: u64,
}

/// The engine of CI, or the folder of another.
enum Requested {
    OfCi,
    Folder(PathBuf),
}

impl Requested {
    fn mirrored() -> Option<Self> {
        let folder = env::var_os(MIRRORED).map(PathBuf::from);
        if folder.is_none() {
            eprintln!("skipped: {MIRRORED} names no folder of llama.cpp b10605 with CUDA");
        }
        folder.map(Self::Folder)
    }

    fn program(&self) -> PathBuf {
        match self {
            Self::OfCi => cuda::engine().program.clone(),
            Self::Folder(folder) => folder.join("llama-server"),
        }
    }

    fn prepare(&self, command: &mut Command) {
        match self {
            Self::OfCi => cuda::engine().prepare(&cuda::engine().backend, command),
            Self::Folder(folder) => {
                command.env("LD_LIBRARY_PATH", folder);
            }
        }
    }

    /// The lines of llama-fit-params over the stand-in: place, weights, cache and compute buffer.
    fn fit_params(&self, model: &str, cards: usize, args: &str, folder: &Path) -> Vec<String> {
        let Self::Folder(engine) = self else { panic!("the engine of CI has a server alone") };
        let mut command = Command::new(engine.join("llama-fit-params"));
        command
            .arg("-m")
            .arg(cuda::specimen(model, folder))
            .args(args.split_whitespace())
            .args(["-fit", "off"]);
        if !args.contains("-dev") {
            let devices: Vec<String> = (0..cards).map(|card| format!("CUDA{card}")).collect();
            command.args(["-dev", &devices.join(",")]);
        }
        command
            .args(["--fit-print", "on"])
            .env("LD_PRELOAD", built("libplimsoll_phantom.so", "plimsoll-phantom"))
            .env("LD_LIBRARY_PATH", env::join_paths([&names(folder), engine]).unwrap())
            .env("PLIMSOLL_PHANTOM_CARDS", posed(cards));
        let output = command.output().unwrap();
        let stated = String::from_utf8_lossy(&output.stdout).into_owned();
        // Four words, and a blank at the end of the line.
        let lines = stated.lines().map(str::trim_end);
        let sizes =
            |line: &&str| line.split(' ').count() == 4 && line.ends_with(|last: char| last.is_ascii_digit());
        lines.filter(sizes).map(str::to_owned).collect()
    }
}

/// A folder with the stand-in under the names of CUDA's libraries.
fn names(folder: &Path) -> PathBuf {
    let names = folder.join("names");
    if fs::create_dir(&names).is_ok() {
        for name in ["libcudart.so.13", "libcublas.so.13", "libcuda.so.1"] {
            symlink(built("libplimsoll_phantom.so", "plimsoll-phantom"), names.join(name)).unwrap();
        }
    }
    names
}

/// The cards as the stand-in takes them.
fn posed(cards: usize) -> String {
    vec![CARD.replace("B,", ","); cards].join(";")
}

fn measured() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/measured")
}

fn recorded(name: &str) -> Vec<u8> {
    fs::read(measured().join(name)).unwrap()
}

fn rows(name: &str) -> Vec<Row> {
    serde_json::from_slice::<Recording>(&recorded(name)).unwrap().rows
}

fn plan(engine: &Requested, row: &Row, folder: &Path) -> Value {
    let mut command: Command = plimsoll();
    command.args(["plan", "--json"]).arg(format!("--exact={}", engine.program().display()));
    for card in 0..row.cards {
        command.arg("--card").arg(format!("name=H200-{card},{CARD}"));
    }
    command.args(["--", "-m"]).arg(cuda::specimen(&row.model, folder));
    for (flag, name) in [("-md", &row.draft), ("--mmproj", &row.projector)] {
        if let Some(name) = name {
            command.arg(flag).arg(cuda::specimen(name, folder));
        }
    }
    command
        .args(row.args.split_whitespace())
        .args(["-fit", "off"])
        .env("PLIMSOLL_PHANTOM_LIBRARY", built("libplimsoll_phantom.so", "plimsoll-phantom"))
        .env("XDG_CACHE_HOME", folder);
    engine.prepare(&mut command);
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{} {}: {}", row.model, row.args, String::from_utf8_lossy(&output.stderr)))
}

/// What an engine asks of CUDA's runtime over the stand-in, as [`Row`] has it.
fn requests(row: &Row, folder: &Path) -> Vec<(usize, i64)> {
    let engine = cuda::engine();
    let mut command = Command::new(&engine.program);
    engine.prepare(&engine.backend, &mut command);
    command
        .env("LD_LIBRARY_PATH", env::join_paths([&names(folder), &engine.libraries]).unwrap())
        .arg("-m")
        .arg(cuda::specimen(&row.model, folder))
        .args(row.args.split_whitespace())
        .args(["-dev", &(0..row.cards).map(|card| format!("CUDA{card}")).collect::<Vec<_>>().join(",")]);
    for (flag, name) in [("-md", &row.draft), ("--mmproj", &row.projector)] {
        if let Some(name) = name {
            command.arg(flag).arg(cuda::specimen(name, folder));
        }
    }
    // A projector's buffer is reserved by the warm-up.
    if row.projector.is_none() {
        command.arg("--no-warmup");
    }
    let (report, _) = until_slots(command, &posed(row.cards), folder);
    let (mut taken, mut requested) = (BTreeMap::new(), Vec::new());
    for line in report.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let number = |key: &str| event[key].as_u64().unwrap_or(u64::MAX);
        if event["event"] == "take" && event["kind"] == "device" {
            let request = (usize::try_from(number("device")).unwrap(), event["bytes"].as_i64().unwrap());
            taken.insert(number("id"), request);
            requested.push(request);
        } else if let (true, Some(&(card, bytes))) = (event["event"] == "give", taken.get(&number("id"))) {
            requested.push((card, -bytes));
        }
    }
    requested
}

/// Terms of a card that differ from the card's, in MiB.
fn differences(engine: &Requested, row: &Row, folder: &Path) -> Vec<String> {
    if row.program == "llama-fit-params" {
        let stated = engine.fit_params(&row.model, row.cards, &row.args, folder);
        let off = format!("{} {}: {stated:?} for {:?}", row.model, row.args, row.log);
        return if stated == row.log { Vec::new() } else { vec![off] };
    }
    let (plan, stated) = (plan(engine, row, folder), Transcript::read(&row.log.join("\n")));
    let mut off = Vec::new();
    for card in 0..row.cards {
        let mib = |kind| stated.sum(BufferPlace::Card(card), kind).get() as f64 / f64::from(1 << 20);
        for (term, mib) in [
            ("weights", mib(BufferKind::Weights)),
            ("kv", mib(BufferKind::Cache)),
            ("compute", mib(BufferKind::Compute) + mib(BufferKind::Output)),
        ] {
            // An engine prints no line for the weights of a projector.
            if term == "weights" && row.projector.is_some() {
                continue;
            }
            let ours = plan["cards"][card]["terms"][term].as_f64().unwrap() / f64::from(1 << 20);
            if (ours - mib).abs() > OFF {
                off.push(format!("{} {} card {card} {term}: {ours:.2} for {mib:.2}", row.model, row.args));
            }
        }
    }
    off
}

fn hold(engine: &Requested, rows: &[Row]) {
    let folder = tempfile::tempdir().unwrap();
    let off: Vec<Vec<String>> = rows.iter().map(|row| differences(engine, row, folder.path())).collect();
    let equal = off.iter().filter(|off| off.is_empty()).count();
    eprintln!("{equal} of {} rows are equal within {OFF} MiB", rows.len());
    assert!(equal == rows.len(), "{equal} of {} rows\n{}", rows.len(), off.concat().join("\n"));
}

#[test]
fn the_engine_without_a_card_asks_for_what_it_asks_of_an_h200() {
    let rows = rows("h200-rows-0.5.0.json");
    // Dense, routed and recurrent models, a draft, layers in host memory, and two cards.
    let chosen = [
        ("l8", "-c 4096 -fa on -ngl 10"),
        ("oss", "-c 8192 -fa on --n-cpu-moe 8"),
        ("q30", "-c 8192 -fa off"),
    ];
    let chosen =
        [&chosen[..], &[("granite-h-tiny", "-c 16384 -fa on"), ("qwen2-7b", "-c 8192 -fa on")]].concat();
    let some: Vec<Row> =
        rows.into_iter().filter(|row| chosen.contains(&(row.model.as_str(), row.args.as_str()))).collect();
    assert!(some.len() >= chosen.len(), "{}", some.len());
    hold(&Requested::OfCi, &some);
}

#[test]
fn long_the_engine_without_a_card_asks_for_what_it_asks_of_an_h200_in_each_row() {
    let rows = rows("h200-rows-0.5.0.json");
    assert_eq!(rows.len(), 93);
    hold(&Requested::OfCi, &rows);
}

/// Drafts and projectors: each request of the runtime in order, so that the weights of a projector count too.
#[test]
fn long_the_engine_asks_the_runtime_without_a_card_for_what_it_asks_of_an_h200() {
    let (files, folder) = (fs::read_dir(measured()).unwrap().flatten(), tempfile::tempdir().unwrap());
    let names = files.map(|file| file.file_name().into_string().unwrap());
    let rows: Vec<Row> =
        names.filter(|name| name.starts_with("h200-requests-")).flat_map(|name| rows(&name)).collect();
    assert_eq!(rows.len(), 8);
    let off = |row: &Row| {
        let requested = requests(row, folder.path());
        (requested != row.requests)
            .then(|| format!("{} {}: {requested:?} for {:?}", row.model, row.args, row.requests))
    };
    let off: Vec<String> = rows.iter().filter_map(off).collect();
    eprintln!("{} of {} rows are equal", rows.len() - off.len(), rows.len());
    assert!(off.is_empty(), "{}", off.join("\n"));
    hold(&Requested::OfCi, &rows);
}

#[test]
fn long_the_mirrored_engine_without_a_card_asks_for_what_it_asked_of_an_h200() {
    let Some(engine) = Requested::mirrored() else {
        return;
    };
    let rows = rows("h200-matrix-b10605.json");
    assert_eq!((rows.len(), rows.iter().filter(|row| row.cards == 2).count()), (178, 25));
    hold(&engine, &rows);
}

#[test]
fn long_the_mirrored_engine_reserves_without_a_card_what_it_reserved_on_an_h200() {
    let Some(engine) = Requested::mirrored() else {
        return;
    };
    let rows = serde_json::from_slice::<Totals>(&recorded("h200-b10605.json")).unwrap().reserved;
    assert_eq!(rows.len(), 42);
    let folder = tempfile::tempdir().unwrap();
    let line =
        |place: &str, sizes: &Sizes| format!("{place} {} {} {}", sizes.model, sizes.context, sizes.compute);
    let off = |row: &Reserved| {
        let recorded = [line("CUDA0", &row.card), line("Host", &row.host)];
        let stated = engine.fit_params(&row.model, 1, &format!("-ngl 99 {}", row.args), folder.path());
        (stated != recorded).then(|| format!("{} {}: {stated:?} for {recorded:?}", row.model, row.args))
    };
    let off: Vec<String> = rows.iter().filter_map(off).collect();
    eprintln!("{} of {} rows are equal", rows.len() - off.len(), rows.len());
    assert!(off.is_empty(), "{}", off.join("\n"));
}

/// A process takes its context of the driver beside what the engine asks for; nvidia-smi counts whole MiB.
#[test]
fn long_processes_of_the_mirrored_engine_are_planned_by_what_it_asks_for() {
    const BOUND: u64 = 4;
    let Some(engine) = Requested::mirrored() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let rows = ["h200-b10605.json", "h200-x2-b10605.json"]
        .map(|name| serde_json::from_slice::<Totals>(&recorded(name)).unwrap().totals);
    let rows: Vec<Total> = rows.into_iter().flatten().collect();
    assert_eq!(rows.len(), 13);
    for Total { model, args, after_load } in rows {
        let (program, log) = ("llama-server".to_owned(), Vec::new());
        let row =
            Row { program, model, draft: None, projector: None, cards: 1, args, log, requests: Vec::new() };
        let loaded = plan(&engine, &row, folder.path())["cards"][0]["loaded"].as_u64().unwrap() >> 20;
        eprintln!("{} {}: {loaded} for {after_load} MiB", row.model, row.args);
        assert!(loaded.abs_diff(after_load) <= BOUND, "{} {}", row.model, row.args);
    }
}
