//! Options of `cargo xtask release`.

use std::fmt;
use std::path::{Path, PathBuf};

/// A processor that packages are for, by its name in Debian, OCI and Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    /// The processor of this machine.
    pub(super) fn here() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 }
    }

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

    /// Its name in a wheel's tag.
    pub(super) fn wheel(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
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

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub(crate) struct Options {
    /// Folder of the packages, by default `packages` in cargo's target folder
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    #[arg(long = "arch", value_enum, default_value = "amd64")]
    pub(super) architecture: Architecture,
    /// Folder of a program and libraries that are built already
    #[arg(long, value_name = "DIR")]
    pub(super) from: Option<PathBuf>,
    /// Secret key of minisign that signs SHA256SUMS
    #[arg(long, value_name = "FILE")]
    pub(super) sign: Option<PathBuf>,
    /// Public keys of minisign, one a line, which install.sh gets
    #[arg(long, value_name = "FILE", default_value = "packaging/minisign.pub")]
    pub(super) public: PathBuf,
    /// Address of the repository, with the releases at /releases/download/vVERSION
    #[arg(long, value_name = "URL")]
    pub(super) repository: Option<String>,
    /// Then try the packages on fresh systems of Debian, by debootstrap and as root
    #[arg(long)]
    pub(super) trial: bool,
}

impl Options {
    pub(super) fn folder(&self, root: &Path) -> PathBuf {
        self.out.clone().unwrap_or_else(|| crate::guard::target(root).join("packages"))
    }
}
