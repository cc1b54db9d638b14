//! Tests of `bench serve` with the fake engine, shortened to a second or two.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::built::built;

/// A stand-in for plimsoll: it is the engine, on the address that serve was told to listen on.
fn stand_in(folder: &Path, engine: &Path) -> PathBuf {
    let script = folder.join("plimsoll");
    let text = format!(
        "#!/bin/sh\nexec {} --port \"${{4##*:}}\" --fake events=256 --fake keep_alive_max=0\n",
        engine.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

fn bench(arguments: &[&str]) -> Output {
    Command::new(built("bench", "bench")).arg("serve").args(arguments).output().unwrap()
}

#[test]
fn every_part_gives_a_table_and_the_same_numbers_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let engine = built("fake-engine", "fake-engine");
    let plimsoll = stand_in(folder.path(), &engine);
    let json = folder.path().join("report.json");
    let [engine, plimsoll, json] = [&engine, &plimsoll, &json].map(|path| path.to_str().unwrap());
    let short = ["--rounds", "20", "--slice-ms", "50", "--repeats", "1"];
    let output = bench(
        &[&["--engine", engine, "--plimsoll", plimsoll, "--before", plimsoll, "--json", json], &short[..]]
            .concat(),
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches("---|\n").count(), 6, "{text}");

    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let rows = |part: &str| report[part].as_array().unwrap().len();
    assert_eq!([rows("paired"), rows("throughput"), rows("streams"), rows("memory")], [16, 8, 4, 4]);
    for streams in report["streams"].as_array().unwrap() {
        assert_eq!((&streams["events_lost"], &streams["failures"]), (&0.into(), &0.into()));
    }
    assert!(report["throughput"][0]["requests"].as_u64().unwrap() > 0);
    assert!(report["swap"][1]["p50_ms"].as_f64().unwrap() > 0.0);
    assert!(report["startup"][1]["idle_rss_kib"].as_u64().unwrap() > 0);
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let output = bench(&["--engine", "/nonexistent/engine"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(error.starts_with("bench: cannot start /nonexistent/engine: "), "{error}");
}
