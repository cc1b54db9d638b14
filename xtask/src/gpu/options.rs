//! Command-line options of `cargo xtask gpu bundle`.

use std::path::{Path, PathBuf};

use crate::engine::BUILDS;

/// What is packed.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub(crate) struct Options {
    /// Archive of a built engine, called after its build as in b8799.tar.xz; repeatable
    #[arg(long = "engine-archive", value_name = "FILE", value_parser = archive)]
    pub(super) archives: Vec<PathBuf>,
    /// Build whose source is packed, or `none`; repeatable. By default every one without an archive
    #[arg(long = "source", value_name = "BUILD", value_parser = source)]
    pub(super) sources: Vec<String>,
    /// Folder of the program and the libraries, if they are built already
    #[arg(long, value_name = "FOLDER")]
    pub(super) from: Option<PathBuf>,
    #[arg(long, value_name = "FOLDER")]
    pub(super) out: PathBuf,
}

fn archive(path: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(path);
    let is_named = build_of(&path).is_some();
    is_named.then_some(path).ok_or("an engine's archive is called after its build, as in b8799.tar.xz")
}

fn source(name: &str) -> Result<String, String> {
    let known = || BUILDS.iter().map(|(build, _)| *build).chain(["none"]);
    let is_known = known().any(|build| build == name);
    is_known
        .then(|| name.to_owned())
        .ok_or_else(|| format!("known are {}", known().collect::<Vec<_>>().join(", ")))
}

impl Options {
    /// The builds whose source is packed: those named, else every one that has no archive.
    pub(super) fn sources(&self) -> Vec<&str> {
        let given: Vec<Option<String>> = self.archives.iter().map(|archive| build_of(archive)).collect();
        let named = self.sources.iter().map(String::as_str);
        let all = BUILDS.iter().map(|(build, _)| *build);
        if self.sources.is_empty() {
            all.filter(|build| !given.contains(&Some((*build).to_owned()))).collect()
        } else {
            named.filter(|name| *name != "none").collect()
        }
    }
}

/// `b8799.small.tar.xz` is of b8799.
fn build_of(archive: &Path) -> Option<String> {
    let name = archive.file_name()?.to_str()?;
    let build = name.split('.').next()?;
    let digits = build.strip_prefix('b')?;
    let number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    (number && name.contains(".tar")).then(|| build.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn read(line: &str) -> Result<Options, clap::Error> {
        Line::try_parse_from(["bundle"].into_iter().chain(line.split_whitespace())).map(|line| line.options)
    }

    #[test]
    fn a_build_whose_archive_is_given_needs_no_source() {
        let sources = |line| read(line).unwrap().sources().join(" ");
        assert_eq!(sources("--out x"), "b10605 b8799");
        assert_eq!(sources("--engine-archive /a/b8799.small.tar.xz --out x"), "b10605");
        assert_eq!(sources("--source none --out x"), "");
        assert_eq!(sources("--source b8799 --out x"), "b8799");
    }

    #[test]
    fn unknown_builds_and_archives_are_refused() {
        let error = |line: &str| read(line).unwrap_err().to_string();
        assert!(error("--source b1 --out x").contains("b10605, b8799, none"));
        assert!(error("--engine-archive llama.tar.xz --out x").contains("llama.tar.xz"));
    }
}
