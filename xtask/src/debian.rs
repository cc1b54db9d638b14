//! Downloads Debian packages with apt, without changing this machine's own package lists.
//!
//! So this machine keeps its own architecture and suites.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A state of apt in a folder.
pub(crate) struct AptState {
    folder: PathBuf,
    settings: Vec<String>,
}

impl AptState {
    /// The state in a folder, with the machine's own sources unless a setting says otherwise. Reads the lists
    /// of packages.
    pub(crate) fn open(folder: PathBuf, settings: &[String]) -> io::Result<Self> {
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let of_folder = [
            format!("Dir::State={}", folder.display()),
            format!("Dir::State::Lists={}", folder.join("lists").display()),
            format!("Dir::Cache={}", folder.join("cache").display()),
            "Dir::State::status=/dev/null".to_owned(),
        ];
        let state = Self { folder, settings: [&of_folder, settings].concat() };
        run_to_end(state.command("apt-get").arg("update"))?;
        Ok(state)
    }

    /// A command of apt that works on this state.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(self.settings.iter().flat_map(|setting| ["-o", setting])).current_dir(&self.folder);
        command
    }

    /// Downloads packages, each by its name or by `NAME=VERSION`.
    pub(crate) fn download(&self, packages: &[&str]) -> io::Result<()> {
        run_to_end(self.command("apt-get").arg("download").args(packages))
    }

    /// The files of all packages that were downloaded.
    pub(crate) fn packages(&self) -> io::Result<Vec<PathBuf>> {
        let paths = fs::read_dir(&self.folder)?.flatten().map(|entry| entry.path());
        Ok(paths.filter(|path| path.extension().is_some_and(|kind| kind == "deb")).collect())
    }
}

/// Unpacks packages into a folder.
pub(crate) fn unpack(packages: &[PathBuf], into: &Path) -> io::Result<()> {
    fs::create_dir_all(into)?;
    packages
        .iter()
        .try_for_each(|package| run_to_end(Command::new("dpkg-deb").arg("-x").arg(package).arg(into)))
}

/// Runs a command, whose failure is an error that names it.
pub(crate) fn run_to_end(command: &mut Command) -> io::Result<()> {
    let status = command.stdin(Stdio::null()).status();
    let program = command.get_program().to_string_lossy();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(io::Error::other(format!("{program} ended with {status}"))),
        Err(error) => Err(io::Error::other(format!("cannot run {program}: {error}"))),
    }
}
