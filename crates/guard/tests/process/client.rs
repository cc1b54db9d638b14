//! Runs the test program `programs/client.c` under guard, with a chosen way of finding the driver, and
//! collects its output.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock};

use plimsoll_wire::page::PageSnapshot;
use plimsoll_wire::trace::{TraceHeader, TraceRecord};
use plimsoll_wire::tree::{FILE, TreeCardSnapshot, TreeSnapshot, budget_word, key};
use tempfile::TempDir;

use crate::runner::artefact;

/// How a program comes by the driver's functions.
pub(crate) const DOORS: [&str; 6] = ["link", "dlsym", "global", "runtime", "runtime11", "thread"];

pub(crate) struct Client {
    folder: TempDir,
    command: Command,
    driver: String,
    preload: Vec<PathBuf>,
}

pub(crate) struct Run {
    /// What the program said, a line for each word.
    pub(crate) lines: Vec<String>,
    pub(crate) stated: String,
    pub(crate) status: ExitStatus,
    folder: TempDir,
}

/// The program, built for this door.
pub(crate) fn program(door: &str) -> PathBuf {
    static BUILT: OnceLock<Mutex<HashMap<bool, PathBuf>>> = OnceLock::new();
    let linked = door == "link";
    let mut built = BUILT.get_or_init(Mutex::default).lock().unwrap();
    let program = built.entry(linked).or_insert_with(|| {
        let folder = format!("-L{}", artefact::cuda().display());
        let flags: &[&str] =
            if linked { &["-pthread", "-DLINK", &folder, "-l:libcuda.so.1"] } else { &["-pthread", "-ldl"] };
        artefact::program("client.c", flags)
    });
    program.clone()
}

impl Client {
    /// A program without guard.
    pub(crate) fn bare(door: &str) -> Self {
        Self::of(&program(door), door)
    }

    /// A program under guard, with these options.
    pub(crate) fn new(door: &str, options: &str) -> Self {
        Self::bare(door).guarded(options)
    }

    /// Any program that takes the door as its first argument.
    pub(crate) fn of(program: &Path, door: &str) -> Self {
        let mut command = Command::new(program);
        command.arg(door).env_clear().env("LD_LIBRARY_PATH", artefact::cuda()).stdin(Stdio::null());
        Self {
            folder: TempDir::new().unwrap(),
            command,
            driver: "cards=1 total=1G".to_owned(),
            preload: Vec::new(),
        }
    }

    pub(crate) fn guarded(mut self, options: &str) -> Self {
        self.preload.push(artefact::guard().to_owned());
        self.command.env("PLIMSOLL_GUARD", options);
        self.command.env("PLIMSOLL_GUARD_PAGES", self.folder.path());
        self.command.env("PLIMSOLL_GUARD_TRACE", self.folder.path().join("trace"));
        self
    }

    /// The driver's settings (see fake-cuda).
    pub(crate) fn driver(mut self, settings: &str) -> Self {
        settings.clone_into(&mut self.driver);
        self
    }

    pub(crate) fn preload(mut self, library: PathBuf) -> Self {
        self.preload.push(library);
        self
    }

    pub(crate) fn env(mut self, key: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Where the program's page, trace and log come to lie.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The command, with the words that the program is to carry out.
    pub(crate) fn command(&mut self, words: &[&str]) -> &mut Command {
        let log = self.folder.path().join("log");
        let settings = format!("{} log={}", self.driver, log.display());
        self.command.args(words).env("PLIMSOLL_FAKE_CUDA", settings);
        if !self.preload.is_empty() {
            let list: Vec<_> = self.preload.iter().map(|path| path.display().to_string()).collect();
            self.command.env("LD_PRELOAD", list.join(":"));
        }
        &mut self.command
    }

    pub(crate) fn run(mut self, words: &[&str]) -> Run {
        let output = self.command(words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Run {
            lines: text(&output.stdout).lines().map(str::to_owned).collect(),
            stated: text(&output.stderr),
            status: output.status,
            folder: self.folder,
        }
    }
}

impl Run {
    /// The page that a guarded program has left; there is one.
    pub(crate) fn page(&self) -> PageSnapshot {
        self.pages().into_iter().next().expect("a page was left")
    }

    /// What its ledger says of the first card.
    pub(crate) fn tree(&self) -> TreeCardSnapshot {
        tree(self.folder.path())
    }

    pub(crate) fn page_count(&self) -> usize {
        self.pages().len()
    }

    pub(crate) fn pages(&self) -> Vec<PageSnapshot> {
        pages(self.folder.path())
    }

    /// The records of the trace, all processes together.
    pub(crate) fn trace(&self) -> Vec<TraceRecord> {
        let mut records = Vec::new();
        for path in files(self.folder.path(), |name| name.starts_with("trace.")) {
            let bytes = std::fs::read(path).unwrap();
            let (head, rest) = bytes.split_at(TraceHeader::SIZE);
            assert_eq!(TraceHeader::from_bytes(head.try_into().unwrap()).magic, plimsoll_wire::trace::MAGIC);
            records.extend(
                rest.chunks_exact(TraceRecord::SIZE)
                    .map(|record| TraceRecord::from_bytes(record.try_into().unwrap())),
            );
        }
        records
    }

    /// What the driver was asked, without who asked it.
    pub(crate) fn calls(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().filter_map(|line| line.split_once(' ')).map(|(_, call)| call.to_owned()).collect()
    }
}

pub(crate) fn pages(folder: &Path) -> Vec<PageSnapshot> {
    files(folder, |name| name.ends_with(".page") && !name.starts_with('.'))
        .into_iter()
        .map(|path| PageSnapshot::read(&std::fs::read(path).unwrap()).unwrap())
        .collect()
}

/// What the ledger of a folder says of the first card, on which a process of it has been.
pub(crate) fn tree(folder: &Path) -> TreeCardSnapshot {
    ledger(folder).card(first_card(folder)).expect("a process has seen it")
}

/// Sets the budget of the first card for all processes of a folder.
pub(crate) fn set_budget(folder: &Path, budget: u64) {
    let at = ledger(folder).budget_offset(first_card(folder)).unwrap();
    let file = std::fs::File::options().write(true).open(folder.join(FILE)).unwrap();
    let word = budget_word(budget).to_ne_bytes();
    std::os::unix::fs::FileExt::write_all_at(&file, &word, u64::try_from(at).unwrap()).unwrap();
}

fn ledger(folder: &Path) -> TreeSnapshot {
    TreeSnapshot::read(&std::fs::read(folder.join(FILE)).unwrap()).unwrap()
}

fn first_card(folder: &Path) -> u64 {
    let page = pages(folder).into_iter().next().expect("a page was left");
    key(page.cards()[0].uuid, 0)
}

fn files(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| wanted(&path.file_name().unwrap().to_string_lossy()))
        .collect()
}
