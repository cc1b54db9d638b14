//! `cargo xtask tidy`: rules that neither cargo, rustc nor clippy can check.
//!
//! Cargo checks imports between crates, and clippy the calls that are forbidden in a pure crate. Every
//! finding names file, line and rule; all findings are printed. Errors make the command fail, warnings do
//! not.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::house;

mod floors;
mod forgotten;
mod lock;
mod opening;
mod shape;
mod streams;
mod words;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Warning,
    Error,
}

/// One broken rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) rule: String,
    pub(crate) severity: Severity,
}

/// A text file, its path relative to the workspace.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    fn is(&self, kind: &str) -> bool {
        self.path.extension().is_some_and(|extension| extension == kind)
    }
}

pub(crate) fn run(root: &Path) -> ExitCode {
    let texts = texts(root);
    let (sources, others): (Vec<Source>, Vec<Source>) = texts.into_iter().partition(|text| text.is("rs"));
    let imports = match house::imports(root) {
        Ok(imports) => imports,
        Err(error) => {
            eprintln!("xtask: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut findings = floors::check(&imports, &sources);
    findings.extend(forgotten::check(&sources, &others));
    findings.extend(opening::check(&sources));
    findings.extend(shape::check(&sources));
    findings.extend(streams::check(&sources));
    findings.extend(words::check(sources.iter().chain(&others)));
    findings.extend(lock::check(root));
    let errors = report(&findings);
    eprintln!(
        "tidy: {} files, {errors} findings, {} warnings",
        sources.len() + others.len(),
        findings.len() - errors
    );
    ExitCode::from(u8::from(errors > 0))
}

/// Prints the findings and returns the number of errors.
fn report(findings: &[Finding]) -> usize {
    for Finding { file, line, rule, severity } in findings {
        let word = match severity {
            Severity::Warning => "warning: ",
            Severity::Error => "",
        };
        eprintln!("{}:{line}: {word}{rule}", file.display());
    }
    findings.iter().filter(|finding| finding.severity == Severity::Error).count()
}

/// Kinds of text that people read and write. `Cargo.lock` is none of them.
const KINDS: &[&str] = &["rs", "md", "py", "toml"];

/// Measured values and captured logs, which are kept as they came, and what is built.
const LEFT_OUT: &[&str] = &["data", "shared", "target"];

fn texts(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                let at_root = folder == root;
                let is_built = ["target", "node_modules"].contains(&&*name);
                let is_left_out = is_built || name.starts_with('.') || at_root && LEFT_OUT.contains(&&*name);
                if !is_left_out {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|kind| KINDS.iter().any(|known| kind == *known))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_what_is_built_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for path in [
            "data/a.md",
            "target/b.rs",
            "page/node_modules/x/y.md",
            ".git/c.toml",
            "docs/d.md",
            "crates/data/e.rs",
            "f.lock",
        ] {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found: Vec<PathBuf> = texts(root).into_iter().map(|text| text.path).collect();
        assert_eq!(found, [Path::new("crates/data/e.rs"), Path::new("docs/d.md")]);
    }

    #[test]
    fn warnings_are_no_errors() {
        let finding = |severity| Finding { file: "a.rs".into(), line: 1, rule: "rule".to_owned(), severity };
        assert_eq!(report(&[finding(Severity::Warning), finding(Severity::Error)]), 1);
    }
}
