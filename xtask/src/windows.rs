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
mod guard;
mod standard_library;
mod wine;

use self::answers::Compared;
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
    /// Compare plans and diagnoses of the program for Windows with Linux's, too
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
    let measured = Toolchain::prepare(root).and_then(|toolchain| {
        run_to_end(toolchain.cargo("build").args(["--package", "plimsoll"]))?;
        guard::run(&toolchain, &program(root))
    });
    let outcome = measured.unwrap_or_else(|error| {
        eprintln!("windows: {error}");
        Outcome::default()
    });
    println!("windows: {} process tests of guard passed, {} failed", outcome.passed, outcome.failed);
    outcome
}

/// The built program for Windows.
fn program(root: &Path) -> PathBuf {
    root.join("target").join(TARGET).join("debug/plimsoll.exe")
}

/// Runs the tests, and says what is missing where they cannot. The figures come last.
fn tested(root: &Path, checks_answers: bool) -> Outcome {
    let measured = Toolchain::prepare(root).and_then(|toolchain| {
        let answers = checks_answers.then(|| answers::compare(&toolchain)).transpose()?;
        let guarded = checks_answers.then(|| guard::run(&toolchain, &program(root))).transpose()?;
        let packages = PORTABLE.iter().flat_map(|package| ["--package", package]);
        let mut cargo = toolchain.cargo("test");
        let outcome = counted(cargo.args(["--tests", "--no-fail-fast"]).args(packages));
        Ok((answers, guarded, outcome))
    });
    let (answers, guarded, mut outcome) = match measured {
        Ok(measured) => measured,
        Err(error) => {
            eprintln!("windows: {error}");
            return Outcome::default();
        }
    };
    println!("windows: {} unit tests passed under Wine, {} failed", outcome.passed, outcome.failed);
    if let Some(guarded) = guarded {
        println!("windows: {} process tests of guard passed, {} failed", guarded.passed, guarded.failed);
        outcome.succeeded &= guarded.succeeded;
    }
    if let Some(answers) = answers {
        let Compared { equal, different, quickest } = &answers;
        let quickest = quickest.unwrap_or_default();
        println!(
            "windows: {equal} answers are Linux's byte for byte, {different} are not; the quickest took {quickest:.2?}"
        );
        outcome.succeeded &= answers.is_well();
    }
    outcome
}

/// Cargo with all that it needs for Windows: the standard library, a linker, and Wine to run what it built.
struct Toolchain {
    root: PathBuf,
    library: StandardLibrary,
    prefix: PathBuf,
}

impl Toolchain {
    fn prepare(root: &Path) -> io::Result<Self> {
        if cross::windows() != ExitCode::SUCCESS {
            return Err(io::Error::other("the linker or Wine is missing"));
        }
        let library = StandardLibrary::find_or_build(root)?;
        Ok(Self { root: root.to_owned(), library, prefix: wine::prefix(root)? })
    }

    fn cargo(&self, verb: &str) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.args([verb, "--target", TARGET]).current_dir(&self.root);
        cargo.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", wine::LINKER);
        cargo.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", wine::PROGRAM);
        if let Some(flags) = self.library.flags() {
            cargo.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUSTFLAGS", flags);
        }
        wine::set(&mut cargo, &self.prefix);
        cargo
    }

    /// Wine, which takes a program and its words.
    fn wine(&self) -> Command {
        let mut wine = Command::new(wine::PROGRAM);
        wine::set(&mut wine, &self.prefix);
        wine
    }
}
