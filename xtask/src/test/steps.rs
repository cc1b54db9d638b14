//! Lists the steps of CI: commands, functions of this program, and test runs whose tests are counted.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use super::options::Options;
use super::{artefacts, doctests, loom, nextest};
use crate::{artifacts, cross, docs, guard, house, package, page, python, supply, tidy, windows};

/// The result of a step; without tests, only whether it succeeded.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) succeeded: bool,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// The time that each test took.
    pub(crate) tests: Vec<(String, Duration)>,
}

impl Outcome {
    fn of(succeeded: bool) -> Self {
        Self { succeeded, ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.tests.extend(other.tests);
    }
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Command(&'static [&'static str]),
    Chore(fn(&Path) -> ExitCode),
    Tests(nextest::Run),
    Counted(fn(&Path) -> Outcome),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) name: &'static str,
    action: Action,
}

impl Step {
    const fn command(name: &'static str, words: &'static [&'static str]) -> Self {
        let action = Action::Command(words);
        Self { name, action }
    }

    const fn chore(name: &'static str, chore: fn(&Path) -> ExitCode) -> Self {
        let action = Action::Chore(chore);
        Self { name, action }
    }

    const fn counted(name: &'static str, run: fn(&Path) -> Outcome) -> Self {
        let action = Action::Counted(run);
        Self { name, action }
    }

    const fn tests(name: &'static str, run: nextest::Run) -> Self {
        let action = Action::Tests(run);
        Self { name, action }
    }

    pub(super) fn run(&self, root: &Path) -> Outcome {
        match self.action {
            Action::Command(words) => Outcome::of(succeeds(root, words)),
            Action::Chore(chore) => Outcome::of(chore(root) == ExitCode::SUCCESS),
            Action::Tests(tests) => tests.run(root),
            Action::Counted(run) => run(root),
        }
    }
}

pub(super) const STEPS: &[Step] = &[
    Step::command("format", &["cargo", "fmt", "--all", "--check"]),
    Step::chore("tidy", tidy::run),
    Step::chore("house", house::check),
    Step::chore("supply", supply::run),
    Step::command(
        "docs",
        &[
            "cargo",
            "doc",
            "--no-deps",
            "--workspace",
            "--config",
            "build.rustdocflags=[\"--deny\",\"warnings\"]",
        ],
    ),
    BUILD,
    Step::chore("references", docs::check_built),
    GUARD,
    Step::chore("aarch64", artefacts::check_aarch64),
    Step::counted("windows", windows::where_at_hand),
    Step::chore("artifacts", artifacts::run),
    Step::chore("package", package::run),
    Step::chore("page", page::run_if_changed),
    Step::chore("python", python::run_ends),
    Step::tests("tests", nextest::CI),
    Step::counted("doctests", doctests::run),
    Step::counted("loom", loom::run_if_changed),
];

/// Programs, libraries and tests at once, linted: without the tests, dependencies would be built with fewer
/// features first.
const BUILD: Step = Step::chore("build", artefacts::here);

/// The libraries that the tests preload.
const GUARD: Step = Step::chore("guard", guard::run);

/// The program, guard and the driver's double for aarch64.
const CROSS: Step = Step::chore("cross", artefacts::aarch64);

const SYSTEMS: Step = Step::chore("systems", |_| cross::systems());

/// The steps of `--long`.
pub(super) const LONG_STEPS: &[Step] = &[
    BUILD,
    GUARD,
    CROSS,
    SYSTEMS,
    Step::chore("page", page::long),
    Step::tests("tests", nextest::LONG),
    Step::tests("fuzz", nextest::FUZZ),
    Step::tests("loom", nextest::LOOM),
    Step::counted("windows", windows::long),
];

/// The steps that are meant, in their order.
pub(super) fn of(options: &Options) -> Vec<&'static Step> {
    let all = if options.long { LONG_STEPS } else { STEPS };
    let is_meant =
        |step: &&Step| options.only.is_empty() || options.only.iter().any(|name| name == step.name);
    all.iter().filter(is_meant).collect()
}

fn succeeds(root: &Path, words: &[&str]) -> bool {
    let Some((program, arguments)) = words.split_first() else {
        return false;
    };
    let status = Command::new(program).args(arguments).current_dir(root).stdin(Stdio::null()).status();
    match status {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("cannot run {program}: {error}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_names_of_their_own() {
        let mut names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STEPS.len());
    }

    #[test]
    fn only_the_named_steps_run_and_in_their_order() {
        let options = Options { long: false, only: vec!["tests".to_owned(), "format".to_owned()] };
        let names: Vec<&str> = of(&options).iter().map(|step| step.name).collect();
        assert_eq!(names, ["format", "tests"]);
    }
}
