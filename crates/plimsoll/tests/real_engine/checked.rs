//! Test of `plimsoll plan --check` on a running llama.cpp.

use std::process::Output;

use serde_json::Value;

use crate::built::built;
use crate::child::{Engine, plimsoll};

/// The build that the tests install.
const ENGINE: &str = "llama.cpp@11549";

fn ask(target: &str, options: &[&str], flags: &[&str]) -> Output {
    plimsoll()
        .args(["plan", "--json", "--engine", ENGINE, "--check", target])
        .args(options)
        .arg("--")
        .args(flags)
        .env("PLIMSOLL_NVML", "")
        .env("PLIMSOLL_PHANTOM_LIBRARY", built("libplimsoll_phantom.so", "plimsoll-phantom"))
        .output()
        .unwrap()
}

fn checked(target: &str, flags: &[&str]) -> (Option<i32>, Value) {
    json(&ask(target, &[], flags))
}

fn json(output: &Output) -> (Option<i32>, Value) {
    let stated = String::from_utf8_lossy(&output.stderr);
    let check = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{stated}"));
    (output.status.code(), check)
}

#[test]
fn an_engine_on_the_cpu_takes_what_was_planned_and_has_the_sizes_that_were() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tiny.gguf");
    plimsoll_specimens::write("tiny", &model, &plimsoll_specimens::Changes::default()).unwrap();
    let engine = Engine::start(&model, &["-c", "4096", "-np", "2"], &[]).ready();
    let address = format!("http://127.0.0.1:{}", engine.port);
    for target in [engine.child.id().to_string(), address.clone()] {
        let (status, check) = checked(&target, &[]);
        assert_eq!((status, &check["ok"]), (Some(0), &true.into()), "{check}");
        let card = &check["models"][0]["cards"][0];
        assert!(card["measured"].as_u64() > card["loaded"].as_u64(), "{card}");
        let stated = &check["models"][0]["said"];
        assert_eq!((&stated[0]["planned"], &stated[0]["engine"]), (&4096.into(), &4096.into()), "{stated}");
        assert_eq!((&stated[1]["planned"], &stated[1]["engine"]), (&2.into(), &2.into()), "{stated}");
    }
    let (status, check) = checked(&address, &["-np", "4"]);
    assert_eq!(status, Some(1), "the engine has two slots: {check}");
    // The program that runs is the one that is asked.
    let requested = ask(&address, &["--exact", "--no-cache"], &[]);
    let (status, check) = json(&requested);
    assert_eq!((status, &check["ok"]), (Some(0), &true.into()), "{check}");
    let stated = String::from_utf8_lossy(&requested.stderr);
    assert!(stated.contains("asked llama-server: the engine ran once"), "{stated}");
}
