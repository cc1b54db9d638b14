//! The host as a process, and what it said.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::Value;

use crate::artefact;

pub(crate) const H200: &str = "total=150754820096,free=150000000000,cc=9.0,sms=132,name=NVIDIA H200";

pub(crate) struct Host {
    slots: u32,
    version: u32,
    shows: bool,
    cards: Option<String>,
    build: Option<&'static str>,
}

/// What a run left.
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) report: Vec<Value>,
    pub(crate) trace: String,
}

impl Host {
    /// A host whose interface and loader are of one version.
    pub(crate) fn new(version: u32) -> Self {
        Self {
            slots: version,
            version,
            shows: true,
            cards: Some(H200.to_owned()),
            build: None,
        }
    }

    pub(crate) fn accepting(self, version: u32) -> Self {
        Self { version, ..self }
    }

    pub(crate) fn hiding(self) -> Self {
        Self { shows: false, ..self }
    }

    pub(crate) fn with_cards(self, cards: Option<&str>) -> Self {
        Self {
            cards: cards.map(str::to_owned),
            ..self
        }
    }

    pub(crate) fn of_build(self, build: &'static str) -> Self {
        Self {
            build: Some(build),
            ..self
        }
    }

    /// Loads the plugin and goes through everything; the host must end by itself and well.
    pub(crate) fn run(self) -> Said {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let folder = tempfile::tempdir().unwrap();
        let number = RUNS.fetch_add(1, Relaxed);
        let path = |name: &str| folder.path().join(format!("{number}-{name}"));
        let program = artefact::host(self.slots, self.version, self.shows);
        let mut command = Command::new(program);
        command
            .arg(artefact::phantom())
            .env_remove("PLIMSOLL_PHANTOM_CARDS")
            .env_remove("GGML_OP_OFFLOAD_MIN_BATCH")
            .env("PLIMSOLL_PHANTOM_REPORT", path("report"))
            .env("PLIMSOLL_PHANTOM_TRACE", path("trace"));
        if let Some(cards) = &self.cards {
            command.env("PLIMSOLL_PHANTOM_CARDS", cards);
        }
        if let Some(build) = self.build {
            command.env("PLIMSOLL_PHANTOM_BUILD", build);
        }
        let output = command.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{:?}: {err}", output.status);
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        Said {
            out: String::from_utf8(output.stdout).unwrap(),
            err,
            report: read(path("report"))
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
            trace: read(path("trace")),
        }
    }
}

impl Said {
    pub(crate) fn events(&self, kind: &str) -> Vec<&Value> {
        let of_kind = |event: &&Value| event["event"] == kind;
        self.report.iter().filter(of_kind).collect()
    }
}
