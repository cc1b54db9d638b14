//! Builds the program and its libraries reproducibly, for one processor architecture.
//!
//! DECISION: `--remap-path-prefix` replaces every path of the build machine. The builds have a target folder
//! of their own, because other flags in the usual folder would recompile everything at each change.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::options::Architecture;

const LIBRARIES: [&str; 2] = ["libplimsoll_guard.so", "libplimsoll_phantom.so"];
const ABI: &str = "libplimsoll_abi.so";
/// What the compiler calls the folders of this machine.
const SOURCES: &str = "/usr/src/plimsoll";

#[derive(Debug, thiserror::Error)]
pub(super) enum BuildError {
    #[error("cannot run {program}: {error}")]
    Start { program: &'static str, error: io::Error },
    #[error("cargo failed; its output is above (`cargo xtask cross` installs what arm64 needs)")]
    Cargo,
    #[error("SOURCE_DATE_EPOCH = {0:?} is no number of seconds")]
    Date(String),
    #[error("there is no date for the packages: git does not know the last commit; set SOURCE_DATE_EPOCH")]
    NoDate,
}

/// What was built.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) program: PathBuf,
    pub(super) libraries: Vec<PathBuf>,
    /// The library that the Python package loads.
    pub(super) abi: PathBuf,
}

impl Programs {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self::in_folders(folder, folder)
    }

    pub(super) fn in_folders(program: &Path, libraries: &Path) -> Self {
        let libraries = LIBRARIES.iter().map(|name| libraries.join(name)).collect();
        Self { program: program.join("plimsoll"), libraries, abi: program.join(ABI) }
    }
}

/// Seconds since 1970 of every file in the packages.
pub(super) fn date(root: &Path) -> Result<u64, BuildError> {
    if let Ok(date) = std::env::var("SOURCE_DATE_EPOCH") {
        return date.parse().map_err(|_| BuildError::Date(date));
    }
    let output = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root).output();
    let output = output.map_err(|error| BuildError::Start { program: "git", error })?;
    String::from_utf8_lossy(&output.stdout).trim().parse().map_err(|_| BuildError::NoDate)
}

/// Builds below `target`, a folder of cargo's.
pub(super) fn programs(
    root: &Path,
    target: &Path,
    architecture: Architecture,
) -> Result<Programs, BuildError> {
    let target = target.join("reproducible");
    let triple = architecture.triple();
    let flags = flags(root, &target, &standard_library(root)?);
    for arguments in [
        ["--profile", "release", "--package", "plimsoll", "--package", "plimsoll-abi"].as_slice(),
        &["--profile", "guard", "--package", "plimsoll-guard", "--package", "plimsoll-phantom"],
    ] {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--locked", "--target", triple, "--target-dir"]).arg(&target).args(arguments);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", &flags).env_remove("RUSTFLAGS");
        if architecture == Architecture::Arm64 {
            cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
        }
        let status = cargo.current_dir(root).status();
        if !status.map_err(|error| BuildError::Start { program: "cargo", error })?.success() {
            return Err(BuildError::Cargo);
        }
    }
    let built = target.join(triple);
    Ok(Programs::in_folders(&built.join("release"), &built.join("guard")))
}

/// Sources of the standard library on this machine, and their name in a program on a machine that has none.
fn standard_library(root: &Path) -> Result<(PathBuf, String), BuildError> {
    let rustc = |words: &[&str]| {
        let output = Command::new("rustc").args(words).current_dir(root).output();
        let output = output.map_err(|error| BuildError::Start { program: "rustc", error })?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let version = rustc(&["--version", "--verbose"])?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
    let sources = Path::new(rustc(&["--print", "sysroot"])?.trim()).join("lib/rustlib/src/rust");
    Ok((sources, format!("/rustc/{commit}")))
}

/// Flags of the compiler, separated as cargo wants them. A later prefix goes before an earlier one.
fn flags(root: &Path, target: &Path, (library, library_name): &(PathBuf, String)) -> String {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let renamed = [
        (Some(root), SOURCES.to_owned()),
        (home.as_deref(), format!("{SOURCES}/cargo")),
        (Some(target), format!("{SOURCES}/target")),
        (Some(library), library_name.clone()),
    ];
    let flags = renamed.iter().filter_map(|(from, to)| {
        let from = from.as_ref()?.display();
        Some(format!("--remap-path-prefix={from}={to}"))
    });
    flags.collect::<Vec<_>>().join("\x1f")
}
