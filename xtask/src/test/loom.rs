//! Runs the loom tests of `wire`'s lock-free code, unless a stamp (a hash of the sources) says that they have
//! passed.
//!
//! DECISION: the stamp is committed, not kept in the target folder. The models explore every order of the
//! same sources with the same result, so that a fresh clone learns nothing from running them again. `--long`
//! does so all the same.

use std::path::{Path, PathBuf};

use super::nextest;
use super::steps::Outcome;
use crate::stamp::Stamp;

const STAMP: &str = "crates/wire/loom.sha256";
const WATCHED: [&str; 3] = ["crates/wire/Cargo.toml", "crates/wire/src", "crates/wire/tests/loom.rs"];

/// Runs the models if the sources have changed since they last passed, and writes the stamp of those that
/// pass.
pub(super) fn run_if_changed(root: &Path) -> Outcome {
    let places: Vec<PathBuf> = WATCHED.iter().map(|place| root.join(place)).collect();
    let (stamp, kept) = (Stamp::of(root, &places).ok(), root.join(STAMP));
    if stamp.as_ref().is_some_and(|stamp| stamp.is_in(&kept)) {
        eprintln!("the sources are those of {STAMP}; cargo xtask test --long loom runs the models");
        return Outcome { succeeded: true, ..Outcome::default() };
    }
    let outcome = nextest::LOOM.run(root);
    if let Some(stamp) = stamp.filter(|_| outcome.succeeded) {
        stamp.keep(&kept);
        eprintln!("the models pass; commit {STAMP}");
    }
    outcome
}
