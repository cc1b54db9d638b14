//! Fake card of 8 GiB that all processes of a test share: the fake driver counts its memory, the fake NVML
//! shows it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::engine::built;

const GIB: u64 = 1 << 30;
/// Runs a program of Python's by a clock that is twenty times as fast, so that what works for ten seconds is done in half of one.
const HASTY: &str = "#!/bin/sh\nexec PYTHON -c 'import sys, time; clock = time.time; time.time = lambda: 20 * clock(); exec(sys.argv[1])' \"$2\"\n";

pub(crate) struct Card {
    folder: TempDir,
    sensors: Value,
}

impl Card {
    pub(crate) fn new() -> Self {
        Self::that_feels(json!({}))
    }

    pub(crate) fn that_feels(sensors: Value) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let driver = built("libplimsoll_fake_cuda.so", "fake-cuda");
        for name in ["libcuda.so.1", "libcuda.so"] {
            symlink(&driver, folder.path().join(name)).expect("the folder is ours");
        }
        let python = folder.path().join("python3");
        fs::write(&python, HASTY.replace("PYTHON", &real_python().display().to_string()))
            .expect("the folder is ours");
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("it is ours");
        Self { folder, sensors }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The variables of every process that has this card.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let (usage, folder) = (self.path("usage"), self.folder.path().display());
        let uuid = "GPU-00000008-0000-0000-0000-000000000000";
        let shown = json!([{ "uuid": uuid, "name": "Fake 8G", "total": 8 * GIB, "free": 8 * GIB, "pci": "00000000:01:00.0",
            "usage": usage, "sensors": self.sensors }]);
        let doubles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/gpu/doubles");
        let path = |path: PathBuf| path.display().to_string();
        vec![
            ("LD_LIBRARY_PATH", folder.to_string()),
            ("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap_or_default())),
            ("PYTHONPATH", path(doubles)),
            ("PLIMSOLL_FAKE_CUDA", format!("total=8G context=256M shared={} uuids={uuid}", usage.display())),
            ("PLIMSOLL_NVML", path(built("libnvidia_ml.so", "fake-nvml"))),
            ("PLIMSOLL_FAKE_NVML_CARDS", shown.to_string()),
            ("PLIMSOLL_GUARD_LIBRARY", path(built("libplimsoll_guard.so", "plimsoll-guard"))),
        ]
    }
}

fn real_python() -> PathBuf {
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search)
        .map(|folder| folder.join("python3"))
        .find(|path| path.is_file())
        .expect("python3 is on PATH")
}

/// A `plimsoll serve` of one model. Dropping it kills it.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) url: String,
}

impl Daemon {
    /// The model takes 4 GiB of the card.
    pub(crate) fn start(card: &Card) -> Self {
        Self::of(card, "4352MiB", &format!("vram={}", 4 * GIB))
    }

    /// The model is said to need so much, and its engine takes memory as the script says.
    pub(crate) fn of(card: &Card, memory: &str, script: &str) -> Self {
        let engine = built("fake-engine", "fake-engine");
        let config = card.path("plimsoll.toml");
        let text = format!(
            "[serve]\nwait = \"2s\"\n[models.tiny]\ncmd = \"{} --port ${{PORT}} --alias tiny\"\nmemory = \"{memory}\"\n\
             env = {{ PLIMSOLL_FAKE_ENGINE = \"cuda=1 events=2 delay_ms=2 {script}\" }}\n",
            engine.display()
        );
        fs::write(&config, text).expect("the folder is ours");
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .arg("serve")
            .arg(&config)
            .args(["--listen", "127.0.0.1:0", "--reserve", "0"])
            .envs(card.variables())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("plimsoll starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is a pipe"))
            .read_line(&mut line)
            .expect("stdout is text");
        let url = line.trim().to_owned();
        assert!(url.starts_with("http://"), "no address on stdout: {line:?}");
        Self { child, url }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
