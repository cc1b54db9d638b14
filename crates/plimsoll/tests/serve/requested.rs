//! Tests of memory queries to engines (runs without a card): answers, failures, and cached answers.
//!
//! The engine is a script. For a memory query it logs what llama-server would log; started to serve, it
//! becomes the fake engine. Each of its runs on phantom's simulated card adds a line to a file.

use std::env;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::built::built;
use crate::daemon::{Daemon, Setup, alive, descendants, fake_engine, until};
use crate::http::{chat, post};

const MIB: u64 = 1 << 20;
const CARD: &str = "name=A,total=80GiB,cc=8.9";
const FLAGS: &str = "-c 8192 -fa on";
const REPORTED: &str = "as the engine reports";
const FORMULA: &str = "is planned by formulas";

/// A model, an engine, and a folder for kept answers.
struct AskBench {
    folder: TempDir,
}

impl AskBench {
    /// `answer` is what the engine does when it is asked about a model, in Python.
    fn new(answer: &str) -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        let model = bench.path("l8.gguf");
        plimsoll_specimens::write("l8", &model, &plimsoll_specimens::Changes::default()).unwrap();
        bench.engine(&python(), answer);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the engine, which replaces an earlier one.
    fn engine(&self, interpreter: &str, answer: &str) {
        let script = format!(
            r#"{interpreter}
import os, sys, time
if "--version" in sys.argv:
    print("version: 11063 (abc)")
elif "--help" in sys.argv:
    print("usage")
elif "PLIMSOLL_PHANTOM_CARDS" in os.environ:
    with open("{runs}", "a") as runs:
        runs.write("%d\n" % os.getpid())
    if "--list-devices" in sys.argv:
        print("  CUDA0: A card (1 MiB, 1 MiB free)")
        sys.exit()
    def sizes(compute):
        print("load_tensors:        CUDA0 model buffer size =  4650.99 MiB")
        print("llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB")
        print("sched_reserve:       CUDA0 compute buffer size =   %d.00 MiB" % compute)
        print("srv    load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'", flush=True)
        time.sleep(100)
{answer}
else:
    os.execv("{fake}", ["llama-server"] + sys.argv[1:])
"#,
            runs = self.path("runs").display(),
            fake = fake_engine().display(),
            answer = answer.lines().map(|line| format!("    {line}\n")).collect::<String>(),
        );
        let program = self.path("llama-server");
        // A new file, as an upgrade makes it.
        let _ = fs::remove_file(&program);
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    }

    fn config(&self) -> String {
        format!("[models.m]\nmodel = \"{}\"\nflags = \"{FLAGS}\"\n", self.path("l8.gguf").display())
    }

    fn setup(&self) -> Setup {
        Setup::with_cards(&[CARD])
            .config(&self.config())
            .argument("--engine")
            .argument(&self.path("llama-server").display().to_string())
            .argument("--guard=off")
            .variable("PLIMSOLL_PHANTOM_LIBRARY", &phantom().display().to_string())
            .variable("PLIMSOLL_NVML", "")
            .variable("XDG_CACHE_HOME", &self.folder.path().display().to_string())
    }

    /// Starts a daemon, and returns it once the engine's own figures are in use.
    fn reported(&self) -> Daemon {
        let daemon = self.setup().start();
        daemon.reported(REPORTED);
        daemon
    }

    /// `serve --check`.
    fn check(&self) -> Output {
        let config = self.path("plimsoll.toml");
        fs::write(&config, self.config()).unwrap();
        Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["serve", "--check", "--card", CARD, "--engine"])
            .args([self.path("llama-server"), config])
            .env("PLIMSOLL_PHANTOM_LIBRARY", phantom())
            .env("PLIMSOLL_NVML", "")
            .env("XDG_CACHE_HOME", self.folder.path())
            .output()
            .unwrap()
    }

    /// `plan`, with this engine on PATH.
    fn plan(&self) -> Output {
        Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["plan", "--json", "--card", CARD, "--model"])
            .arg(self.path("l8.gguf"))
            .args(FLAGS.split(' '))
            .env("PATH", format!("{}:{}", self.folder.path().display(), env::var("PATH").unwrap()))
            .env("PLIMSOLL_PHANTOM_LIBRARY", phantom())
            .env("PLIMSOLL_NVML", "")
            .env("XDG_CACHE_HOME", self.folder.path())
            .output()
            .unwrap()
    }

    /// Process ids of the runs in which the engine was asked.
    fn runs(&self) -> Vec<u32> {
        let runs = fs::read_to_string(self.path("runs")).unwrap_or_default();
        runs.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn kept(&self) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.path("plimsoll/exact"));
        folder.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }
}

/// The first line of a script for the interpreter itself, which starts faster than what may stand before it
/// on PATH.
fn python() -> String {
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    format!("#!{} -IS", String::from_utf8(found.stdout).unwrap().trim())
}

fn phantom() -> PathBuf {
    built("libplimsoll_phantom.so", "plimsoll-phantom")
}

/// Loads the model, and returns what it claims.
fn loaded(daemon: &Daemon) -> u64 {
    let answer = chat(daemon.address, "m");
    assert_eq!(answer.status, 200, "{}", answer.text());
    daemon.claimed()
}

#[test]
fn the_engines_figures_replace_the_plan_and_are_kept_until_the_engine_changes() {
    let bench = AskBench::new("sizes(100)");
    let claim = loaded(&bench.reported());
    assert_eq!(bench.runs().len(), 2, "a list of devices and the model");

    let again = bench.reported();
    assert_eq!((loaded(&again), bench.runs().len()), (claim, 2), "the answer was kept");
    drop(again);

    bench.engine(&python(), "sizes(300)");
    let replaced = bench.reported();
    assert_eq!((loaded(&replaced), bench.runs().len()), (claim + 200 * MIB, 4));
    // The engine changes while the daemon runs, and the next load asks it.
    bench.engine(&python(), "sizes(400)");
    let unload = post(replaced.address, "/api/models/unload", &json!({}));
    assert_eq!(unload.status, 200, "{}", unload.text());
    until("the engine is gone", || replaced.claimed() == 0);
    loaded(&replaced);
    until("the new engine is asked", || bench.runs().len() == 6);
}

#[test]
fn a_plan_waits_five_seconds_for_an_installed_engine_and_then_is_by_the_formulas() {
    let bench = AskBench::new("time.sleep(100)");
    let planned = bench.plan();
    assert_eq!(planned.status.code(), Some(0), "{}", String::from_utf8_lossy(&planned.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    let warnings = plan["warnings"].to_string();
    assert!(warnings.contains("did not answer within 5 s"), "{warnings}");
    assert!(!plan.to_string().contains("engine_said"));
    let runs = bench.runs();
    // The list of devices, and those that began side by side.
    let most = 1 + std::thread::available_parallelism().unwrap().get();
    assert!(runs.len() <= most, "no run begins after one without an answer: {runs:?}");
    until("its processes are gone", || !runs.iter().any(|pid| alive(*pid)));
}

#[test]
fn an_engine_that_fails_when_it_is_asked_stops_no_model_and_is_asked_once() {
    let babble = "while True: print('y' * 100)";
    let hoard = "hoard = []\nwhile True: hoard.append(b'x' * (64 << 20))";
    let leak = "import threading\nwhile True:\n    open(os.environ['PLIMSOLL_PHANTOM_REPORT'], 'a').write('x' * (64 << 20))";
    let hostile = "print('load_tensors: CUDA0 model buffer size = 1e999 MiB')\nprint('load_tensors: CUDA' + '9' * 400 + \
                   ' model buffer size = 4.00 MiB')\nsys.stdout.buffer.write(bytes(range(256)) * 64)\n\
                   print('srv load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = x')";
    for answer in ["sys.exit(3)", "os.kill(os.getpid(), 9)", babble, hoard, leak, hostile] {
        let bench = AskBench::new(answer);
        let daemon = bench.setup().start();
        daemon.reported(FORMULA);
        assert!(loaded(&daemon) > 5000 * MIB, "{answer}");
        let unload = post(daemon.address, "/api/models/unload", &json!({}));
        assert_eq!(unload.status, 200, "{}", unload.text());
        until("the engine is gone", || daemon.claimed() == 0);
        loaded(&daemon);
        assert_eq!(bench.runs().len(), 2, "{answer}");
        assert!(bench.kept().is_empty(), "{answer}");
    }
}

#[test]
fn an_engine_that_hangs_delays_nothing_and_ends_with_the_daemon() {
    let bench = AskBench::new("time.sleep(1000)");
    let mut daemon = bench.setup().start();
    until("the engine is asked", || bench.runs().len() == 2);
    let requested = bench.runs()[1];
    loaded(&daemon);
    assert!(alive(requested) && descendants(daemon.pid()).contains(&requested), "it is still being asked");
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));
    until("the engine that was asked is gone", || !alive(requested));
    let copies = format!("plimsoll-exact-{}-", daemon.pid());
    let left = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let left: Vec<_> =
        left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&copies)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// What the engine started lies in a session of its own and holds the engine's output.
#[test]
fn children_of_a_queried_engine_end_with_it_and_delay_nothing() {
    let starts = |environment: &str, then: &str| {
        format!(
            "import subprocess\nstarted = subprocess.Popen([\"sleep\", \"987\"], start_new_session=True{environment})\n\
             open(os.path.dirname(sys.argv[0]) + \"/started\", \"w\").write(str(started.pid))\n{then}"
        )
    };
    // Of an engine that lives the process tree tells; of one that has ended, the mark in the environment.
    for answer in [starts(", env={}", "sizes(100)"), starts("", "sys.exit(3)")] {
        let bench = AskBench::new(&answer);
        let began = Instant::now();
        bench.check();
        assert!(began.elapsed() < Duration::from_secs(50), "it waits for the limit of two minutes");
        let started = fs::read_to_string(bench.path("started")).unwrap().parse().unwrap();
        until("what the engine started is gone", || !alive(started));
    }
}

#[test]
fn an_asked_engine_loads_nothing_from_the_folder_of_its_caller() {
    let bench = AskBench::new(
        "open(os.path.dirname(sys.argv[0]) + \"/folder\", \"a\").write(os.getcwd())\nsizes(100)",
    );
    assert!(bench.check().status.success());
    let folder = fs::read_to_string(bench.path("folder")).unwrap();
    assert!(folder.contains("plimsoll-exact-") && !folder.contains("crates"), "{folder}");
}

#[test]
fn an_engine_that_is_being_asked_dies_with_a_killed_daemon() {
    let bench = AskBench::new("time.sleep(1000)");
    let daemon = bench.setup().start();
    until("the engine is asked", || bench.runs().len() == 2);
    daemon.signal("KILL");
    until("the engine that was asked is gone", || !alive(bench.runs()[1]));
}

#[test]
fn kept_answers_that_are_damaged_or_that_others_may_write_are_asked_again() {
    let bench = AskBench::new("sizes(100)");
    let claim = loaded(&bench.reported());
    let entry = bench.kept().into_iter().find(|path| fs::read_to_string(path).unwrap().contains("KV buffer"));
    let (entry, mode) = (entry.unwrap(), |mode| Permissions::from_mode(mode));
    let whole = fs::read_to_string(&entry).unwrap();
    let smaller = whole.replace("4650.99", "1.00");
    let open = |text: &str| {
        fs::write(&entry, text).unwrap();
        fs::set_permissions(&entry, mode(0o666)).unwrap();
    };
    let elsewhere = || {
        fs::rename(&entry, bench.path("elsewhere")).unwrap();
        std::os::unix::fs::symlink(bench.path("elsewhere"), &entry).unwrap();
    };
    let pipe = || {
        fs::remove_file(&entry).unwrap();
        assert!(Command::new("mkfifo").arg(&entry).status().unwrap().success());
    };
    let cut = || fs::write(&entry, &whole[..whole.len() / 2]).unwrap();
    let big = || OpenOptions::new().append(true).open(&entry).unwrap().write_all(&[b' '; 5 << 20]).unwrap();
    let damages: [&dyn Fn(); 5] = [&|| open(&smaller), &elsewhere, &pipe, &cut, &big];
    for (number, damage) in damages.into_iter().enumerate() {
        damage();
        let daemon = bench.reported();
        assert_eq!((loaded(&daemon), bench.runs().len()), (claim, 3 + number), "damage {number}");
        assert_eq!(fs::read_to_string(&entry).unwrap(), whole);
        assert_eq!(fs::symlink_metadata(&entry).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_full_disk_leaves_the_formulas() {
    let bench = AskBench::new("sizes(100)");
    // The copy of the header is larger than any file may be.
    let daemon = bench.setup().after("trap '' XFSZ; ulimit -f 1100").start();
    daemon.reported(FORMULA);
    assert!(daemon.talk().contains("cannot copy the header"), "{}", daemon.talk());
    loaded(&daemon);
    assert!(bench.kept().is_empty());
}

#[test]
fn two_daemons_at_once_keep_one_set_of_answers() {
    let bench = AskBench::new("sizes(100)");
    let (one, other) = (bench.setup().start(), bench.setup().start());
    one.reported(REPORTED);
    other.reported(REPORTED);
    assert_eq!(loaded(&one), loaded(&other));
    let requested = bench.runs().len();
    assert!((2..=4).contains(&requested), "{requested}");
    assert_eq!(bench.kept().len(), 2, "a list of devices and the model");
    loaded(&bench.reported());
    assert_eq!(bench.runs().len(), requested);
}

#[test]
fn check_waits_for_the_engine_and_does_without_one_that_fails() {
    let stated = |output: Output| String::from_utf8(output.stdout).unwrap();
    let bench = AskBench::new("time.sleep(0.2)\nsizes(100)");
    let check = stated(bench.check());
    assert!(check.contains(REPORTED), "{check}");
    let bench = AskBench::new("sys.exit(1)");
    let check = bench.check();
    assert_eq!(check.status.code(), Some(0));
    assert!(stated(check).contains(" planned"));
}

#[test]
fn an_engine_that_cannot_be_asked_is_named_at_debug_level_and_never_run() {
    let bench = AskBench::new("sizes(100)");
    // A line that both Python and a shell read.
    bench.engine("#!/bin/sh\nexec python3 - \"$@\" <<'END'", "sizes(100)");
    let daemon = bench.setup().variable("RUST_LOG", "info,plimsoll_runtime=debug").start();
    daemon.reported("it is a shell script");
    daemon.reported(" planned");
    assert!(bench.runs().is_empty());
    let none = AskBench::new("print('error: invalid device: CUDA0')\nsys.exit(1)");
    let daemon = none.setup().variable("RUST_LOG", "info,plimsoll_runtime=debug").start();
    daemon.reported("cannot report the memory of its models");
    assert!(!daemon.talk().contains(FORMULA), "{}", daemon.talk());
    let requested = Instant::now();
    loaded(&daemon);
    assert!(requested.elapsed() < Duration::from_secs(60) && none.runs().len() == 2);
}
