//! `cargo xtask windows`: builds the programs for Windows, and tests them under Wine on Linux.
//!
//! It needs Wine and minutes, so it is a part of `cargo xtask test --long`. CI compiles the programs and runs
//! some tests, where that needs no download. On a user's own machine, `rustup target add` and cargo do.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;

use crate::debian::run_to_end;
use crate::test::{Outcome, counted};

mod answers;
mod backends;
mod engine;
mod exact;
mod guard;
mod parts;
mod programs;
mod seven;
mod stand_ins;
mod toolchain;
mod wine;

use self::parts::{Part, Shown};
use self::toolchain::{Edition, Toolchain};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Test the program as a process too: all parts, or those that are named
    #[arg(long, value_name = "PART", num_args = 0..)]
    check: Option<Vec<Part>>,
}

pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let parts = match options.check.as_deref() {
        None => &[Part::Units],
        Some([]) => Part::value_variants(),
        Some(named) => named,
    };
    ExitCode::from(u8::from(!tested(root, parts).succeeded))
}

/// All of it, for `cargo xtask test --long`.
pub(crate) fn long(root: &Path) -> Outcome {
    tested(root, Part::value_variants())
}

/// The sources that are compiled in CI, and crates of them whose unit tests run there.
const COMPILED: [&str; 3] = ["plimsoll", "plimsoll-guard-windows", "plimsoll-phantom"];
const TESTED: [&str; 3] = ["plimsoll-base", "plimsoll-host", "plimsoll-wire"];

/// The step of CI: compiles the programs and runs some unit tests, where linker, library and Wine are there.
///
/// DECISION: it downloads nothing. A mirror that is slow or away must not fail a change.
pub(crate) fn where_at_hand(root: &Path) -> Outcome {
    let step = Toolchain::find(root, Edition::Ten).and_then(|found| {
        let Some(toolchain) = found else {
            println!("windows: not compiled here: `cargo xtask windows` brings linker, library and Wine");
            return Ok(Outcome { succeeded: true, ..Outcome::default() });
        };
        let named = |packages: [&'static str; 3]| packages.into_iter().flat_map(|name| ["--package", name]);
        run_to_end(toolchain.cargo("clippy").args(named(COMPILED)).args(["--", "--deny", "warnings"]))?;
        Ok(counted(toolchain.cargo("test").arg("--tests").args(named(TESTED))))
    });
    step.unwrap_or_else(|error| {
        eprintln!("windows: {error}");
        Outcome::default()
    })
}

/// Runs the tests of these parts, and says what is missing where they cannot. The figures come last.
fn tested(root: &Path, parts: &[Part]) -> Outcome {
    let toolchain = match Toolchain::prepare(root, Edition::Ten) {
        Ok(toolchain) => toolchain,
        Err(error) => {
            eprintln!("windows: {error}");
            return Outcome::default();
        }
    };
    let mut total = Outcome { succeeded: true, ..Outcome::default() };
    let mut figures = String::new();
    for part in parts {
        let begun = Instant::now();
        let Shown { outcome, figure } = part.run(&toolchain).unwrap_or_else(|error| Shown {
            outcome: Outcome { failed: 1, ..Outcome::default() },
            figure: format!("cannot be tested: {error}"),
        });
        let took = begun.elapsed();
        let _ = writeln!(figures, "windows: {}: {figure} ({took:.0?})", part.name());
        total.succeeded &= outcome.succeeded && outcome.failed == 0;
        total.add(outcome);
    }
    print!("{figures}");
    total
}

/// Builds the program for Windows.
fn program(toolchain: &Toolchain) -> io::Result<PathBuf> {
    run_to_end(toolchain.cargo("build").args(["--package", "plimsoll"]))?;
    Ok(toolchain.built().join("debug/plimsoll.exe"))
}
