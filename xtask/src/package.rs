//! Checks the crates that other programs may use: they can be packaged without a network, and a program
//! outside of the workspace builds from them. `plimsoll-plan` and all below it depend on no runtime.

mod outside;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use self::outside::UnpackError;
use crate::site::TARGET as WASM;
use crate::standard_library::StandardLibrary;

/// The crates that are meant for others. What they import of ours is packaged with them.
const PUBLISHED: &[&str] = &[
    "plimsoll-base",
    "plimsoll-model",
    "plimsoll-flags",
    "plimsoll-pool",
    "plimsoll-planner",
    "plimsoll-plan",
    "plimsoll-doctor",
];

/// The crate below which all is pure: no runtime, no HTTP, no file.
const PURE: &str = "plimsoll-plan";

#[derive(Debug, thiserror::Error)]
enum PackageError {
    #[error("cannot run cargo: {0}")]
    Cargo(std::io::Error),
    #[error("`cargo {0}` failed")]
    Failed(String),
    #[error("what cargo says of the workspace cannot be read: {0}")]
    Metadata(#[from] serde_json::Error),
    #[error("{0} has no README.md, which its page on crates.io shows")]
    Readme(String),
    #[error("{PURE} depends on {}, and planning needs no runtime, HTTP or file", .0.join(", "))]
    Impure(Vec<String>),
    #[error(transparent)]
    Unpack(#[from] UnpackError),
}

pub(crate) fn run(root: &Path) -> ExitCode {
    match check(root) {
        Ok(names) => {
            eprintln!("packaged and used from outside: {}", names.join(", "));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The names of the packages.
fn check(root: &Path) -> Result<Vec<String>, PackageError> {
    let impure = tree::impure(&cargo_text(root, &["tree", "-p", PURE, "-e", "normal", "--prefix", "none"])?);
    if !impure.is_empty() {
        return Err(PackageError::Impure(impure));
    }
    let metadata = cargo_text(root, &["metadata", "--no-deps", "--offline", "--format-version", "1"])?;
    let names = tree::closure(&serde_json::from_str(&metadata)?, PUBLISHED);
    let readmes = names.iter().filter_map(|name| name.strip_prefix("plimsoll-"));
    for name in readmes {
        if !root.join("crates").join(name).join("README.md").exists() {
            return Err(PackageError::Readme(name.to_owned()));
        }
    }
    match StandardLibrary::find(WASM).map_err(PackageError::Cargo)? {
        Some(library) => {
            let flags = library.flags().map(|flags| ("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", flags));
            cargo_with(root, &["check", "--quiet", "-p", PURE, "--target", WASM], flags)?;
        }
        None => eprintln!(
            "{WASM} has no library here, so {PURE} is not built for it; `cargo xtask site` builds one"
        ),
    }
    let packed = packed(root, &names)?;
    let program = outside::write(root, &packed)?;
    cargo(&program, &["run", "--quiet", "--offline"])?;
    Ok(names)
}

/// Packages the crates, and returns the files with their names.
fn packed(root: &Path, names: &[String]) -> Result<Vec<(String, PathBuf)>, PackageError> {
    let folder = root.join("target/package");
    // A file of an earlier version would be taken for this one's.
    let _ = fs::remove_dir_all(&folder);
    let mut words = vec!["package", "--quiet", "--offline", "--no-verify", "--allow-dirty", "--no-metadata"];
    words.extend(names.iter().flat_map(|name| ["-p", name]));
    cargo(root, &words)?;
    Ok(names.iter().map(|name| (name.clone(), outside::package(&folder, name))).collect())
}

fn cargo(folder: &Path, words: &[&str]) -> Result<(), PackageError> {
    cargo_with(folder, words, None)
}

/// The same with a variable of the environment.
fn cargo_with(folder: &Path, words: &[&str], variable: Option<(&str, String)>) -> Result<(), PackageError> {
    let mut cargo = Command::new("cargo");
    cargo.args(words).current_dir(folder).stdin(Stdio::null()).envs(variable);
    let status = cargo.status();
    if status.map_err(PackageError::Cargo)?.success() {
        Ok(())
    } else {
        Err(PackageError::Failed(words.join(" ")))
    }
}

fn cargo_text(root: &Path, words: &[&str]) -> Result<String, PackageError> {
    let mut command = Command::new("cargo");
    command.args(words).current_dir(root).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(PackageError::Cargo)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(PackageError::Failed(words.join(" ")))
    }
}
