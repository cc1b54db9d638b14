//! Tests of programs that allocate card memory, under the real guard library and a fake driver.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll_traces::replay::{PolicyKind, UNLIMITED, replay};
use plimsoll_traces::trace::Trace;
use serde_json::{Value, json};

use super::rig::{run, stated};
use crate::built::built;
use crate::pages::real::{driver, guard, take};

const FIRST: &str = "GPU-00000001-0000-0000-0000-000000000000";
const SECOND: &str = "GPU-00000002-0000-0000-0000-000000000000";

/// A run on two cards of 8 GiB, the first of which has a name of its own.
fn on_two_cards(options: &[&str], command: &[&str]) -> Output {
    with_two_cards(run(options, command))
}

fn with_two_cards(mut command: Command) -> Output {
    let driver = driver(&built("libplimsoll_fake_cuda.so", "fake-cuda"));
    let shared = driver.path().join("shared");
    let gib = 1_u64 << 30;
    let card = |uuid: &str, name: &str, slot: u32| json!({"uuid": uuid, "name": name, "total": 8 * gib, "pci": format!("00000000:0{slot}:00.0")});
    let cards = Value::from(vec![card(FIRST, "Large", 1), card(SECOND, "Small", 2)]);
    command
        .env("PLIMSOLL_GUARD_LIBRARY", guard())
        .env("LD_LIBRARY_PATH", driver.path())
        .env("PLIMSOLL_NVML", built("libnvidia_ml.so", "fake-nvml"))
        .env("PLIMSOLL_FAKE_NVML_CARDS", cards.to_string())
        .env(
            "PLIMSOLL_FAKE_CUDA",
            format!("cards=2 uuids={FIRST},{SECOND} context=0 shared={}", shared.display()),
        )
        .env_remove("CUDA_VISIBLE_DEVICES")
        .output()
        .expect("it runs")
}

#[test]
fn without_options_a_program_is_counted_and_gets_what_it_would_have_got() {
    let output = on_two_cards(&[], &[take(), "600", "1024", "free", "100", "9000"]);
    assert_eq!(output.status.code(), Some(3));
    let (stdout, stderr) = stated(&output);
    assert_eq!(stdout, "600 0\n1024 0\n100 0\n9000 2\n");
    let end = "plimsoll run: Large: peak 1624 MiB, reserved 0 B, spilled 0 B, 1 refused (1 by the driver; \
        the largest requested 9000 MiB)\n";
    assert!(stderr.ends_with(end), "{stderr}");
}

#[test]
fn a_budget_refuses_what_passes_it_and_the_other_card_has_its_own() {
    let output = on_two_cards(&["--card", "1=1GiB"], &[take(), "600", "600", "300"]);
    let (stdout, stderr) = stated(&output);
    assert_eq!(stdout, "600 0\n600 2\n300 0\n");
    let end = "plimsoll run: Small: peak 900 MiB of a budget of 1024 MiB, reserved 0 B, spilled 0 B, 1 \
        refused (1 by the budget; the largest requested 600 MiB)\n";
    assert!(stderr.ends_with(end), "{stderr}");
}

#[test]
fn overflow_is_spilled_within_the_spill_limit() {
    let output =
        on_two_cards(&["--budget", "1GiB", "--spill", "1GiB"], &[take(), "600", "600", "free", "600"]);
    let (stdout, stderr) = stated(&output);
    assert_eq!(stdout, "600 0\n600 0\n600 0\n");
    let line = stderr.lines().last().unwrap_or_default();
    assert!(line.contains("of a budget of 1024 MiB"), "{stderr}");
    assert!(line.ends_with("no refusal"), "{stderr}");
    assert!(!line.contains("spilled 0 B"), "it is seen although it was freed: {stderr}");
}

/// A llama-server that says what guard was told and then asks for memory as one would, and the flags that it
/// is given.
fn llama(folder: &Path, asks: &str) -> (String, Vec<String>) {
    let program = folder.join("llama-server");
    let script = format!("#!/bin/sh\necho \"$PLIMSOLL_GUARD\"\nexec {} {asks}\n", take());
    std::fs::write(&program, script).expect("the folder is ours");
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("the file is ours");
    let model = folder.join("m8.gguf");
    plimsoll_specimens::write("m8", &model, &plimsoll_specimens::Changes::default())
        .expect("the folder is ours");
    let flags = format!("-m {} -c 8192 -ngl 99 -fa on -fit off -np 1", model.display());
    let text = program.to_str().expect("text").to_owned();
    (text, flags.split(' ').map(str::to_owned).collect())
}

#[test]
fn a_program_of_llama_cpp_is_planned_and_the_end_of_its_cache_overflows() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Weights, KV cache, compute buffer, pool.
    let (program, flags) = llama(folder.path(), "1006 256 116 12");
    let planned = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["plan", "--json", "--card", "name=Large,total=8GiB,free=8GiB", "--"])
        .args(&flags)
        .output()
        .expect("it runs");
    let plan: Value = serde_json::from_slice(&planned.stdout).expect("a plan");
    let terms = &plan["cards"][0]["terms"];
    let need: u64 =
        ["weights", "kv", "compute", "pool"].map(|term| terms[term].as_u64().expect("known")).iter().sum();
    let mut command = vec![program.as_str()];
    command.extend(flags.iter().map(String::as_str));
    let budget = 1200_u64 << 20;
    let cache = format!("cache={FIRST}:1:8192:8x2048/16777216,2048/16777216");
    let weights = format!("weights={FIRST}:{}", terms["weights"]);
    let output = on_two_cards(&["--card", "Large=1200MiB", "--spill", "1GiB"], &command);
    let (stdout, stderr) = stated(&output);
    assert_eq!(
        stdout,
        format!(
            "card={FIRST}:{budget}:{need} {cache} {weights} spill={} hide-others\n1006 0\n256 0\n116 0\n12 0\n",
            1_u64 << 30
        ),
        "{stderr}"
    );
    // The cache gives up all but its first 4096 positions, and weights the rest.
    assert_eq!(stderr.matches(" did not fit: ").count(), 2, "{stderr}");
    assert!(stderr.contains("an allocation of 1006 MiB did not fit: 924 MiB"), "{stderr}");
    assert!(stderr.contains("an allocation of 256 MiB did not fit: 128 MiB"), "{stderr}");
    assert!(!stderr.contains("hint: --need"), "{stderr}");
}

#[test]
fn total_demand_is_hinted_and_reused_as_the_need_of_the_next_run() {
    let options = ["--card", "Large=800MiB", "--spill", "1GiB"];
    let program = [take(), "600", "200", "100"];
    let first = on_two_cards(&options, &program);
    let (_, stderr) = stated(&first);
    assert!(stderr.contains("an allocation of 100 MiB did not fit: "), "{stderr}");
    let hint = "plimsoll run: hint: --need 900MiB puts the first allocations (usually weights) into host \
        memory, instead of the last (usually the KV cache)\n";
    assert!(stderr.contains(hint), "{stderr}");
    let second = on_two_cards(&[&options[..], &["--need", "900MiB"]].concat(), &program);
    let (stdout, stderr) = stated(&second);
    assert_eq!(stdout, "600 0\n200 0\n100 0\n");
    assert!(stderr.contains("an allocation of 600 MiB did not fit: "), "{stderr}");
    assert!(!stderr.contains("hint"), "{stderr}");
}

#[test]
fn a_program_of_llama_cpp_that_cannot_be_planned_runs_all_the_same() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (program, _) = llama(folder.path(), "600");
    let output = on_two_cards(&["--card", "Large", "--spill", "1GiB"], &[&program, "-m", "/nowhere/m.gguf"]);
    let (stdout, stderr) = stated(&output);
    assert_eq!(stdout, format!("card={FIRST} spill={} hide-others\n600 0\n", 1_u64 << 30));
    assert!(stderr.contains("llama-server cannot be planned ("), "{stderr}");
    assert!(stderr.contains("/nowhere/m.gguf"), "{stderr}");
}

#[test]
fn a_context_outside_the_plan_is_refused_or_reported() {
    let output = on_two_cards(&["--card", "Large", "--strict-cards"], &[take(), "card=1", "1"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(stated(&output).1.contains("which this program may not use"), "{}", stated(&output).1);
    let output = on_two_cards(&["--card", "Large", "--report-cards"], &[take(), "card=1", "1"]);
    assert_eq!((output.status.code(), stated(&output).0), (Some(0), "1 0\n"));
    assert!(stated(&output).1.contains("which this program may not use"), "{}", stated(&output).1);
}

#[test]
fn a_program_that_is_killed_leaves_its_figures() {
    let output = on_two_cards(&[], &[take(), "700", "die"]);
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(output.status.signal(), Some(9));
    assert!(stated(&output).1.contains("Large: peak 700 MiB,"), "{}", stated(&output).1);
}

#[test]
fn children_and_children_of_children_are_counted_together() {
    let script = "\"$0\" 300 fork; \"$0\" 200";
    let output = on_two_cards(&[], &["sh", "-c", script, take()]);
    let line = stated(&output).1.lines().last().unwrap_or_default();
    assert!(line.contains("peak 300 MiB"), "one after the other: {line}");
    assert!(line.contains("in 3 processes"), "{line}");
}

#[test]
fn a_budget_is_for_all_that_the_command_starts_and_their_peak_is_what_they_held_at_a_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let there = folder.path().to_str().expect("text");
    let script = "\"$0\" 600 touch=$1/a until=$1/b & \"$0\" until=$1/a 600 300 touch=$1/b; wait $!";
    let output = on_two_cards(&["--budget", "1GiB"], &["sh", "-c", script, take(), there]);
    let (stdout, stderr) = stated(&output);
    let mut lines: Vec<&str> = stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["300 0", "600 0", "600 2"], "{stderr}");
    assert_eq!(output.status.code(), Some(0), "who was not refused ended well");
    assert!(stderr.contains(" of this run holds 600 MiB\n"), "{stderr}");
    let end = "plimsoll run: Large: peak 900 MiB of a budget of 1024 MiB, reserved 0 B, spilled 0 B, in 2 processes, \
               1 refused (1 by the budget; the largest requested 600 MiB)\n";
    assert!(stderr.ends_with(end), "{stderr}");
}

/// The one file beside `path` whose name goes on with a process id.
fn trace_of(path: &Path) -> PathBuf {
    let folder = path.parent().expect("a folder").read_dir().expect("it can be read");
    let mut traces = folder.flatten().map(|entry| entry.path());
    let trace = traces.next().expect("a trace");
    assert_eq!(traces.next(), None);
    trace
}

#[test]
fn a_trace_can_be_replayed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("trace");
    let trace = path.to_str().expect("text");
    on_two_cards(&["--trace", trace], &[take(), "600", "1024", "free", "100"]);
    let trace = Trace::from_record(&fs::read(trace_of(&path)).expect("readable"), None).expect("a trace");
    assert_eq!(trace.peak_live(), 1624_u64 << 20);
    assert!(replay(&trace, PolicyKind::Plimsoll, UNLIMITED).completed());
}

#[test]
fn a_watched_program_is_guarded_and_what_it_was_refused_is_in_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("a.watch");
    let mut watch = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    watch.args(["watch", "--every", "10ms", "-o"]).arg(&record);
    watch.args(["--", take(), "600", "9000"]).stdin(std::process::Stdio::null());
    let output = with_two_cards(watch);
    assert_eq!(stated(&output).0, "600 0\n9000 2\n", "{output:?}");
    let shown =
        Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["watch", "show"]).arg(&record).output().unwrap();
    let (text, _) = stated(&shown);
    assert!(text.contains("OOM guard:"), "{text}");
    assert!(
        text.contains("card 0: the driver refused a request for 9000 MiB more; the program held 600 MiB"),
        "{text}"
    );
    assert!(text.contains("allocated on card 0, 600 MiB at first, peak 600 MiB"), "{text}");
}
