//! Tests of `plimsoll plan` as a program: exit status, JSON, text, picture.

mod calibrate;
mod check;
mod first_contact;
mod fit;
mod foreign;
mod many;
mod page;
mod remote;
mod vllm;

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

fn plimsoll(arguments: &[&str]) -> Output {
    Command::cargo_bin("plimsoll").unwrap().args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn specimen(shape: &str, folder: &Path) -> PathBuf {
    let path = folder.join(format!("{shape}.gguf"));
    plimsoll_specimens::write(shape, &path, &plimsoll_specimens::Changes::default()).unwrap();
    path
}

const H200: &str = "name=H200,total=143771MiB,free=140000MiB,cc=9.0";

#[test]
fn fitting_plan_exits_0_with_its_terms_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let output =
        plimsoll(&["plan", "--json", "--card", H200, "--", "-m", model.to_str().unwrap(), "-c", "32768"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["schema"], "plimsoll.plan/1");
    assert_eq!(plan["engine"]["kind"], "llama.cpp");
    let card = &plan["cards"][0];
    for term in ["weights", "kv", "compute", "pool", "context"] {
        assert!(card["terms"][term].is_u64(), "{term}");
    }
    for key in ["id", "total", "free", "loaded", "peak", "headroom", "fits"] {
        assert!(!card[key].is_null(), "{key}");
    }
    let sum: u64 = ["weights", "kv", "compute", "pool", "context"]
        .iter()
        .map(|term| card["terms"][term].as_u64().unwrap())
        .sum();
    assert_eq!(card["peak"].as_u64(), Some(sum));
    assert_eq!(card["terms"]["kv"].as_u64(), Some(4096 << 20));
    assert_eq!(plan["growth"]["bytes_per_token"], 131_072);
    assert_eq!(plan["largest_context"], 131_072);
    assert!(plan["host"]["peak"].is_u64() && plan["reasons"][0]["because"].is_array());
}

#[test]
fn unfitting_plan_exits_1_with_reasons_and_working_advice() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("q30", folder.path());
    let model = model.to_str().unwrap();
    let card = "name=RTX4090,total=24564MiB,free=23000MiB,cc=8.9";
    let output = plimsoll(&["plan", "--card", card, "--", "-m", model, "-c", "8192"]);
    assert_eq!(output.status.code(), Some(1));
    let stated = text(&output.stdout);
    assert!(stated.contains("RTX4090: does not fit") && stated.contains("too much"), "{stated}");
    let advice = stated.lines().find(|line| line.contains("--n-cpu-moe")).unwrap();
    let layers = advice.split("--n-cpu-moe ").nth(1).unwrap().split(' ').next().unwrap();
    let output = plimsoll(&["plan", "--card", card, "--", "-m", model, "-c", "8192", "--n-cpu-moe", layers]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
}

#[test]
fn bad_input_exits_2_and_names_the_remedy() {
    for (arguments, stated) in [
        (vec!["plan", "--card", H200, "--", "-m", "/nowhere/none.gguf"], "none.gguf"),
        (vec!["plan", "--card", H200, "--", "-c", "4096"], "hint: plimsoll plan -- -m"),
        (vec!["plan", "--card", H200, "--", "--no-such-flag"], "--no-such-flag"),
        (vec!["plan", "--card", "name=x"], "total"),
        (vec!["plan", "--engine", "vllm"], "ik_llama.cpp"),
    ] {
        let output = plimsoll(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(stated), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn the_machine_itself_is_planned_for_where_no_card_is_described() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("tiny", folder.path());
    let output = plimsoll(&["plan", "--json", "--", "-m", model.to_str().unwrap(), "-c", "512"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(plan["cards"][0]["total"].as_u64().unwrap() > 1 << 20);
}

#[test]
fn a_picture_shows_every_card_and_its_load_line() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let picture = folder.path().join("plan.svg");
    let cards = ["name=a,total=8GiB", "name=b,total=8GiB,free=6GiB"];
    let output = plimsoll(&[
        "plan",
        "--svg",
        picture.to_str().unwrap(),
        "--card",
        cards[0],
        "--card",
        cards[1],
        "--",
        "-m",
        model.to_str().unwrap(),
        "-c",
        "8192",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let svg = std::fs::read_to_string(picture).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert_eq!(svg.matches("load line").count(), 2);
    assert!(svg.contains("others 2048 MiB"), "{svg}");
}

#[test]
fn an_engine_that_nobody_isolates_has_a_context_beside_the_card_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let output = plimsoll(&[
        "plan",
        "--json",
        "--card",
        H200,
        "--card",
        H200,
        "--",
        "-m",
        model.to_str().unwrap(),
        "-c",
        "4096",
        "-dev",
        "CUDA1",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    let alongside = &plan["cards"][0];
    assert_eq!(
        (&alongside["terms"]["weights"], &alongside["terms"]["kv"]),
        (&Value::from(0), &Value::from(0))
    );
    assert!(alongside["terms"]["context"].as_u64().unwrap() > 0, "{alongside}");
    assert!(plan["cards"][1]["terms"]["weights"].as_u64().unwrap() > 0);
}
