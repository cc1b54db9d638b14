//! Tests of a real llama.cpp with its Vulkan backend, on a driver without a card: an engine sees its assigned
//! cards only.
//!
//! The backend is npm's `@node-llama-cpp/linux-x64-vulkan` (llama.cpp 0.5.0), loaded by the server that
//! `cuda` fetches.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use super::cuda;
use super::exact;
use super::fleet::chat;
use crate::built::built;
use crate::daemon::{Daemon, Setup};

const GIB: u64 = 1 << 30;
const UUIDS: [&str; 2] = ["GPU-aaaa", "GPU-bbbb"];

/// Two cards that the daemon knows, and between them one that it does not.
const CARDS: &str = "total=25769803776,cc=8.9,name=Fake A;total=8589934592,cc=8.9,vendor=4098,name=Fake C;\
                     total=25769803776,cc=8.9,name=Fake B";

/// An engine that writes down which devices it lists, in the environment that it was started in.
struct Bench {
    folder: TempDir,
    program: PathBuf,
    libraries: String,
}

impl Bench {
    fn new() -> Self {
        let engine = cuda::engine();
        let folder = tempfile::tempdir().unwrap();
        let libraries = libraries(folder.path());
        let program = recorder(folder.path(), &engine.program);
        let model = folder.path().join("tiny.gguf");
        plimsoll_specimens::write("tiny", &model, &plimsoll_specimens::Changes::default()).unwrap();
        Self { folder, program, libraries }
    }

    fn variables(&self) -> [(&str, String); 3] {
        [
            ("GGML_BACKEND_PATH", cuda::vulkan_backend().to_string_lossy().into_owned()),
            ("LD_LIBRARY_PATH", self.libraries.clone()),
            ("PLIMSOLL_PHANTOM_CARDS", CARDS.to_owned()),
        ]
    }

    /// A daemon that knows two cards, with a model of these flags.
    fn on_cards(&self, lines: &str) -> Daemon {
        let card = |n: usize, name: &str| {
            json!({"uuid": UUIDS[n], "name": name, "total": 24 * GIB, "free": 24 * GIB,
                   "cc": [8, 9], "pci": format!("00000000:0{n}:00.0")})
        };
        self.set_up(Setup::with_cards(&[]), lines)
            .variable("PLIMSOLL_NVML", &built("libnvidia_ml.so", "fake-nvml").to_string_lossy())
            .variable("PLIMSOLL_FAKE_NVML_CARDS", &json!([card(0, "Fake A"), card(1, "Fake B")]).to_string())
            .start()
    }

    fn set_up(&self, setup: Setup, lines: &str) -> Setup {
        let setup = setup.named("models.ini").config(&format!(
            ";plimsoll: engine = {}\n;plimsoll: pass-env = PLIMSOLL_PHANTOM_CARDS\n[m]\nmodel = {}\nctx-size = 256\nthreads = 1\n{lines}\n",
            self.program.display(),
            self.folder.path().join("tiny.gguf").display(),
        ));
        self.variables().iter().fold(setup, |setup, (name, value)| setup.variable(name, value))
    }

    /// The variables that hide cards from the other runtimes, as the engine was given them.
    fn hides(&self) -> [bool; 3] {
        let given = fs::read_to_string(self.folder.path().join("seen.env")).unwrap();
        ["ROCR_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=-1", "ONEAPI_DEVICE_SELECTOR=*:cpu"]
            .map(|variable| given.lines().any(|line| line == variable))
    }

    /// The devices that the engine listed when the daemon started it.
    fn seen(&self, daemon: &Daemon) -> Vec<String> {
        let answer = chat(daemon.address, "m");
        let stated = fs::read_to_string(self.folder.path().join("seen"));
        devices(&stated.unwrap_or_else(|_| panic!("{}", answer.text())))
    }
}

#[test]
fn a_plan_is_the_answer_of_the_engines_own_vulkan_backend() {
    let bench = exact::Bench::new();
    let flags = ["-c", "8192", "-fa", "on"];
    for card in ["name=Radeon X,total=24GiB", "name=A,total=24GiB,cc=8.9"] {
        let engine = &cuda::engine().program;
        let requested = bench.ask_with(&cuda::vulkan_backend(), &["--card", card], engine, &flags);
        assert_eq!(requested.status.code(), Some(0), "{}", exact::text(&requested.stderr));
        let plan = exact::json(&requested);
        let terms = &plan["cards"][0]["terms"];
        let reasons = plan["reasons"].to_string();
        assert!(reasons.contains("llama-server with its backend for Vulkan"), "{reasons}");
        assert_eq!(terms["kv"].as_u64(), Some(1024 << 20));
        // As Mesa's software driver was asked for (`data/vulkan`): 108.01 MiB.
        assert_eq!(terms["compute"].as_u64().map(|bytes| bytes >> 20), Some(108), "{card} {terms}");
        assert!(!reasons.contains("engine_asked_more"), "{reasons}");
    }
}

/// The loader's folders: the stand-in under Vulkan's name, and the server's own ggml.
pub(crate) fn libraries(folder: &Path) -> String {
    let phantom = built("libplimsoll_phantom.so", "plimsoll-phantom");
    let name = folder.join("libvulkan.so.1");
    if !name.exists() {
        symlink(phantom, name).unwrap();
    }
    format!("{}:{}", folder.display(), cuda::engine().libraries.display())
}

/// A llama-server in this folder that runs another and writes to `seen` which devices that one lists.
pub(crate) fn recorder(folder: &Path, engine: &Path) -> PathBuf {
    let program = folder.join("llama-server");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *--model*) env > '{1}.env'; '{0}' --list-devices > '{1}' 2>&1;; esac\n\
         exec '{0}' \"$@\"\n",
        engine.display(),
        folder.join("seen").display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    program
}

pub(crate) fn devices(listed: &str) -> Vec<String> {
    let devices = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(" ("));
    devices.map(|(device, _)| device.to_owned()).filter(|device| device.contains(": ")).collect()
}

#[test]
fn an_engine_on_vulkan_sees_no_card_that_it_was_not_given() {
    let bench = Bench::new();
    let alone = Command::new(&bench.program).arg("--list-devices").envs(bench.variables()).output().unwrap();
    let all = devices(&String::from_utf8_lossy(&alone.stdout));
    assert_eq!(all, ["Vulkan0: Fake A", "Vulkan1: Fake C", "Vulkan2: Fake B"], "{alone:?}");
    for (lines, given) in [
        ("split-mode = none\nmain-gpu = 1", &["Vulkan0: Fake B"][..]),
        ("tensor-split = 1,1", &["Vulkan0: Fake A", "Vulkan1: Fake B"]),
    ] {
        let daemon = bench.on_cards(lines);
        assert_eq!(bench.seen(&daemon), given, "{lines}\n{}", daemon.talk());
        assert_eq!(bench.hides(), [true; 3]);
    }
    let host = Setup::with_cards(&["name=host,kind=host,total=8GiB"]).variable("PLIMSOLL_NVML", "");
    let daemon = bench.set_up(host, "").start();
    assert_eq!(bench.seen(&daemon), [""; 0], "{}", daemon.talk());
    assert_eq!(bench.hides(), [true; 3]);
}
