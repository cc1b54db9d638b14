//! The parts of `cargo xtask windows --check`, each of which can be run alone.

use std::io;

use clap::ValueEnum;

use super::{Toolchain, answers, exact, guard, program, programs, seven};
use crate::test::{Outcome, counted};

/// The crates whose unit tests run under Wine: those that the program for Windows consists of.
const PORTABLE: &[&str] = &[
    "plimsoll-base",
    "plimsoll-config",
    "plimsoll-doctor",
    "plimsoll-flags",
    "plimsoll-host",
    "plimsoll-model",
    "plimsoll-planner",
    "plimsoll-pool",
    "plimsoll-probe",
    "plimsoll-wire",
];

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Part {
    /// Names, paths, output, a hub's models and a diagnosis, of processes of the program
    Programs,
    /// Guard, over ggml's own backends for CUDA and stand-ins of NVIDIA's libraries
    Guard,
    /// `plan --exact` on an official engine
    Exact,
    /// Plans and diagnoses, compared with those of the program for Linux
    Answers,
    /// The build for Windows 7: its imports, and the parts `programs` and `guard` again
    Windows7,
    /// Unit tests of the crates that the program consists of
    Units,
}

/// What a part counted, and the sentence that states it.
pub(super) struct Shown {
    pub(super) outcome: Outcome,
    pub(super) figure: String,
}

impl Part {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(super) fn run(self, toolchain: &Toolchain) -> io::Result<Shown> {
        match self {
            Self::Units => Ok(units(toolchain)),
            Self::Windows7 => seven::run(&toolchain.root),
            Self::Programs => Ok(Shown::of_tests(programs::run(toolchain, &program(toolchain)?)?)),
            Self::Guard => Ok(Shown::of_tests(guard::run(toolchain, &program(toolchain)?)?)),
            Self::Exact => exact::compare(toolchain, &program(toolchain)?),
            Self::Answers => answers::compare(toolchain, &program(toolchain)?),
        }
    }
}

impl Shown {
    fn of_tests(outcome: Outcome) -> Self {
        let figure = format!("{} tests passed, {} failed", outcome.passed, outcome.failed);
        Self { outcome, figure }
    }

    /// Of things that were compared, how many were equal and how many not.
    pub(super) fn of_compared(equal: usize, different: usize, figure: String) -> Self {
        let succeeded = different == 0 && equal > 0;
        Self { outcome: Outcome { succeeded, passed: equal, failed: different, tests: Vec::new() }, figure }
    }
}

fn units(toolchain: &Toolchain) -> Shown {
    let packages = PORTABLE.iter().flat_map(|package| ["--package", package]);
    let mut cargo = toolchain.cargo("test");
    Shown::of_tests(counted(cargo.args(["--tests", "--no-fail-fast"]).args(packages)))
}

/// Runs process tests, counts them, and names those that fail.
pub(super) fn judged<T>(
    tests: impl IntoIterator<Item = (&'static str, T)>,
    mut passes: impl FnMut(T) -> io::Result<bool>,
) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    for (name, test) in tests {
        if passes(test)? {
            outcome.passed += 1;
        } else {
            outcome.failed += 1;
            eprintln!("windows: failed: {name}");
        }
    }
    outcome.succeeded = outcome.failed == 0;
    Ok(outcome)
}
