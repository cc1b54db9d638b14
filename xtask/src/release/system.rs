//! Makes a small Debian in a folder and runs scripts in it, as on a machine that was just set up.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every path but those that dpkg and the tools for users write for themselves.
const PATHS: &str =
    "find / -xdev ! -path '/var/lib/dpkg*' ! -path '/var/log/*' ! -name '*-' ! -name .pwd.lock";

/// A system in a folder, which processes enter by chroot.
#[derive(Debug)]
pub(super) struct System(PathBuf);

#[derive(Debug, thiserror::Error)]
pub(super) enum SystemError {
    #[error("cannot run {program}: {error}")]
    Start { program: &'static str, error: io::Error },
    #[error("debootstrap made no system of {suite}: {stated}")]
    Make { suite: String, stated: String },
    #[error("a script in {} failed:\n{stated}", folder.display())]
    Run { folder: PathBuf, stated: String },
}

impl System {
    /// A Debian of this suite in an empty folder, with these packages besides the smallest system.
    pub(super) fn of_debian(suite: &str, packages: &[&str], folder: &Path) -> Result<Self, SystemError> {
        let include = format!("--include={}", packages.join(","));
        let mut debootstrap = Command::new("debootstrap");
        let made = debootstrap.args(["--variant=minbase", &include, suite]).arg(folder).output();
        let made = made.map_err(|error| SystemError::Start { program: "debootstrap", error })?;
        if !made.status.success() {
            let stated = String::from_utf8_lossy(&made.stdout).into_owned();
            // Half a system would be taken for a whole one.
            let _ = fs::remove_dir_all(folder);
            return Err(SystemError::Make { suite: suite.to_owned(), stated });
        }
        Ok(Self(folder.to_owned()))
    }

    /// One that is in a folder already.
    pub(super) fn in_folder(folder: PathBuf) -> Self {
        Self(folder)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// What a script says, with /proc and /dev; nothing that it starts outlives it.
    pub(super) fn run(&self, script: &str) -> Result<String, SystemError> {
        let enter = "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && exec chroot \"$0\" /bin/sh -ec \"$1\"";
        let output = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter])
            .arg(&self.0)
            .arg(script)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root")
            .output()
            .map_err(|error| SystemError::Start { program: "unshare", error })?;
        let stated = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(stated);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(SystemError::Run { folder: self.0.clone(), stated: format!("{script}\n{stated}\n{errors}") })
    }

    pub(super) fn paths(&self) -> Result<BTreeSet<String>, SystemError> {
        Ok(self.run(PATHS)?.lines().map(str::to_owned).collect())
    }
}
