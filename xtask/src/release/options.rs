//! Options of `cargo xtask release`.

use std::fmt;
use std::path::{Path, PathBuf};

/// A processor that packages are for, by its name in Debian, OCI and Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    /// Target of the compiler.
    pub(super) fn triple(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// Debian's name of the folder of its libraries.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu",
            Self::Arm64 => "aarch64-linux-gnu",
        }
    }

    /// The loader that programs name.
    pub(super) fn loader(self) -> &'static str {
        match self {
            Self::Amd64 => "lib64/ld-linux-x86-64.so.2",
            Self::Arm64 => "lib/ld-linux-aarch64.so.1",
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum OptionError {
    #[error("{0} needs a value")]
    Value(String),
    #[error("`{0}` is no architecture of the packages; write amd64 or arm64")]
    Architecture(String),
    #[error("unknown option {0}; there are --out DIR, --arch amd64|arm64 and --from DIR")]
    Unknown(String),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) out: PathBuf,
    pub(super) architecture: Architecture,
    /// Folder of a program and libraries that are built already.
    pub(super) from: Option<PathBuf>,
}

impl Options {
    pub(super) fn read(root: &Path, words: &[&str]) -> Result<Self, OptionError> {
        let out = crate::guard::target(root).join("packages");
        let mut options = Self { out, architecture: Architecture::Amd64, from: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().copied().ok_or_else(|| OptionError::Value((*word).to_owned()));
            match *word {
                "--out" => options.out = value()?.into(),
                "--from" => options.from = Some(value()?.into()),
                "--arch" => {
                    options.architecture = match value()? {
                        "amd64" => Architecture::Amd64,
                        "arm64" => Architecture::Arm64,
                        other => return Err(OptionError::Architecture(other.to_owned())),
                    }
                }
                other => return Err(OptionError::Unknown(other.to_owned())),
            }
        }
        Ok(options)
    }
}
