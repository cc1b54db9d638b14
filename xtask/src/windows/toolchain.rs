//! Cargo and Wine, with all that they need to build programs for an edition of Windows and to run them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::wine;
use crate::cross;
use crate::standard_library::StandardLibrary;

/// For which Windows a program is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edition {
    /// Windows 7 and later (rustc's platform support: `*-win7-windows-gnu`).
    Seven,
    /// Windows 10 and later.
    Ten,
}

impl Edition {
    pub(super) const fn target(self) -> &'static str {
        match self {
            Self::Seven => "x86_64-win7-windows-gnu",
            Self::Ten => "x86_64-pc-windows-gnu",
        }
    }
}

/// The standard library, a linker, and Wine to run what was built.
pub(super) struct Toolchain {
    pub(super) root: PathBuf,
    edition: Edition,
    library: StandardLibrary,
    /// Wine's folder, where programs run.
    prefix: PathBuf,
}

impl Toolchain {
    /// Installs and builds what is missing, and keeps a server of Wine.
    pub(super) fn prepare(root: &Path, edition: Edition) -> io::Result<Self> {
        if cross::windows() != ExitCode::SUCCESS {
            return Err(io::Error::other("the linker or Wine is missing"));
        }
        let library = StandardLibrary::find_or_build(root, edition.target())?;
        let prefix = wine::prefix(root, edition)?;
        wine::keep_server(&prefix)?;
        Ok(Self { root: root.to_owned(), edition, library, prefix })
    }

    /// What is there already; `None` if a part of it is missing.
    pub(super) fn find(root: &Path, edition: Edition) -> io::Result<Option<Self>> {
        let runs = |program: &&str| Command::new(program).arg("--version").output().is_ok();
        if ![wine::LINKER, wine::PROGRAM].iter().all(runs) {
            return Ok(None);
        }
        let Some(library) = StandardLibrary::find(edition.target())? else { return Ok(None) };
        let prefix = wine::prefix(root, edition)?;
        Ok(Some(Self { root: root.to_owned(), edition, library, prefix }))
    }

    /// Where cargo places what it builds, by profile.
    pub(super) fn built(&self) -> PathBuf {
        self.root.join("target").join(self.edition.target())
    }

    /// A folder for files of the tests.
    pub(super) fn work(&self, name: &str) -> PathBuf {
        self.root.join("target/windows").join(match self.edition {
            Edition::Seven => format!("{name}-7"),
            Edition::Ten => name.to_owned(),
        })
    }

    pub(super) fn cargo(&self, verb: &str) -> Command {
        let target = self.edition.target();
        let mut cargo = Command::new("cargo");
        cargo.args([verb, "--target", target]).current_dir(&self.root);
        let name = target.replace('-', "_");
        let setting = |what: &str| format!("CARGO_TARGET_{}_{what}", name.to_uppercase());
        cargo.env(setting("LINKER"), wine::LINKER).env(setting("RUNNER"), wine::PROGRAM);
        cargo.env(format!("CC_{name}"), wine::LINKER).env(format!("AR_{name}"), wine::ARCHIVER);
        if let Some(flags) = self.library.flags() {
            cargo.env(setting("RUSTFLAGS"), flags);
        }
        wine::set(&mut cargo, &self.prefix);
        cargo
    }

    /// Wine, which takes a program and its words.
    pub(super) fn wine(&self) -> Command {
        let mut wine = Command::new(wine::PROGRAM);
        wine::set(&mut wine, &self.prefix);
        wine
    }
}
