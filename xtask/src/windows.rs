//! `cargo xtask windows`: builds what runs on Windows, and tests it under Wine on Linux.
//!
//! It needs Wine and minutes, so it is a part of `cargo xtask test --long` and not of CI. On a user's own
//! machine, `rustup target add` and plain cargo do.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::cross;
use crate::test::{Outcome, counted};

mod standard_library;
mod wine;

use self::standard_library::StandardLibrary;

pub(super) const TARGET: &str = "x86_64-pc-windows-gnu";

/// The crates whose unit tests run under Wine; those of the crates that they import are among them.
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
    "plimsoll-telemetry",
    "plimsoll-wire",
];

pub(crate) fn run(root: &Path) -> ExitCode {
    let outcome = tested(root);
    // The figures last: what cargo says before is long.
    println!("windows under Wine: {} passed, {} failed", outcome.passed, outcome.failed);
    ExitCode::from(u8::from(!outcome.succeeded))
}

/// Runs the tests, and says what is missing where they cannot.
pub(crate) fn tested(root: &Path) -> Outcome {
    match Toolchain::prepare(root) {
        Ok(toolchain) => {
            let packages = PORTABLE.iter().flat_map(|package| ["--package", package]);
            counted(toolchain.cargo("test").args(["--tests", "--no-fail-fast"]).args(packages))
        }
        Err(error) => {
            eprintln!("windows: {error}");
            Outcome::default()
        }
    }
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
}
