//! Test of `cargo xtask drift`, which compares an engine's memory with the planner's formulas: npm's CUDA
//! backend gives the recorded result (`data/drift`).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::cuda;
use super::exact::text;
use crate::built::built;

/// The package's release, which `cuda::engine` unpacks.
const ENGINE: &str = "npm-cuda@3.22.1";

fn drift(place: &Path, words: &[&str]) -> Output {
    let xtask = built("xtask", "xtask");
    let phantom = built("libplimsoll_phantom.so", "plimsoll-phantom");
    Command::new(xtask)
        .arg("drift")
        .args(words)
        .arg("--built")
        .arg(phantom.parent().unwrap())
        .env("CARGO_TARGET_DIR", place)
        .output()
        .unwrap()
}

/// A target folder in which the engine has been fetched.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("drift")).unwrap();
    let home = cuda::engine().program.parent().unwrap();
    symlink(home, place.path().join("drift/npm-cuda-3.22.1")).unwrap();
    place
}

fn hold(words: &[&str]) {
    let place = place();
    let ran = drift(place.path(), words);
    assert_eq!(ran.status.code(), Some(0), "{}\n{}", text(&ran.stdout), text(&ran.stderr));
    let table = text(&ran.stdout);
    assert!(table.contains("npm-cuda") && table.contains("rows equal"), "{table}");
    assert!(!table.contains("0 of 0 rows"), "{table}");
}

#[test]
fn the_closed_forms_are_no_further_from_a_prebuilt_engine_than_recorded() {
    hold(&[ENGINE, "--only", "l8,gemma3-4b"]);
}

#[test]
fn long_every_recorded_model_of_a_prebuilt_engine_is_no_further_than_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/drift/npm-cuda.json");
    let record: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let worst = record["worst"].as_object().unwrap().values();
    let models: Vec<&str> = worst.filter_map(|worst| worst["model"].as_str()).collect();
    assert!(models.len() >= 19, "{models:?}");
    hold(&[ENGINE, "--only", &models.join(",")]);
}

#[test]
fn an_engine_that_is_no_engine_is_reported_with_a_remedy() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir_all(place.path().join("drift/npm-cuda-3.22.1")).unwrap();
    let damaged = drift(place.path(), &[ENGINE]);
    assert_eq!(damaged.status.code(), Some(2));
    assert!(text(&damaged.stderr).contains("hint: remove"), "{}", text(&damaged.stderr));
    let fake = place.path().join("fake");
    fs::create_dir(&fake).unwrap();
    fs::write(fake.join("libllama.so"), "").unwrap();
    symlink("/bin/true", fake.join("llama-server")).unwrap();
    let silent = drift(place.path(), &["--engine", fake.to_str().unwrap()]);
    assert_eq!(silent.status.code(), Some(2));
    assert!(text(&silent.stderr).contains("--version by hand"), "{}", text(&silent.stderr));
}
