//! Command-line options of `cargo xtask gpu bundle`.

use std::path::{Path, PathBuf};

use crate::engine::BUILDS;

pub(super) const USAGE: &str =
    "gpu bundle [--engine-archive FILE]... [--source BUILD|none]... [--from FOLDER] --out FOLDER";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OptionError {
    #[error("`{0}` is no option of gpu bundle\nusage: cargo xtask {USAGE}")]
    Unknown(String),
    #[error("{0} needs a value\nusage: cargo xtask {USAGE}")]
    Value(String),
    #[error("--out FOLDER is needed\nusage: cargo xtask {USAGE}")]
    Out,
    #[error("no source of `{0}` is known; known are b10605 and b8799")]
    Source(String),
    #[error("an engine's archive is called after its build, as in b8799.tar.xz, not {}", .0.display())]
    Archive(PathBuf),
}

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) archives: Vec<PathBuf>,
    sources: Vec<String>,
    /// Where the program and the libraries lie already.
    pub(super) from: Option<PathBuf>,
    pub(super) out: PathBuf,
}

impl Options {
    pub(super) fn read(words: &[&str]) -> Result<Self, OptionError> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let mut value = || words.next().ok_or_else(|| OptionError::Value(word.to_owned()));
            match word {
                "--engine-archive" => options.archives.push(value()?.into()),
                "--source" => options.sources.push((*value()?).to_owned()),
                "--from" => options.from = Some(value()?.into()),
                "--out" => options.out = value()?.into(),
                _ => return Err(OptionError::Unknown(word.to_owned())),
            }
        }
        options.checked()
    }

    fn checked(self) -> Result<Self, OptionError> {
        if self.out.as_os_str().is_empty() {
            return Err(OptionError::Out);
        }
        let known = |name: &str| name == "none" || BUILDS.iter().any(|(build, _)| *build == name);
        if let Some(unknown) = self.sources.iter().find(|name| !known(name)) {
            return Err(OptionError::Source(unknown.clone()));
        }
        if let Some(nameless) = self.archives.iter().find(|archive| build_of(archive).is_none()) {
            return Err(OptionError::Archive(nameless.clone()));
        }
        Ok(self)
    }

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
    use super::*;

    #[test]
    fn a_build_whose_archive_is_given_needs_no_source() {
        let read = |line: &str| Options::read(&line.split_whitespace().collect::<Vec<_>>());
        let sources = |line| read(line).unwrap().sources().join(" ");
        assert_eq!(sources("--out x"), "b10605 b8799");
        assert_eq!(sources("--engine-archive /a/b8799.small.tar.xz --out x"), "b10605");
        assert_eq!(sources("--source none --out x"), "");
        assert_eq!(sources("--source b8799 --out x"), "b8799");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_name() {
        let error = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            Options::read(&words).unwrap_err().to_string()
        };
        assert!(error("--engine x.tar").starts_with("`--engine` is no option"));
        assert!(error("--out").starts_with("--out needs a value"));
        assert!(error("--from y").starts_with("--out FOLDER is needed"));
        assert!(error("--source b1 --out x").contains("b10605 and b8799"));
        assert!(error("--engine-archive llama.tar.xz --out x").contains("not llama.tar.xz"));
    }
}
