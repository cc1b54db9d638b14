//! Tests of `pool-replay` as the program runs it: exit status, JSON, table.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_traces::pool_replay;
use plimsoll_traces::trace::csv;
use plimsoll_traces::{CacheShape, DemandRules, GeneratedRun, GeneratorCard, ModelShape, generate};
use plimsoll_wire::trace::{TraceHeader as Header, TraceRecord as Record};
use serde_json::Value;

struct Output {
    status: u8,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

fn run(arguments: &[&str]) -> Output {
    let words = ["pool-replay"].iter().chain(arguments).map(OsString::from);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let status = pool_replay::run(words, &mut stdout, &mut stderr);
    Output { status, stdout, stderr }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/traces").join(name)
}

/// The recorded run, made again: see `data/traces/README.md`.
fn recorded(folder: &Path) -> PathBuf {
    let path = folder.join("trace.csv");
    let run = GeneratedRun {
        part: 2048,
        answer: 2,
        warm_up: true,
        ..GeneratedRun::prompt(DemandRules::Copying, CacheShape::Quantised, 61_440)
    };
    fs::write(&path, csv(&generate(&ModelShape::M8, &run, &GeneratorCard::H200).unwrap())).unwrap();
    path
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_made_trace_begins_as_the_recorded_one_and_legacy_asks_for_what_the_real_pool_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let trace = recorded(folder.path());
    let head = fs::read_to_string(data("old-q8_0-ub512-head.csv")).unwrap();
    assert!(fs::read_to_string(&trace).unwrap().starts_with(&head));

    let output = run(&[trace.to_str().unwrap(), "--json", "--policy", "ggml-legacy"]);
    assert_eq!(output.status, 0);
    let replay = json(&output);
    let sizes: Vec<String> =
        replay["policies"][0]["driver_sizes"].as_array().unwrap().iter().map(Value::to_string).collect();
    let real = fs::read_to_string(data("old-q8_0-ub512.legacy-driver.txt")).unwrap();
    assert_eq!(sizes, real.lines().collect::<Vec<_>>());
}

#[test]
fn json_has_what_plimsoll_replay_1_promises() {
    let folder = tempfile::tempdir().unwrap();
    let trace = recorded(folder.path());
    let output = run(&[trace.to_str().unwrap(), "--json"]);
    assert_eq!(output.status, 0, "{}", text(&output.stderr));
    let replay = json(&output);
    assert_eq!(replay["schema"], "plimsoll.replay/1");
    assert_eq!(replay["peak_live"], 251_658_240);
    let policies = replay["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 5);
    for policy in policies {
        let reserved = policy["peak_reserved"].as_u64().unwrap();
        let budget = policy["smallest_budget"].as_u64().unwrap();
        assert!(reserved >= 251_658_240 && budget >= 251_658_240, "{policy}");
        assert!(policy["ratio"].as_f64().unwrap() >= 1.0 && policy["completed"] == true);
        let sizes = policy["driver_sizes"].as_array().unwrap().len();
        assert_eq!(policy["driver_allocs"].as_u64(), u64::try_from(sizes).ok());
    }
    let ours = &policies[0];
    assert_eq!(ours["policy"], "plimsoll");
    let most = 251_658_240 * 107 / 100 + (2 << 20);
    assert!(ours["peak_reserved"].as_u64().unwrap() <= most);
    assert!(ours["driver_allocs"].as_u64().unwrap() <= 60);
    assert!(ours["smallest_budget"].as_u64().unwrap() <= 251_658_240 * 102 / 100);
}

#[test]
fn pool_replay_over_budget_exits_1_with_the_failing_request() {
    let folder = tempfile::tempdir().unwrap();
    let trace = recorded(folder.path());
    let policies = ["--policy", "plimsoll,ggml-legacy", "--budget", "1GiB"];
    let output = run(&[&[trace.to_str().unwrap()][..], &policies].concat());
    assert_eq!(output.status, 1);
    let stated = text(&output.stdout);
    assert!(
        stated.contains("18702 blocks, 37404 requests, peak of live memory 240 MiB (251658240 B)"),
        "{stated}"
    );
    assert!(stated.contains("budget 1024 MiB; at least 240 MiB are needed"), "{stated}");
    assert!(
        stated.contains(
            "ggml-legacy stops at request 12068: 40 MiB were requested, 42 MiB of them from the driver"
        ),
        "{stated}"
    );
    let ours = stated.lines().find(|line| line.starts_with("plimsoll")).unwrap();
    assert!(ours.contains(" yes ") && ours.contains(" MiB"), "{ours}");
}

#[test]
fn help_goes_to_stdout_and_succeeds() {
    let output = run(&["--help"]);
    assert_eq!((output.status, output.stderr.is_empty()), (0, true));
    assert!(text(&output.stdout).contains("Usage: pool-replay [OPTIONS] <FILE>"));
}

#[test]
fn bad_input_exits_2_and_names_the_line_or_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.csv");
    fs::write(&broken, "Thread,Time,Action,Pointer,Size,Stream\n1,0,allocate,0x1,many,0x0\n").unwrap();
    let broken = broken.to_str().unwrap();
    for (arguments, stated) in [
        (vec!["/nowhere/trace.csv"], "/nowhere/trace.csv"),
        (vec![broken], "line 2: `many` is not a size; write a number of bytes"),
        (vec![broken, "--policy", "buddy"], "the policies are plimsoll,"),
        (vec![broken, "--budget", "much"], "24GiB"),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status, 2, "{arguments:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(stated) && output.stdout.is_empty(), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_trace_of_guard_is_read_and_the_pool_may_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.plim");
    let mut file = Header::new(1, 1, 0, 0).to_bytes().to_vec();
    for (id, size, kind, pool) in [(1, 1 << 20, 1, 0), (2, 4096, 1, 1), (2, 4096, 2, 1), (3, 8192, 1, 1)] {
        let record = Record { time: 0, id, size, kind, card: 0, pool, detail: 0, stream: 0, thread: 0 };
        file.extend(record.to_bytes());
    }
    fs::write(&path, file).unwrap();
    let path = path.to_str().unwrap();
    let output = run(&[path, "--json", "--policy", "ggml-legacy"]);
    assert_eq!((output.status, &json(&output)["peak_live"]), (0, &Value::from(8192)));
    let output = run(&[path, "--json", "--policy", "ggml-legacy", "--card", "0", "--pool", "0"]);
    assert_eq!(json(&output)["peak_live"], 1 << 20);
    let output = run(&[path, "--card", "0", "--pool", "9"]);
    assert_eq!(output.status, 2);
    assert!(text(&output.stderr).contains("the trace has no request to pool 9 of card 0"));
}

/// `data/measured/h200-guard-b8799.json`: what a process grew by on an H200, in MiB by nvidia-smi.
fn grew(measured: &Value, variant: &str) -> u64 {
    let rows = measured["pool"]["rows"].as_array().unwrap();
    let row =
        rows.iter().find(|row| row["variant"] == variant && row["configuration"] == "q8_0 ub 512").unwrap();
    row["grown"].as_u64().unwrap() - row["loaded"].as_u64().unwrap()
}

#[test]
fn a_real_card_grew_by_what_the_replay_says_of_each_pool() {
    let folder = tempfile::tempdir().unwrap();
    let trace = recorded(folder.path());
    let policies = "plimsoll,ggml-legacy,ggml-vmm";
    let replay = json(&run(&[trace.to_str().unwrap(), "--json", "--policy", policies]));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/measured/h200-guard-b8799.json");
    let measured: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let reserved = |index: usize| replay["policies"][index]["peak_reserved"].as_u64().unwrap() >> 20;

    // The driver rounds each of the legacy pool's blocks up to 2 MiB, and the process grows by some of its
    // own.
    let legacy = grew(&measured, "legacy, VMM hidden");
    assert!((reserved(1)..reserved(1) + 2 * 87).contains(&legacy), "{legacy}");
    for (index, variant) in [(0, "served, VMM hidden"), (0, "served, NO_VMM build"), (2, "VMM pool")] {
        let grown = grew(&measured, variant);
        assert!(grown <= reserved(index), "{variant}: {grown} of {}", reserved(index));
        assert!(grown >= replay["peak_live"].as_u64().unwrap() >> 20, "{variant}");
    }
}
