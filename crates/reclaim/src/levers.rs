//! Reclaim steps that need root, and the process that takes them.
//!
//! DECISION: five fixed actions, each with a name and no argument, so that permission to call the helper
//! grants these and nothing else. A clean page cache can be dropped at any time without loss,
//! `compact_memory` moves pages and changes no byte, and claimed huge pages are released at once.

mod huge_pages;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use plimsoll_host::Step;

/// Process that takes the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hands {
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
    #[error("cannot give back the page cache of the files: {error}")]
    Advise { error: io::Error },
    #[error("cannot write `{value}` to {}: {error}", path.display())]
    Write {
        path: PathBuf,
        value: String,
        error: io::Error,
    },
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("this kernel has no huge pages to claim: {} does not say how many there are", path.display())]
    NoHugePages { path: PathBuf },
    #[error("{} huge pages that were claimed could not be given back: {error}\nhint: echo {before} > {}", claimed, path.display())]
    GiveBack {
        claimed: u64,
        before: u64,
        path: PathBuf,
        error: io::Error,
    },
    #[error("`{step}` is no step for root; there are {}", names())]
    NoStep { step: String },
    #[error("this step needs root")]
    NotRoot,
    #[error("cannot start `{command}`: {error}")]
    Start { command: String, error: io::Error },
    #[error("`{command}` failed: {said}")]
    Failed { command: String, said: String },
}

const DROP_CACHES: &str = "proc/sys/vm/drop_caches";
const COMPACT: &str = "proc/sys/vm/compact_memory";

impl Hands {
    pub(super) fn take(self, step: Step) -> Result<(), TakeStepError> {
        match self {
            Self::Own => take_as_root(step.name()),
            Self::None => Err(TakeStepError::NotRoot),
            Self::Sudo | Self::Systemd => run(&self.command(step)),
        }
    }

    /// The words that take the step, for a process or for a person.
    pub fn command(self, step: Step) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match self {
            Self::Systemd => words(&[
                "systemctl",
                "start",
                &format!("plimsoll-reclaim@{}.service", step.name()),
            ]),
            Self::Sudo => words(&["sudo", "-n", &program(), "reclaim-step", step.name()]),
            Self::Own | Self::None => words(&["sudo", &program(), "reclaim-step", step.name()]),
        }
    }
}

/// Takes the step with this name, in this process.
pub fn take_as_root(step: &str) -> Result<(), TakeStepError> {
    take_under(Path::new("/"), step)
}

fn take_under(root: &Path, name: &str) -> Result<(), TakeStepError> {
    let step = Step::named(name).filter(|step| step.needs_root());
    let step = step.ok_or_else(|| TakeStepError::NoStep {
        step: name.to_owned(),
    })?;
    match step {
        Step::Compact => write(root, COMPACT, "1"),
        Step::ClaimHugePages => huge_pages::claim_and_give_back(root),
        Step::DropPageCache => write(root, DROP_CACHES, "1"),
        Step::WriteAndDropPageCache => {
            // Dirty pages cannot be dropped; `drop_caches` skips them (fs/drop_caches.c).
            rustix::fs::sync();
            write(root, DROP_CACHES, "1")
        }
        Step::DropSlab => write(root, DROP_CACHES, "3"),
        Step::AdviseFiles | Step::AskNeighbours => Err(TakeStepError::NoStep {
            step: name.to_owned(),
        }),
    }
}

/// Opened without being made: where there is no such file, there is no such lever.
fn write(root: &Path, path: &str, value: &str) -> Result<(), TakeStepError> {
    let path = root.join(path);
    let written = File::options()
        .write(true)
        .open(&path)
        .and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(|error| TakeStepError::Write {
        path,
        value: value.to_owned(),
        error,
    })
}

fn run(words: &[String]) -> Result<(), TakeStepError> {
    let command = words.join(" ");
    let (program, arguments) = words
        .split_first()
        .map_or(("", words), |(first, rest)| (first, rest));
    let output = Command::new(program)
        .args(arguments)
        // sudo must fail rather than ask for a password on the terminal.
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| TakeStepError::Start {
        command: command.clone(),
        error,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let said = if said.is_empty() {
        output.status.to_string()
    } else {
        said
    };
    Err(TakeStepError::Failed { command, said })
}

fn names() -> String {
    let names: Vec<&str> = Step::ALL
        .into_iter()
        .filter(|step| step.needs_root())
        .map(Step::name)
        .collect();
    names.join(", ")
}

/// This program's own path.
fn program() -> String {
    let path = std::env::current_exe().ok();
    path.map_or_else(|| "plimsoll".to_owned(), |path| path.display().to_string())
}

/// Path of the file for [`unit()`].
pub const UNIT: &str = "/etc/systemd/system/plimsoll-reclaim@.service";

/// A systemd unit of which each instance takes one step. It runs as root with no capability at all: the files
/// belong to root.
pub fn unit() -> String {
    format!(
        "# {UNIT}\n\
         [Unit]\n\
         Description=Plimsoll reclaims memory: %i\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         ExecStart={} reclaim-step %i\n\
         CapabilityBoundingSet=\n\
         NoNewPrivileges=yes\n\
         PrivateNetwork=yes\n\
         PrivateTmp=yes\n\
         ProtectHome=read-only\n\
         ProtectSystem=strict\n\
         RestrictAddressFamilies=none\n\
         SystemCallArchitectures=native\n\
         TimeoutStartSec=120\n",
        program()
    )
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
            assert_eq!(
                fs::read_to_string(root.path().join(path)).unwrap(),
                value,
                "{step}"
            );
        }
    }

    #[test]
    fn nothing_else_is_a_step_and_a_lever_that_is_not_there_is_not_made() {
        let root = tempfile::tempdir().unwrap();
        for step in ["advise-files", "ask-neighbours", "../compact", "", "1"] {
            let error = take_under(root.path(), step).unwrap_err().to_string();
            assert!(
                error.contains("compact, claim-huge-pages, drop-page-cache"),
                "{error}"
            );
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
        assert!(matches!(
            run(&words(&["/no/such/helper"])),
            Err(TakeStepError::Start { .. })
        ));
        assert!(
            Hands::Sudo
                .command(Step::Compact)
                .join(" ")
                .ends_with("reclaim-step compact")
        );
        assert!(unit().contains("reclaim-step %i\n"));
    }
}
