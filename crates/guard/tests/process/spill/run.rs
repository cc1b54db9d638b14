//! Runs the programs in `tests/programs/spill` under guard, and collects the results.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use plimsoll_wire::page::{CardSnapshot, OomSnapshot, PageSnapshot};
use tempfile::TempDir;

use crate::runner::artefact;

/// A MiB.
pub(super) const MIB: u64 = 1 << 20;

/// A program, and the world that it runs in.
#[derive(Debug)]
pub(super) struct Run {
    folder: TempDir,
    program: &'static str,
    fake: String,
    options: String,
    preloaded: bool,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Ran {
    /// Without the first line, which is the process's number.
    pub(super) lines: Vec<String>,
    pub(super) errors: String,
    pub(super) log: String,
    pub(super) code: Option<i32>,
    pub(super) page: Option<PageSnapshot>,
}

impl Run {
    /// `steps.c` on a card as `fake` describes it (contexts cost nothing), under guard with these options.
    pub(super) fn steps(fake: &str, options: &str) -> Self {
        Self::of("steps.c", fake, options)
    }

    /// All that it takes is built when this returns, so that whoever waits for the program does not wait for
    /// a compiler.
    pub(super) fn of(program: &'static str, fake: &str, options: &str) -> Self {
        let run = Self {
            folder: TempDir::new().expect("the temporary folder is writable"),
            program,
            fake: fake.to_owned(),
            options: options.to_owned(),
            preloaded: true,
        };
        run.command([]);
        run
    }

    /// The same program in the same folder, on a card with other settings.
    pub(super) fn on(mut self, fake: &str) -> Self {
        self.fake = fake.to_owned();
        self
    }

    /// Without guard.
    pub(super) fn bare(mut self) -> Self {
        self.preloaded = false;
        self
    }

    /// The folder of the pages.
    pub(super) fn pages(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub(super) fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let cuda = artefact::cuda();
        let library = cuda.join("libcuda.so.1");
        let source = format!("spill/{}", self.program);
        let program = compiled(&source, library.to_str().expect("the target folder is text"));
        let log = self.folder.path().join("log");
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("LD_LIBRARY_PATH", cuda)
            .env("PLIMSOLL_FAKE_CUDA", format!("context=0 {} log={}", self.fake, log.display()))
            .env("PLIMSOLL_GUARD", &self.options)
            .env("PLIMSOLL_GUARD_PAGES", self.folder.path());
        if self.preloaded {
            command.env("LD_PRELOAD", artefact::guard());
        }
        command
    }

    /// Runs it with these arguments, which are separated by spaces.
    pub(super) fn run(&self, arguments: &str) -> Ran {
        let output = self.command(arguments.split_whitespace()).output().expect("the program was just built");
        self.ran(&output)
    }

    pub(super) fn ran(&self, output: &Output) -> Ran {
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let pid = lines.first().and_then(|line| line.strip_prefix("pid ")).map(str::to_owned);
        let page = pid.as_ref().and_then(|pid| {
            let bytes = std::fs::read(self.folder.path().join(format!("{pid}.page"))).ok()?;
            Some(PageSnapshot::read(&bytes).expect("guard wrote a page of this version"))
        });
        if pid.is_some() {
            lines.remove(0);
        }
        Ran {
            lines,
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
            log: std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default(),
            code: output.status.code(),
            page,
        }
    }
}

/// A program, compiled by the first test that asks for it.
fn compiled(source: &str, library: &str) -> PathBuf {
    static COMPILED: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let program = compiled
        .entry(source.to_owned())
        .or_insert_with(|| artefact::program(source, &[library, "-pthread"]));
    program.clone()
}

impl Ran {
    /// What each act printed, without the act.
    pub(super) fn stated(&self) -> Vec<&str> {
        self.lines.iter().map(|line| line.split_once(' ').map_or("", |(_, stated)| stated)).collect()
    }

    pub(super) fn card(&self) -> CardSnapshot {
        *self.page.as_ref().expect("guard wrote a page").cards().first().expect("one card")
    }

    pub(super) fn ooms(&self) -> Vec<OomSnapshot> {
        self.page.as_ref().expect("guard wrote a page").ooms().copied().collect()
    }

    /// Rules of the driver that were broken.
    pub(super) fn violations(&self) -> Vec<&str> {
        self.log.lines().filter(|line| line.contains(" violation ")).collect()
    }

    /// Calls of a function that the driver saw.
    pub(super) fn calls(&self, function: &str) -> Vec<&str> {
        let call = format!(" call {function}(");
        self.log.lines().filter(|line| line.contains(&call)).collect()
    }
}
