//! Tests of `plimsoll measure calibrate` with a fake engine under guard, a fake driver and a fake NVML,
//! and of plans with its results.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{specimen, text};
use crate::built::built;
use crate::pages::real::{driver, guard};

const CARD: &str = "GPU-00000001-0000-0000-0000-000000000000";
const MIB: u64 = 1 << 20;
/// What the double of the driver takes for a context, and the engine for its model.
const CONTEXT: u64 = 64 * MIB;

/// A machine with one card, and an engine of its own.
struct Machine {
    folder: TempDir,
    driver: TempDir,
    cards: Value,
}

impl Machine {
    fn new() -> Self {
        let driver = driver(&built("libplimsoll_fake_cuda.so", "fake-cuda"));
        // guard asks NVML what a context took as it was opened
        let nvml = built("libnvidia_ml.so", "fake-nvml");
        symlink(nvml, driver.path().join("libnvidia-ml.so.1")).unwrap();
        let usage = driver.path().join("shared");
        let cards = json!([{"uuid": CARD, "name": "Fake 8G", "total": 8192 * MIB, "usage": usage}]);
        Self { folder: tempfile::tempdir().unwrap(), driver, cards }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A llama-server of build 10605 that does this once it is asked for more than its version.
    fn engine(&self, does: &str) -> PathBuf {
        let program = self.path("llama-server");
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo 'version: 10605 (abc)' && exit\n[ \"$1\" = --help ] && exit\n{does}\n"
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        program
    }

    /// One that takes 500 MiB of the card, and this much for each token of a prompt.
    fn usual_engine(&self, per_token: u64) -> PathBuf {
        let double = built("fake-engine", "fake-engine");
        let faults = format!("cuda=1 vram={} vram_per_token={per_token}", 500 * MIB);
        self.engine(&format!("exec {} --fake '{faults}' \"$@\"", double.display()))
    }

    fn plimsoll(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let shared = self.driver.path().join("shared");
        let words = format!("uuids={CARD} total=8G context=64M shared={}", shared.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command
            .args(arguments)
            .env("PLIMSOLL_GUARD_LIBRARY", guard())
            .env("LD_LIBRARY_PATH", self.driver.path())
            .env("PLIMSOLL_NVML", built("libnvidia_ml.so", "fake-nvml"))
            .env("PLIMSOLL_FAKE_NVML_CARDS", self.cards.to_string())
            .env("PLIMSOLL_FAKE_CUDA", words)
            .env("XDG_CONFIG_HOME", self.folder.path())
            .env_remove("CUDA_VISIBLE_DEVICES");
        command
    }

    fn calibrate(&self, engine: &Path, more: &[&str]) -> Output {
        let engine = engine.to_str().unwrap();
        self.plimsoll(&[&["calibrate", "--engine", engine], more].concat())
    }

    /// The context term of a plan for the machine's own card.
    fn planned(&self) -> (u64, String) {
        self.planned_with(&[])
    }

    fn planned_with(&self, words: &[&str]) -> (u64, String) {
        let model = specimen("m8", self.folder.path());
        let model = model.to_str().unwrap();
        let engine = ["--engine", "llama.cpp@10605"];
        let flags = ["--", "-m", model, "-c", "4096", "-ngl", "99"];
        let output = self.plimsoll(&[&["plan", "--json"][..], words, &engine, &flags].concat());
        let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
        let because = plan["reasons"][0]["because"].as_array().unwrap();
        let context = because.iter().find(|reason| reason["code"] == "context").unwrap();
        let source = context["facts"]["source"].as_str().unwrap();
        (plan["cards"][0]["terms"]["context"].as_u64().unwrap(), source.to_owned())
    }
}

impl Machine {
    /// MiB that a daemon plans for a model on this engine.
    fn served(&self, engine: &Path) -> u64 {
        let model = specimen("m8", self.folder.path());
        let config = self.path("plimsoll.toml");
        let (engine, model) = (engine.display(), model.display());
        let text =
            format!("[models.m8]\ncmd = \"{engine} --port ${{PORT}} -m {model} -c 4096 -ngl 99 -np 1\"\n");
        fs::write(&config, text).unwrap();
        let output = self.plimsoll(&["serve", config.to_str().unwrap(), "--check"]);
        let (_, stdout, stderr) = stated(&output);
        let line = stdout.lines().find(|line| line.starts_with("model m8"));
        let words = line.unwrap_or_else(|| panic!("{stdout}{stderr}")).split_ascii_whitespace();
        words.filter_map(|word| word.parse().ok()).next().unwrap()
    }
}

fn stated(output: &Output) -> (Option<i32>, String, String) {
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn context_size_is_measured_saved_and_used_by_plans() {
    let machine = Machine::new();
    assert_eq!(machine.planned().0, 512 * MIB, "assumed");
    let engine = machine.usual_engine(0);
    let output = machine.calibrate(&engine, &[]);
    let (status, stdout, stderr) = stated(&output);
    assert_eq!(status, Some(0), "{stderr}");
    let table = machine.path("plimsoll/contexts.toml");
    assert_eq!(
        stdout,
        format!(
            "Fake 8G: a context takes 64 MiB (64 MiB right after its creation), the first use of cuBLAS adds 0 B (llama.cpp@10605, driver 550.54.15)\n\
             saved in {}, for `plimsoll plan` and `plimsoll serve`\n",
            table.display()
        )
    );
    let (bytes, source) = machine.planned();
    assert_eq!(bytes, CONTEXT);
    assert!(
        source.starts_with("calibration Fake 8G, driver 550.54.15, llama.cpp@10605 (measured here on 20"),
        "{source}"
    );
}

#[test]
fn a_budget_is_planned_with_the_context_as_it_was_opened() {
    let machine = Machine::new();
    let engine = machine.usual_engine(0);
    assert_eq!(stated(&machine.calibrate(&engine, &[])).0, Some(0));
    let table = machine.path("plimsoll/contexts.toml");
    let kept = fs::read_to_string(&table).unwrap();
    assert!(kept.contains("plimsoll.contexts/2") && kept.contains(&format!("opened = {CONTEXT}")), "{kept}");
    // what the driver loads later is beyond a double: here the whole context is the larger one
    let larger = kept.replace(&format!("context = {CONTEXT}"), &format!("context = {}", 3 * CONTEXT));
    fs::write(&table, larger).unwrap();
    assert_eq!(machine.planned_with(&["--budget", "4GiB"]).0, CONTEXT);
    assert_eq!(machine.planned().0, 3 * CONTEXT);
}

#[test]
fn a_daemon_claims_by_what_was_measured() {
    let machine = Machine::new();
    let engine = machine.usual_engine(0);
    let assumed = machine.served(&engine);
    let output = machine.calibrate(&engine, &[]);
    assert_eq!(stated(&output).0, Some(0));
    assert_eq!(machine.served(&engine), assumed - (512 - 64));
}

#[test]
fn lasting_growth_at_a_prompt_counts_as_first_use_of_cublas_and_is_in_the_json() {
    let machine = Machine::new();
    let engine = machine.usual_engine(MIB);
    let table = machine.path("elsewhere.toml");
    let output = machine.calibrate(&engine, &["--json", "--write", table.to_str().unwrap()]);
    let (status, stdout, stderr) = stated(&output);
    assert_eq!(status, Some(0), "{stderr}");
    let calibration: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(calibration["schema"], "plimsoll.calibration/1");
    assert_eq!(calibration["engine"], engine.to_str().unwrap());
    assert_eq!(calibration["version"], "version: 10605 (abc)");
    assert_eq!(calibration["written"], table.to_str().unwrap());
    let row = &calibration["contexts"][0];
    assert_eq!(
        (&row["card"], &row["driver"], &row["engine"], &row["build"], &row["context"], &row["opened"]),
        (
            &json!("Fake 8G"),
            &json!("550.54.15"),
            &json!("llama.cpp"),
            &json!(10_605),
            &json!(CONTEXT),
            &json!(CONTEXT)
        )
    );
    let cublas = row["cublas"].as_u64().unwrap();
    assert!(cublas > 100 * MIB && cublas.is_multiple_of(MIB), "{cublas}");
    let kept = fs::read_to_string(&table).unwrap();
    assert!(kept.contains(&format!("cublas = {cublas}")), "{kept}");
    assert!(!machine.path("plimsoll").exists(), "only where it was asked to");
}

#[test]
fn a_driver_that_names_no_process_is_reported_with_the_remedy_and_free_memory_helps_who_is_alone() {
    let mut machine = Machine::new();
    machine.cards[0]["processes"] = Value::Null;
    let engine = machine.usual_engine(0);
    let output = machine.calibrate(&engine, &[]);
    let (status, stdout, _) = stated(&output);
    assert_eq!(status, Some(1));
    assert!(stdout.contains("Fake 8G: not measured: ") && stdout.contains("--pid=host"), "{stdout}");
    assert!(!machine.path("plimsoll").exists(), "nothing is kept");
    let output = machine.calibrate(&engine, &["--alone"]);
    let (status, stdout, stderr) = stated(&output);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(
        stdout.starts_with("Fake 8G: a context takes 64 MiB (64 MiB right after its creation), "),
        "{stdout}"
    );
}

#[test]
fn a_port_that_somebody_else_took_is_no_reason_to_give_up() {
    let machine = Machine::new();
    let double = built("fake-engine", "fake-engine");
    let marker = machine.path("struck");
    let (vram, marker_file) = (500 * MIB, marker.display());
    let faults = format!("cuda=1 vram={vram} fail=port_taken fail_once={marker_file}");
    let engine = machine.engine(&format!("exec {} --fake '{faults}' \"$@\"", double.display()));
    let output = machine.calibrate(&engine, &[]);
    let (status, stdout, stderr) = stated(&output);
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    assert!(marker.exists() && stdout.contains("a context takes 64 MiB"), "{stdout}");
}

#[test]
fn an_engine_that_fails_or_stays_off_the_card_is_reported_in_its_own_words() {
    let machine = Machine::new();
    let broken = machine.engine("echo 'no kernel image is available' >&2; exit 3");
    let output = machine.calibrate(&broken, &[]);
    let (status, stdout, _) = stated(&output);
    assert_eq!(status, Some(1));
    assert!(stdout.contains("no kernel image is available") && stdout.contains("hint: "), "{stdout}");
    let double = built("fake-engine", "fake-engine");
    let cpu = machine.engine(&format!("exec {} \"$@\"", double.display()));
    let output = machine.calibrate(&cpu, &[]);
    let (status, stdout, _) = stated(&output);
    assert_eq!(status, Some(1));
    assert!(stdout.contains("allocated no memory on the card"), "{stdout}");
}

#[test]
fn without_a_card_or_an_engine_there_is_nothing_to_measure_and_that_is_bad_input() {
    let mut machine = Machine::new();
    let output = machine.calibrate(Path::new("/nowhere/llama-server"), &[]);
    let (status, _, stderr) = stated(&output);
    assert_eq!(status, Some(2));
    assert!(stderr.contains("/nowhere/llama-server"), "{stderr}");
    machine.cards = json!([]);
    let engine = machine.usual_engine(0);
    let output = machine.calibrate(&engine, &[]);
    let (status, _, stderr) = stated(&output);
    assert_eq!(status, Some(2));
    assert!(stderr.contains("there is no card to measure") && stderr.contains("hint: "), "{stderr}");
}

#[test]
fn an_export_has_the_cards_and_their_contexts_and_nothing_that_names_a_machine() {
    let machine = Machine::new();
    assert_eq!(stated(&machine.calibrate(&machine.usual_engine(0), &[])).0, Some(0));
    let device = machine.path("files/sys/class/drm/card1/device");
    fs::create_dir_all(&device).unwrap();
    let event = "DRIVER=amdgpu\nPCI_ID=1002:744C\nPCI_SLOT_NAME=0000:0b:00.0\n";
    for (file, text) in [
        ("uevent", event),
        ("unique_id", "946d7e1ef9b172dd"),
        ("mem_info_vram_total", "25753026560"),
        ("mem_info_vram_used", "1395863552"),
    ] {
        fs::write(device.join(file), text).unwrap();
    }
    let file = machine.path("card.json");
    let output = machine
        .command(&["measure", "calibrate", "--export", file.to_str().unwrap()])
        .env("PLIMSOLL_CARD_FILES", machine.path("files"))
        .output()
        .unwrap();
    let (status, stdout, stderr) = stated(&output);
    assert_eq!(status, Some(0), "{stderr}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(stdout.starts_with(&text), "{stdout}");
    for secret in [CARD, "946d7e1e", "0000:0b", machine.folder.path().to_str().unwrap()] {
        assert!(!text.contains(secret), "{text}");
    }
    let export: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&export["cards"][0]["name"], &export["contexts"][0]["card"]),
        (&json!("Fake 8G"), &json!("Fake 8G"))
    );
    let amd = &export["cards"][1];
    assert_eq!((&amd["pci"], &amd["vram"]["total"]), (&json!("1002:744c"), &json!(25_753_026_560_u64)));
    assert_eq!(amd["free"], json!(25_753_026_560_u64 - 1_395_863_552));
}

#[test]
fn a_damaged_table_is_not_written_over_and_plans_go_on_without_it() {
    let machine = Machine::new();
    let table = machine.path("plimsoll/contexts.toml");
    fs::create_dir(machine.path("plimsoll")).unwrap();
    fs::write(&table, "nonsense").unwrap();
    assert_eq!(machine.planned().0, 512 * MIB);
    let output = machine.calibrate(&machine.usual_engine(0), &[]);
    let (status, _, stderr) = stated(&output);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("contexts.toml: line 1: "), "{stderr}");
    assert_eq!(fs::read_to_string(&table).unwrap(), "nonsense");
}
