//! `cargo xtask windows`: builds the programs for Windows, and tests them under Wine on Linux.
//!
//! It needs Wine and minutes, so it is a part of `cargo xtask test --long` and not of CI. On a user's own
//! machine, `rustup target add` and plain cargo do.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::cross;
use crate::debian::run_to_end;
use crate::test::{Outcome, counted};

mod answers;
mod backends;
mod engine;
mod exact;
mod guard;
mod programs;
mod stand_ins;
mod standard_library;
mod wine;

use self::answers::Compared;
use self::exact::Asked;
use self::standard_library::StandardLibrary;

pub(super) const TARGET: &str = "x86_64-pc-windows-gnu";

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

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Test the program as a process too: its answers are compared with those of Linux, and an engine is
    /// asked
    #[arg(long)]
    check: bool,
    /// Run the process tests of guard, and nothing else
    #[arg(long, conflicts_with = "check")]
    guard: bool,
}

pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let outcome = if options.guard { guarded(root) } else { tested(root, options.check) };
    ExitCode::from(u8::from(!outcome.succeeded))
}

/// All of it, for `cargo xtask test --long`.
pub(crate) fn long(root: &Path) -> Outcome {
    tested(root, true)
}

/// Builds the program and runs the process tests of guard.
fn guarded(root: &Path) -> Outcome {
    let measured = Toolchain::prepare(root).and_then(|mut toolchain| {
        toolchain.prefix = Some(wine::prefix(root)?);
        guard::run(&toolchain, &program(&toolchain)?)
    });
    let outcome = measured.unwrap_or_else(|error| {
        eprintln!("windows: {error}");
        Outcome::default()
    });
    print_guarded(&outcome);
    outcome
}

fn print_guarded(outcome: &Outcome) {
    println!("windows: {} process tests of guard passed, {} failed", outcome.passed, outcome.failed);
}

/// Builds the program for Windows.
fn program(toolchain: &Toolchain) -> io::Result<PathBuf> {
    run_to_end(toolchain.cargo("build").args(["--package", "plimsoll"]))?;
    Ok(toolchain.root.join("target").join(TARGET).join("debug/plimsoll.exe"))
}

/// Runs process tests, counts them, and names those that fail.
fn judged<T>(
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

/// What the processes of the program showed.
struct Processes {
    programs: Outcome,
    guarded: Outcome,
    answers: Compared,
    asked: Asked,
}

/// Runs the tests, and says what is missing where they cannot. The figures come last.
fn tested(root: &Path, checks_processes: bool) -> Outcome {
    let measured = Toolchain::prepare(root).and_then(|mut toolchain| {
        toolchain.prefix = Some(wine::prefix(root)?);
        let processes = checks_processes.then(|| processes(&toolchain)).transpose()?;
        let packages = PORTABLE.iter().flat_map(|package| ["--package", package]);
        let mut cargo = toolchain.cargo("test");
        let outcome = counted(cargo.args(["--tests", "--no-fail-fast"]).args(packages));
        Ok((processes, outcome))
    });
    let (processes, mut outcome) = match measured {
        Ok(measured) => measured,
        Err(error) => {
            eprintln!("windows: {error}");
            return Outcome::default();
        }
    };
    println!("windows: {} unit tests passed under Wine, {} failed", outcome.passed, outcome.failed);
    if let Some(processes) = processes {
        processes.print();
        outcome.succeeded &= processes.succeeded();
        outcome.passed += processes.programs.passed + processes.guarded.passed;
        outcome.failed += processes.programs.failed + processes.guarded.failed;
    }
    outcome
}

/// Builds the program and tests its processes.
fn processes(toolchain: &Toolchain) -> io::Result<Processes> {
    let program = program(toolchain)?;
    toolchain.keep_server()?;
    Ok(Processes {
        programs: programs::run(toolchain, &program)?,
        guarded: guard::run(toolchain, &program)?,
        asked: exact::compare(toolchain, &program)?,
        answers: answers::compare(toolchain, &program)?,
    })
}

impl Processes {
    fn succeeded(&self) -> bool {
        let is_well = |outcome: &Outcome| outcome.failed == 0;
        is_well(&self.programs)
            && is_well(&self.guarded)
            && self.asked.different == 0
            && self.answers.is_well()
    }

    fn print(&self) {
        let Outcome { passed, failed, .. } = self.programs;
        println!("windows: {passed} process tests passed under Wine, {failed} failed");
        print_guarded(&self.guarded);
        let Asked { equal, different } = self.asked;
        println!("windows: of {equal} rows the engine asked for the bytes of the plan, of {different} not");
        let Compared { equal, different, quickest } = &self.answers;
        let quickest = quickest.unwrap_or_default();
        println!(
            "windows: {equal} answers are Linux's byte for byte, {different} are not; the quickest took {quickest:.2?}"
        );
    }
}

/// Cargo with all that it needs for Windows: the standard library, a linker, and Wine to run what it built.
struct Toolchain {
    root: PathBuf,
    library: StandardLibrary,
    /// Wine's, where programs run.
    prefix: Option<PathBuf>,
}

impl Toolchain {
    fn prepare(root: &Path) -> io::Result<Self> {
        if cross::windows() != ExitCode::SUCCESS {
            return Err(io::Error::other("the linker or Wine is missing"));
        }
        Ok(Self { root: root.to_owned(), library: StandardLibrary::find_or_build(root)?, prefix: None })
    }

    fn cargo(&self, verb: &str) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.args([verb, "--target", TARGET]).current_dir(&self.root);
        cargo.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", wine::LINKER);
        cargo.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", wine::PROGRAM);
        if let Some(flags) = self.library.flags() {
            cargo.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUSTFLAGS", flags);
        }
        self.surround(&mut cargo);
        cargo
    }

    /// Wine, which takes a program and its words.
    fn wine(&self) -> Command {
        let mut wine = Command::new(wine::PROGRAM);
        self.surround(&mut wine);
        wine
    }

    fn surround(&self, command: &mut Command) {
        if let Some(prefix) = &self.prefix {
            wine::set(command, prefix);
        }
    }

    fn keep_server(&self) -> io::Result<()> {
        self.prefix.as_deref().map_or(Ok(()), wine::keep_server)
    }
}
