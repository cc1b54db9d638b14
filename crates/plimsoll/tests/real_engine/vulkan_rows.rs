//! Allocations of a real Vulkan backend over the stand-in, against those over NVIDIA's driver and Mesa's.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cuda;
use crate::daemon::built;
use crate::vulkan::libraries;

/// Rows recorded over a driver, and the card that the stand-in poses as for them: `data/vulkan/README.md`.
struct Recording {
    file: &'static str,
    card: &'static str,
    rows: usize,
}

/// Mesa's software driver, with the limits under which it was asked.
const MESA: Recording = Recording {
    file: "lavapipe-0.5.0.json",
    card: "total=2147483648,cc=8.9,name=llvmpipe,vendor=65541,integrated=1,type=2,range=4294967295,align=4,\
           mapalign=64,allocation=4294967292,buffer=4294967292,round=1,subgroup=8,matrix=0,dot=0",
    rows: 45,
};
/// NVIDIA's driver: every limit is the stand-in's own.
const NVIDIA: Recording =
    Recording { file: "nvidia-580-0.5.0.json", card: "total=150754820096,cc=9.0,name=NVIDIA H200", rows: 47 };

/// A row of the recording: sizes in order, below 0 where memory was given back.
struct Row {
    model: String,
    flags: String,
    events: Vec<i64>,
}

fn rows(recording: &Recording) -> Vec<Row> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/vulkan");
    let rows: Vec<Value> = serde_json::from_slice(&fs::read(folder.join(recording.file)).unwrap()).unwrap();
    assert_eq!(rows.len(), recording.rows);
    let row = |row: &Value| Row {
        model: row["model"].as_str().unwrap().to_owned(),
        flags: row["flags"].as_str().unwrap().to_owned(),
        events: row["events"].as_array().unwrap().iter().filter_map(Value::as_i64).collect(),
    };
    rows.iter().map(row).collect()
}

/// What the engine asked for until it made its slots.
fn asked(row: &Row, card: &str, folder: &Path) -> Vec<i64> {
    let (report, socket) = (folder.join("report"), folder.join("s.sock"));
    let _ = (fs::remove_file(&report), fs::remove_file(&socket));
    let mut command = Command::new(&cuda::engine().program);
    command
        .arg("-m")
        .arg(cuda::specimen(&row.model, folder))
        .args(row.flags.split_whitespace())
        .args(["-t", "1", "-fit", "off", "-dev", "Vulkan0", "-lv", "4", "--no-warmup", "--host"])
        .arg(&socket)
        .env("GGML_BACKEND_PATH", cuda::vulkan_backend())
        .env("LD_LIBRARY_PATH", libraries(folder))
        .env("LD_PRELOAD", built("libplimsoll_phantom.so", "plimsoll-phantom"))
        .env("PLIMSOLL_PHANTOM_CARDS", card)
        .env("PLIMSOLL_PHANTOM_REPORT", &report);
    let mut engine =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(engine.stderr.take().unwrap()).lines().map_while(Result::ok);
    let ready = log.into_iter().any(|line| line.contains("n_slots"));
    engine.kill().unwrap();
    engine.wait().unwrap();
    assert!(ready, "{} {}", row.model, row.flags);
    events(&fs::read_to_string(&report).unwrap())
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

fn hold(recording: &Recording, models: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows(recording);
    let rows: Vec<&Row> =
        rows.iter().filter(|row| models.is_empty() || models.contains(&row.model.as_str())).collect();
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let asked = asked(row, recording.card, folder.path());
            (asked != row.events)
                .then(|| format!("{} {}: {asked:?} for {:?}", row.model, row.flags, row.events))
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
    for recording in [MESA, NVIDIA] {
        hold(&recording, &[]);
    }
}
