//! The rules of ARCHITECTURE.md that no compiler checks.
//!
//! Every finding names file, line and rule; the chore prints all of them before it fails.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod imports;
mod lock;
mod shape;

/// One broken rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) rule: String,
}

/// A source file, its path relative to the workspace.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

pub(crate) fn run(root: &Path) -> ExitCode {
    let sources = sources(root);
    let mut findings = imports::check(&sources);
    findings.extend(shape::check(&sources));
    findings.extend(lock::check(root));
    for Finding { file, line, rule } in &findings {
        eprintln!("{}:{line}: {rule}", file.display());
    }
    eprintln!("tidy: {} files, {} findings", sources.len(), findings.len());
    ExitCode::from(u8::from(!findings.is_empty()))
}

fn sources(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["crates", "doubles", "bench", "xtask"]
        .iter()
        .map(|folder| root.join(folder))
        .collect();
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs")
                && let Ok(text) = std::fs::read_to_string(&path)
            {
                let path = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
                found.push(Source { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}
