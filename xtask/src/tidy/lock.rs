//! Limit on the number of locked packages of others, because every dependency has to be kept up to date.

use std::path::Path;

use super::{Finding, Severity};

// 34 of them are the terminal's: ratatui and its test emulator.
const MOST: usize = 262;

pub(crate) fn check(root: &Path) -> Vec<Finding> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).unwrap_or_default();
    let packages = lock.lines().filter(|line| line.starts_with("source = ")).count();
    let finding =
        |rule: String| vec![Finding { file: "Cargo.lock".into(), line: 1, rule, severity: Severity::Error }];
    match packages {
        0 => finding("no packages found: is the lock file committed?".to_owned()),
        n if n > MOST => finding(format!("{n} packages; the cap is {MOST}")),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_and_a_missing_lock_are_findings() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(check(folder.path()).len(), 1);
        let write = |n: usize| {
            std::fs::write(folder.path().join("Cargo.lock"), "source = \"registry\"\n".repeat(n)).unwrap()
        };
        write(MOST);
        assert!(check(folder.path()).is_empty());
        write(MOST + 1);
        assert_eq!(check(folder.path())[0].rule, "263 packages; the cap is 262");
    }
}
