//! Tests of a program on AMD's HIP runtime, with fake-hip as `libamdhip64.so.6` or `.so.7`.

use std::path::PathBuf;

use crate::runner::artefact;
use crate::runner::client::{Client, Run};

mod budget;
mod double;
mod spill;

/// A program and the runtime that it meets.
pub(super) struct Hip {
    door: &'static str,
    version: &'static str,
    card: String,
}

impl Hip {
    /// A program that opens the runtime of ROCm 6 for itself.
    pub(super) fn new(card: &str) -> Self {
        Self { door: "dlsym", version: "6", card: card.to_owned() }
    }

    /// The program under guard, with these options.
    fn guarded(&self, options: &str, words: &[&str]) -> Run {
        self.run(self.client().guarded(options), words)
    }

    /// The program without guard.
    fn bare(&self, words: &[&str]) -> Run {
        self.run(self.client(), words)
    }

    pub(super) fn client(&self) -> Client {
        let client = Client::of(&self.program(), self.door);
        let log = client.folder().join("log").display().to_string();
        client
            .env("LD_LIBRARY_PATH", artefact::hip(self.version))
            .env("PLIMSOLL_FAKE_HIP", format!("{} log={log}", self.card))
    }

    fn run(&self, client: Client, words: &[&str]) -> Run {
        let library = self.library();
        let library = library.to_string_lossy();
        client.run(&[&[&*library], words].concat())
    }

    pub(super) fn library(&self) -> PathBuf {
        PathBuf::from(format!("libamdhip64.so.{}", self.version))
    }

    fn program(&self) -> PathBuf {
        if self.door != "link" {
            return artefact::program("hip.c", &["-ldl"]);
        }
        let folder = artefact::hip(self.version);
        let library = format!("-l:{}", self.library().display());
        artefact::program("hip.c", &["-DLINK", &format!("-L{}", folder.display()), &library])
    }
}

/// How a program comes by the runtime's functions.
const DOORS: [&str; 4] = ["link", "dlsym", "global", "proc"];

/// The figures of the last event of the log: device, managed and pinned bytes.
fn occupied(run: &Run) -> [u64; 3] {
    let calls = run.calls();
    let last = calls.iter().rev().find(|line| line.contains(" device ")).unwrap();
    let words: Vec<&str> = last.split(' ').collect();
    ["device", "managed", "host"].map(|name| {
        let at = words.iter().position(|word| *word == name).unwrap();
        words[at + 1].parse().unwrap()
    })
}
