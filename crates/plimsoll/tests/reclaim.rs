//! Tests of `plimsoll reclaim` as a program: its output for captured machine files, and its exit status.

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

const GIB: u64 = 1 << 30;

fn reclaim(arguments: &[&str]) -> Output {
    Command::cargo_bin("plimsoll").unwrap().arg("reclaim").args(arguments).output().unwrap()
}

fn captured(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/sysroot").join(name)
}

/// Judges a captured tree; returns the exit status and the answer.
fn judged(name: &str, arguments: &[&str]) -> (i32, Value) {
    let tree = captured(name);
    let fixed = ["--json", "--sysroot", tree.to_str().unwrap()];
    let output = reclaim(&[arguments, &fixed].concat());
    let answer = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code().unwrap(), answer)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn planned(answer: &Value) -> Vec<&str> {
    let steps = answer["planned"].as_array().unwrap();
    steps.iter().map(|step| step["step"].as_str().unwrap()).collect()
}

#[test]
fn a_capped_release_is_advised_to_upgrade_and_nothing_is_done_for_it() {
    let (status, answer) = judged("orin-nano-r36.4.7", &["--need", "5GiB"]);
    assert_eq!((status, answer["verdict"].as_str()), (1, Some("beyond")));
    assert_eq!(answer["schema"], "plimsoll.reclaim/1");
    assert!(planned(&answer).is_empty());
    let reason = answer["before"]["reason"].to_string();
    assert!(reason.contains("nvmap_policy_cap") && reason.contains("upgrade to R36.5.0"), "{reason}");
    assert!(!answer.to_string().contains("1075072515"));

    let (status, answer) = judged("orin-nano-r36.4.7", &["--need", "3GiB"]);
    assert_eq!((status, planned(&answer)), (0, vec!["drop-page-cache"]));
}

#[test]
fn page_cache_in_the_way_is_dropped_where_free_memory_decides_and_nowhere_else() {
    for machine in ["agx-orin-r39.2", "thor-r38.4", "gb10"] {
        let (status, answer) = judged(machine, &["--need", "13GiB"]);
        assert_eq!((status, planned(&answer)), (0, vec!["drop-page-cache"]), "{machine}");
        let (now, free) = (&answer["before"]["now"], &answer["before"]["free"]);
        assert!(now.as_u64() < free.as_u64() && now.as_u64() < Some(13 * GIB), "{machine}: {now}");

        let (status, answer) = judged(machine, &["--need", "13GiB", "--gate", "available"]);
        assert_eq!((status, answer["verdict"].as_str()), (0, Some("enough")), "{machine}");
        let (status, _) = judged(machine, &["--need", "200GiB"]);
        assert_eq!(status, 1, "{machine}");
    }
}

#[test]
fn blocks_of_an_order_are_asked_for_by_all_orders_that_the_kernel_has() {
    let (_, answer) = judged("orin-nano-r36.4.7", &["--need", "1GiB", "--contiguous", "12"]);
    let blocks = answer["before"]["blocks"].as_array().unwrap();
    assert_eq!((blocks.len(), blocks[10].as_u64(), blocks[12].as_u64()), (13, Some(48), Some(6)));
    let (status, answer) = judged("gb10", &["--need", "4GiB", "--contiguous", "9"]);
    assert_eq!((status, planned(&answer)), (0, vec!["compact"]));
}

#[test]
fn reclaim_text_shows_the_arithmetic() {
    let tree = captured("gb10");
    let output = reclaim(&["--need", "13GiB", "--sysroot", tree.to_str().unwrap()]);
    let stated = text(&output.stdout);
    for part in [
        "need    13312 MiB",
        "5478 MiB are free (MemFree), less 30 MiB in the contiguous pool and 1027 MiB that the kernel's watermarks and reserves withhold",
        "would   drop-page-cache (needs root): predicted to free",
        "not enough now; predicted to be enough after these steps",
    ] {
        assert!(stated.contains(part), "{part}:\n{stated}");
    }
}

#[test]
fn sufficient_memory_on_this_host_exits_0_without_steps() {
    let output = reclaim(&["--need", "1MiB", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), answer["verdict"].as_str()), (Some(0), Some("enough")));
    assert!(answer["taken"].as_array().unwrap().is_empty());
}

#[test]
fn a_files_page_cache_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m.gguf");
    std::fs::write(&model, vec![7; 1 << 20]).unwrap();
    let output = reclaim(&["--need", "1MiB", "--dry-run", "--json", "--file", model.to_str().unwrap()]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["before"]["files"][0]["length"], 1 << 20, "{answer}");
}

#[test]
fn a_dry_run_without_a_need_says_what_can_be_allocated() {
    let output = reclaim(&["--dry-run"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("can be allocated now"), "{}", text(&output.stdout));
    assert_eq!(reclaim(&[]).status.code(), Some(2));
}

#[test]
fn a_question_that_makes_no_sense_ends_with_status_2_and_a_remedy() {
    let tree = captured("gb10");
    let tree = tree.to_str().unwrap();
    for (arguments, stated) in [
        (&["--need", "many"][..], "is not a size"),
        (&["--need", "5"], "did you mean 5GiB?"),
        (&[], "--need"),
        (
            &["--need", "1GiB", "--contiguous", "11", "--sysroot", tree],
            "from 0 to 10; give an order of these",
        ),
        (&["--need", "1GiB", "--sysroot", "/nowhere"], "name a folder that contains proc/"),
        (&["--need", "1GiB", "--file", "/nowhere.gguf"], "/nowhere.gguf"),
        (&["--need", "1GiB", "--config", "/nowhere.toml"], "/nowhere.toml"),
    ] {
        let output = reclaim(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(stated), "{arguments:?}: {error}");
    }
}

#[test]
fn the_unit_takes_one_step_by_its_name_and_there_is_no_other_step() {
    let output = reclaim(&["--print-unit"]);
    match output.status.code() {
        Some(0) => {
            let unit = text(&output.stdout);
            assert!(unit.contains("reclaim-step %i") && unit.contains("NoNewPrivileges=yes"), "{unit}");
        }
        // The build folder belongs to an ordinary user.
        code => {
            assert_eq!(code, Some(2));
            assert!(text(&output.stderr).contains("could replace it"), "{}", text(&output.stderr));
        }
    }
    let mut step = Command::cargo_bin("plimsoll").unwrap();
    let output = step.args(["reclaim-step", "everything"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("compact, claim-huge-pages, drop-page-cache"));
}
