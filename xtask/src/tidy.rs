//! `cargo xtask tidy`: checks rules of the source that neither cargo, rustc nor clippy can check.
//!
//! Every finding names file, line and rule; all findings are printed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::source::{Source, texts};

mod forgotten;
mod opening;
mod purity;
mod streams;
mod unused;

/// One broken rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) rule: String,
}

pub(crate) fn run(root: &Path) -> ExitCode {
    let texts = texts(root);
    let (sources, others): (Vec<Source>, Vec<Source>) = texts.into_iter().partition(|text| text.is("rs"));
    let mut findings = forgotten::check(&sources, &others);
    findings.extend(opening::check(&sources));
    findings.extend(purity::check(&sources));
    findings.extend(streams::check(&sources));
    findings.extend(unused::check(&sources, &others));
    for Finding { file, line, rule } in &findings {
        eprintln!("{}:{line}: {rule}", file.display());
    }
    eprintln!("tidy: {} files, {} findings", sources.len() + others.len(), findings.len());
    ExitCode::from(u8::from(!findings.is_empty()))
}
