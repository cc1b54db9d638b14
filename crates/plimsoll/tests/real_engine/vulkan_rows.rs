//! Tests of the allocations of a real Vulkan backend on simulated cards, against those on NVIDIA's and Mesa's
//! drivers.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::Value;

use super::cuda;
use super::debian;
use super::vulkan::libraries;
use crate::built::built;

/// Rows recorded over a driver, and the card that the stand-in poses as for them: `data/vulkan/README.md`.
struct Recording {
    file: &'static str,
    card: &'static str,
    rows: usize,
    /// The engine that is asked, given the loader's folder.
    engine: fn(&Path) -> Command,
}

/// Mesa's software driver, with the limits under which it was asked.
const MESA: Recording = Recording { file: "lavapipe-0.5.0.json", card: LAVAPIPE, rows: 45, engine: of_npm };
/// The same with a newer engine.
const MESA_NEWER: Recording =
    Recording { file: "lavapipe-0.7.0.json", card: LAVAPIPE, rows: 45, engine: of_debian };
pub(super) const LAVAPIPE: &str = "total=2147483648,cc=8.9,name=llvmpipe,vendor=65541,integrated=1,type=2,range=4294967295,align=4,\
           mapalign=64,allocation=4294967292,buffer=4294967292,round=1,subgroup=8,matrix=0,dot=0";
/// NVIDIA's driver: every limit is the stand-in's own.
const NVIDIA: Recording = Recording {
    file: "nvidia-580-0.5.0.json",
    card: "total=150754820096,cc=9.0,name=NVIDIA H200",
    rows: 47,
    engine: of_npm,
};

/// A row of the recording: sizes in order, below 0 where memory was given back.
#[derive(Deserialize)]
pub(crate) struct Row {
    pub(crate) model: String,
    pub(crate) flags: String,
    pub(crate) events: Vec<i64>,
    /// The engine's lines on its buffers, where they were recorded.
    #[serde(default)]
    pub(crate) log: Vec<String>,
}

/// The rows of a file below `data`.
pub(crate) fn rows(file: &str) -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(file);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// What the engine of this command asked of a card until it made its slots, and what it logged.
pub(crate) fn requested(
    mut command: Command,
    row: &Row,
    device: &str,
    card: &str,
    folder: &Path,
) -> (Vec<i64>, String) {
    command.arg("-m").arg(cuda::specimen(&row.model, folder)).args(row.flags.split_whitespace()).args([
        "-dev",
        device,
        "--no-warmup",
    ]);
    let (report, log) = until_slots(command, card, folder);
    (events(&report), log)
}

/// The stand-in's report of an engine until it made its slots, and what the engine logged.
pub(crate) fn until_slots(mut command: Command, card: &str, folder: &Path) -> (String, String) {
    let (report, socket) = (folder.join("report"), folder.join("s.sock"));
    let _ = (fs::remove_file(&report), fs::remove_file(&socket));
    command
        .args(["-t", "1", "-fit", "off", "-lv", "4", "--host"])
        .arg(&socket)
        .env("LD_PRELOAD", built("libplimsoll_phantom.so", "plimsoll-phantom"))
        .env("PLIMSOLL_PHANTOM_CARDS", card)
        .env("PLIMSOLL_PHANTOM_REPORT", &report);
    let mut engine =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = String::new();
    for line in BufReader::new(engine.stderr.take().unwrap()).lines().map_while(Result::ok) {
        log.push_str(&line);
        log.push('\n');
        if line.contains("n_slots") {
            break;
        }
    }
    engine.kill().unwrap();
    engine.wait().unwrap();
    assert!(log.contains("n_slots"), "{command:?}\n{log}");
    (fs::read_to_string(&report).unwrap(), log)
}

fn events(report: &str) -> Vec<i64> {
    let mut sizes = Vec::new();
    let mut events = Vec::new();
    for line in report.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        match event["event"].as_str() {
            Some("take") => {
                sizes.push(event["bytes"].as_i64().unwrap());
                events.extend(sizes.last());
            }
            Some("give") => events.push(-sizes[usize::try_from(event["id"].as_u64().unwrap()).unwrap()]),
            _ => {}
        }
    }
    events
}

/// npm's backend of llama.cpp 0.5.0, with CI's server.
fn of_npm(folder: &Path) -> Command {
    let mut command = Command::new(&cuda::engine().program);
    command.env("GGML_BACKEND_PATH", cuda::vulkan_backend()).env("LD_LIBRARY_PATH", libraries(folder));
    command
}

/// Debian's llama.cpp 0.7.0 with its own backend.
fn of_debian(folder: &Path) -> Command {
    let mut command = Command::new(debian::VULKAN.server());
    command.env("LD_LIBRARY_PATH", libraries(folder));
    command
}

fn hold(recording: &Recording, models: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows(&format!("vulkan/{}", recording.file));
    assert_eq!(rows.len(), recording.rows);
    let rows: Vec<&Row> =
        rows.iter().filter(|row| models.is_empty() || models.contains(&row.model.as_str())).collect();
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let command = (recording.engine)(folder.path());
            let (requested, _) = requested(command, row, "Vulkan0", recording.card, folder.path());
            (requested != row.events)
                .then(|| format!("{} {}: {requested:?} for {:?}", row.model, row.flags, row.events))
        })
        .collect();
    assert!(!rows.is_empty() && wrong.is_empty(), "{} of {}\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn an_engine_asks_of_the_stand_in_what_it_asks_of_mesas_driver() {
    hold(&MESA, &["llama-1b", "falcon-h1-1b"]);
}

#[test]
fn an_engine_asks_of_the_stand_in_what_it_asks_of_nvidias_driver() {
    hold(&NVIDIA, &["llama-1b"]);
}

#[test]
fn long_each_recorded_model_asks_of_the_stand_in_what_it_asks_of_a_driver() {
    for recording in [MESA, MESA_NEWER, NVIDIA] {
        hold(&recording, &[]);
    }
}
