//! Answers of a real CUDA backend over the stand-in, against the engine's own lines on an H200.

use std::fs;
use std::path::Path;
use std::process::Command;

use plimsoll_planner::exact::{BufferKind, BufferPlace, Transcript};
use serde::Deserialize;
use serde_json::Value;

use crate::child::plimsoll;
use crate::cuda;
use crate::daemon::built;

const CARD: &str = "total=150754820096B,free=150092120064B,cc=9.0";
/// The lines have two digits of a MiB.
const OFF: f64 = 0.05;

#[derive(Deserialize)]
struct Recording {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    model: String,
    draft: Option<String>,
    projector: Option<String>,
    cards: usize,
    args: String,
    log: Vec<String>,
}

fn rows() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/measured/h200-rows-0.5.0.json");
    serde_json::from_slice::<Recording>(&fs::read(path).unwrap()).unwrap().rows
}

fn plan(row: &Row, folder: &Path) -> Value {
    let mut command: Command = plimsoll();
    command.args(["plan", "--json"]).arg(format!("--exact={}", cuda::engine().program.display()));
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
    cuda::engine().prepare(&cuda::engine().backend, &mut command);
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{} {}: {}", row.model, row.args, String::from_utf8_lossy(&output.stderr)))
}

/// Terms of a card that differ from the card's, in MiB.
fn differences(row: &Row, folder: &Path) -> Vec<String> {
    let (plan, said) = (plan(row, folder), Transcript::read(&row.log.join("\n")));
    let mut off = Vec::new();
    for card in 0..row.cards {
        let mib = |kind| said.sum(BufferPlace::Card(card), kind).get() as f64 / f64::from(1 << 20);
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

fn hold(rows: &[Row]) {
    let folder = tempfile::tempdir().unwrap();
    let off: Vec<String> = rows.iter().flat_map(|row| differences(row, folder.path())).collect();
    assert!(off.is_empty(), "{} of {} rows\n{}", off.len(), rows.len(), off.join("\n"));
}

#[test]
fn the_engine_without_a_card_asks_for_what_it_asks_of_an_h200() {
    let rows = rows();
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
    hold(&some);
}

#[test]
fn long_the_engine_without_a_card_asks_for_what_it_asks_of_an_h200_in_each_row() {
    let rows = rows();
    assert_eq!(rows.len(), 93);
    hold(&rows);
}
