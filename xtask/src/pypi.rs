//! Installs prebuilt programs from PyPI, all in one Python environment below the target folder.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of `programs`. Installs `packages`, which contain them, where one of them is missing.
pub(crate) fn folder(root: &Path, programs: &[&str], packages: &[&str]) -> Option<PathBuf> {
    let environment = root.join("target/tools");
    let folder = environment.join("bin");
    let are_there = || programs.iter().all(|program| folder.join(program).exists());
    let is_created = |folder: &Path| {
        folder.join("pip").exists()
            || runs(OsStr::new("python3"), &["-m", "venv", &environment.to_string_lossy()])
    };
    let installed = are_there()
        || is_created(&folder)
            && runs(folder.join("pip").as_os_str(), &[&["install", "--quiet"], packages].concat())
            && are_there();
    installed.then_some(folder)
}

/// The search path with `folder` before all others.
pub(crate) fn search_path(folder: PathBuf) -> Option<OsString> {
    let own = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&own))).ok()
}

fn runs(program: &OsStr, arguments: &[&str]) -> bool {
    let status = Command::new(program).args(arguments).stdin(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
