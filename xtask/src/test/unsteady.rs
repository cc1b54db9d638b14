//! A test that failed is run once more, by itself; if it passes then, it is unsteady, and said to be.
//!
//! DECISION: what CI says is about the change. Tests here start hundreds of processes, and a race that shows once in a hundred runs is
//! no word on the change that happened to meet it; nor may it be lost. So it is named at the end of every run, with its first output
//! above, and is a bug like any other. More failures than a few are no race: they are not run again.

use std::path::Path;
use std::process::{Command, Stdio};

use super::count::Count;

/// Races that one run may meet.
const FEW: usize = 2;

/// Runs what failed once more, alone. True if all of it passes; then `count` tells so, and the names are returned.
pub(super) fn passed_alone(root: &Path, count: &mut Count) -> Option<Vec<String>> {
    let names = std::mem::take(&mut count.failures);
    if names.is_empty() || names.len() > FEW || names.len() != count.failed {
        return None;
    }
    eprintln!("── once more, alone: {} ──", names.join(", "));
    let mut child = Command::new("cargo")
        .args([
            "test",
            "--workspace",
            "--lib",
            "--bins",
            "--tests",
            "--no-fail-fast",
            "--",
            "--exact",
        ])
        .arg("--test-threads=1")
        .args(&names)
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut again = Count::default();
    again.read(child.stdout.take()?);
    let succeeded = child.wait().is_ok_and(|status| status.success());
    if !succeeded || again.passed < names.len() {
        return None;
    }
    count.passed += names.len();
    count.failed -= names.len();
    Some(names)
}
