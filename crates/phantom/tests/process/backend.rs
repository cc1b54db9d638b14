//! Runs a test program that sends phantom (the stand-in for CUDA) the queries of ggml's CUDA backend, and
//! returns the answers.

use std::os::unix::fs::symlink;
use std::process::{Command, ExitStatus};

use serde_json::Value;

use crate::runner::artefact;

pub(crate) const H200: &str = "total=150754820096,free=150000000000,cc=9.0,sms=132,name=NVIDIA H200";

/// What a run left.
pub(crate) struct Stated {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) report: Vec<Value>,
}

/// Runs an act of the program, which was linked with `libcudart.so.VERSION`.
pub(crate) fn run(version: &str, cards: Option<&str>, act: &str) -> Stated {
    let folder = tempfile::tempdir().unwrap();
    let library = artefact::phantom();
    let runtime = format!("libcudart.so.{version}");
    for name in [runtime.as_str(), "libcuda.so.1"] {
        symlink(library, folder.path().join(name)).unwrap();
    }
    let mut command = Command::new(artefact::backend(version));
    command
        .args([&runtime, act, version.split('.').next().unwrap()])
        .env("LD_PRELOAD", library)
        .env("LD_LIBRARY_PATH", folder.path());
    stated(command, cards)
}

/// Runs a command over these cards.
pub(crate) fn stated(mut command: Command, cards: Option<&str>) -> Stated {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    command.env_remove("PLIMSOLL_PHANTOM_CARDS").env("PLIMSOLL_PHANTOM_REPORT", &report);
    if let Some(cards) = cards {
        command.env("PLIMSOLL_PHANTOM_CARDS", cards);
    }
    let output = command.output().unwrap();
    let lines = std::fs::read_to_string(report).unwrap_or_default();
    Stated {
        status: output.status,
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        report: lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
    }
}

impl Stated {
    pub(crate) fn events(&self, kind: &str) -> Vec<&Value> {
        self.report.iter().filter(|event| event["event"] == kind).collect()
    }
}
