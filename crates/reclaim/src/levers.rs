//! Runs the steps of memory reclaim that need root.

mod huge_pages;
mod unit;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use plimsoll_host::ReclaimStep;
use plimsoll_process::own_command::own_command;

pub use self::unit::{UNIT, UnitError, program_for_root, quoted, unit};

// DECISION: there are five fixed actions without arguments, so a user with permission to call the helper can
// run nothing else. None of them loses data.
/// Way in which steps that need root are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootSteps {
    /// This process, which is root.
    Own,
    /// `sudo -n plimsoll reclaim-step STEP`.
    Sudo,
    /// `systemctl start plimsoll-reclaim@STEP.service`.
    Systemd,
    None,
}

#[derive(Debug, thiserror::Error)]
pub enum TakeStepError {
    #[error("cannot drop the page cache of the files: {error}")]
    Advise { error: io::Error },
    #[error("cannot write `{value}` to {}: {error}", path.display())]
    Write { path: PathBuf, value: String, error: io::Error },
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("this kernel cannot allocate huge pages: the file {} does not show their number", path.display())]
    NoHugePages { path: PathBuf },
    #[error("{} huge pages that were allocated could not be released: {error}\nhint: echo {before} > {}", claimed, path.display())]
    GiveBack { claimed: u64, before: u64, path: PathBuf, error: io::Error },
    #[error("`{step}` is not a reclaim step that needs root; those steps are {}", names())]
    NoStep { step: String },
    #[error("this step needs root; allow it by --with sudo or --with systemd")]
    NotRoot,
    #[error("cannot start `{command}`: {error}")]
    Start { command: String, error: io::Error },
    #[error("`{command}` failed: {stated}")]
    Failed { command: String, stated: String },
}

const DROP_CACHES: &str = "proc/sys/vm/drop_caches";
const COMPACT: &str = "proc/sys/vm/compact_memory";

impl RootSteps {
    pub(super) fn take(self, step: ReclaimStep) -> Result<(), TakeStepError> {
        match self {
            Self::Own => take_as_root(step.name()),
            Self::None => Err(TakeStepError::NotRoot),
            Self::Sudo | Self::Systemd => run(&self.command(step)),
        }
    }

    /// The command line that runs the step, for this program or for the user.
    pub fn command(self, step: ReclaimStep) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match self {
            Self::Systemd => {
                words(&["systemctl", "start", &format!("plimsoll-reclaim@{}.service", step.name())])
            }
            // `-n` fails instead of prompting: this process has no terminal to type a password into.
            Self::Sudo => words(&["sudo", "-n", &program(), "reclaim-step", step.name()]),
            Self::Own | Self::None => words(&["sudo", &program(), "reclaim-step", step.name()]),
        }
    }
}

/// Runs the named step in this process.
pub fn take_as_root(step: &str) -> Result<(), TakeStepError> {
    // The root folder is a parameter below, so that tests work on a captured tree.
    take_under(Path::new("/"), step)
}

fn take_under(root: &Path, name: &str) -> Result<(), TakeStepError> {
    // The name comes from an unprivileged caller, so it is checked against the steps meant for root.
    let step = ReclaimStep::named(name).filter(|step| step.needs_root());
    let step = step.ok_or_else(|| TakeStepError::NoStep { step: name.to_owned() })?;
    match step {
        ReclaimStep::Compact => write(root, COMPACT, "1"),
        ReclaimStep::ClaimHugePages => huge_pages::claim_and_give_back(root),
        ReclaimStep::DropPageCache => write(root, DROP_CACHES, "1"),
        // drop_caches frees clean pages only (Documentation/admin-guide/sysctl/vm.rst), so dirty pages are
        // written first.
        ReclaimStep::WriteAndDropPageCache => {
            rustix::fs::sync();
            write(root, DROP_CACHES, "1")
        }
        // 1 drops the page cache, 2 slab objects such as dentries and inodes, and 3 both.
        ReclaimStep::DropSlab => write(root, DROP_CACHES, "3"),
        ReclaimStep::AdviseFiles | ReclaimStep::AskNeighbours => {
            Err(TakeStepError::NoStep { step: name.to_owned() })
        }
    }
}

/// Writes without creating the file: a kernel without the file does not support the step.
fn write(root: &Path, path: &str, value: &str) -> Result<(), TakeStepError> {
    let path = root.join(path);
    let written =
        File::options().write(true).open(&path).and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(|error| TakeStepError::Write { path, value: value.to_owned(), error })
}

fn run(words: &[String]) -> Result<(), TakeStepError> {
    let command = words.join(" ");
    let (program, arguments) = words.split_first().map_or(("", words), |(first, rest)| (first, rest));
    let output = own_command(program).and_then(|mut command| {
        // sudo must fail rather than ask for a password on the terminal. `output` reads stderr to its end, so
        // the reason for a refusal by sudo or systemd is not lost.
        command.args(arguments).stdin(Stdio::null()).output()
    });
    let output = output.map_err(|error| TakeStepError::Start { command: command.clone(), error })?;
    if output.status.success() {
        return Ok(());
    }
    let stated = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let stated = if stated.is_empty() { output.status.to_string() } else { stated };
    Err(TakeStepError::Failed { command, stated })
}

fn names() -> String {
    let names: Vec<&str> =
        ReclaimStep::ALL.into_iter().filter(|step| step.needs_root()).map(ReclaimStep::name).collect();
    names.join(", ")
}

/// Path of this program.
fn program() -> String {
    // sudo resets PATH, so the absolute path is given.
    let path = std::env::current_exe().ok();
    path.map_or_else(|| "plimsoll".to_owned(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_step_is_one_write() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/sys/vm")).unwrap();
        for path in [DROP_CACHES, COMPACT] {
            fs::write(root.path().join(path), "").unwrap();
        }
        for (step, path, value) in [
            ("drop-page-cache", DROP_CACHES, "1"),
            ("drop-slab", DROP_CACHES, "3"),
            ("compact", COMPACT, "1"),
        ] {
            take_under(root.path(), step).unwrap();
            assert_eq!(fs::read_to_string(root.path().join(path)).unwrap(), value, "{step}");
        }
    }

    #[test]
    fn nothing_else_is_a_step_and_a_lever_that_is_not_there_is_not_made() {
        let root = tempfile::tempdir().unwrap();
        for step in ["advise-files", "ask-neighbours", "../compact", "", "1"] {
            let error = take_under(root.path(), step).unwrap_err().to_string();
            assert!(error.contains("compact, claim-huge-pages, drop-page-cache"), "{error}");
        }
        let error = take_under(root.path(), "compact").unwrap_err().to_string();
        assert!(error.contains("compact_memory"), "{error}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_helper_that_fails_or_is_not_there_is_named() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(run(&words(&["true"])).is_ok());
        let failed = run(&words(&["sh", "-c", "echo no right to >&2; exit 1"])).unwrap_err();
        assert!(failed.to_string().ends_with("no right to"), "{failed}");
        assert!(matches!(run(&words(&["/no/such/helper"])), Err(TakeStepError::Start { .. })));
        assert!(RootSteps::Sudo.command(ReclaimStep::Compact).join(" ").ends_with("reclaim-step compact"));
    }
}
