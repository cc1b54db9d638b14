//! `plimsoll exec-child` (hidden): asks the kernel to kill this process when its parent dies, then replaces
//! it by the engine.
//!
//! A process can set this signal only for itself, and safe Rust cannot run code between fork and exec.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use plimsoll_process::{
    confinement::{UserNumbers, become_user, enter_private_tmp, forbid_core_dumps, forbid_new_privileges},
    descendants::CHILD_MARK,
};
use plimsoll_verb::child::{NOT_EXECUTABLE, NOT_FOUND};
use plimsoll_wire::control::{EXEC_FAILED, NOT_PERMITTED};
use rustix::process::{Pid, Signal, getpid, getppid, set_child_subreaper, set_parent_process_death_signal};

use crate::terminal::unchanged_stderr;

/// Exit status of wrong arguments.
const MISUSED: u8 = 2;

/// Not one of the subcommands that the help lists.
pub(crate) const VERB: &str = "exec-child";

// DECISION: read by hand. Every load of a model waits for it, and clap takes a twentieth of the trampoline's
// time.
/// Request of the launcher.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Process ID of the launcher.
    parent: i32,
    /// User and group under which the engine runs, by number.
    user: Option<UserNumbers>,
    /// Private folder of the engine; its `tmp` replaces /tmp.
    folder: Option<PathBuf>,
    /// Do not let the engine gain privileges through setuid programs.
    no_new_privileges: bool,
    /// Engine to run in this process, with its arguments.
    command: Vec<OsString>,
}

impl Arguments {
    /// Parses `--parent N [--user U:G] [--folder F] [--no-new-privileges] -- COMMAND...`.
    pub(crate) fn read(mut words: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut read = Self::default();
        loop {
            match words.next()?.to_str()? {
                "--parent" => read.parent = words.next()?.to_str()?.parse().ok()?,
                "--user" => read.user = Some(words.next()?.to_str()?.parse().ok()?),
                "--folder" => read.folder = Some(words.next()?.into()),
                "--no-new-privileges" => read.no_new_privileges = true,
                "--" => break,
                _ => return None,
            }
        }
        read.command = words.collect();
        (read.parent > 0 && !read.command.is_empty()).then_some(read)
    }
}

/// Becomes the engine that the words behind the verb describe.
pub(crate) fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(arguments) = Arguments::read(words) else {
        let _ = writeln!(
            unchanged_stderr(),
            "plimsoll {VERB}: this is an internal command, which only plimsoll itself starts"
        );
        return ExitCode::from(MISUSED);
    };
    run(&arguments)
}

fn run(arguments: &Arguments) -> ExitCode {
    let (program, rest) = match arguments.command.split_first() {
        Some((program, rest)) => (program, rest),
        None => return ExitCode::from(NOT_FOUND),
    };
    // Closes descriptors that the daemon inherited without close-on-exec, for example from a shell or a
    // terminal.
    close_fds::set_fds_cloexec(3, &[]);
    let mut command = Command::new(program);
    command.args(rest);
    if let Err(error) = confine(arguments, &mut command) {
        return failed(program, &error);
    }
    // Orphans of the engine stay in its process tree, where the launcher finds them. Kernels before 3.4 lack
    // subreapers; there the mark in the environment has to suffice.
    let own = getpid();
    let _ = set_child_subreaper(Some(own));
    // After the change of user, which would take the signal back.
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    let parent = getppid().map(Pid::as_raw_nonzero);
    if bound.is_err() || parent.map(i32::from) != Some(arguments.parent) {
        return ExitCode::FAILURE;
    }
    let mark = own.as_raw_nonzero().to_string();
    failed(program, &command.env(CHILD_MARK, mark).exec())
}

/// Confines this process as asked. Only the change of user must succeed.
fn confine(arguments: &Arguments, command: &mut Command) -> std::io::Result<()> {
    if let Some(folder) = &arguments.folder {
        let words = arguments.command.iter().cloned();
        let named: Vec<OsString> = words.chain(std::env::vars_os().map(|(_, value)| value)).collect();
        let entered = enter_private_tmp(folder, named.iter().map(OsString::as_os_str));
        notify("a private /tmp", entered.as_ref().err());
        match entered {
            Ok(true) => command.env_remove("TMPDIR"),
            Ok(false) | Err(_) => command.env("TMPDIR", folder.join("tmp")),
        };
    }
    notify("no core dumps", forbid_core_dumps().as_ref().err());
    if let Some(user) = &arguments.user {
        become_user(user)?;
    }
    if arguments.no_new_privileges {
        notify("no new privileges", forbid_new_privileges().as_ref().err());
    }
    Ok(())
}

fn notify(what: &str, error: Option<&std::io::Error>) {
    if let Some(error) = error {
        let _ = writeln!(unchanged_stderr(), "{NOT_PERMITTED}{what} ({error})");
    }
}

fn failed(program: &OsStr, error: &std::io::Error) -> ExitCode {
    let _ = writeln!(unchanged_stderr(), "{EXEC_FAILED}{}: {error}", program.to_string_lossy());
    match error.kind() {
        std::io::ErrorKind::NotFound => ExitCode::from(NOT_FOUND),
        _ => ExitCode::from(NOT_EXECUTABLE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Arguments> {
        Arguments::read(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_launchers_words_are_read_and_those_of_the_engine_are_left_alone() {
        let read_all =
            read("--parent 7 --folder /run/x --no-new-privileges --user 3:4:4,5 -- /bin/e --parent 9 -- x")
                .unwrap();
        assert_eq!((read_all.parent, read_all.no_new_privileges, read_all.user.is_some()), (7, true, true));
        assert_eq!(read_all.folder.as_deref(), Some(std::path::Path::new("/run/x")));
        assert_eq!(read_all.command, ["/bin/e", "--parent", "9", "--", "x"]);
    }

    #[test]
    fn anything_else_is_refused() {
        for line in [
            "",
            "--parent",
            "--parent 7",
            "--parent 7 --",
            "--parent x -- e",
            "--parent 0 -- e",
            "-- e",
            "--parent 7 e",
            "--parent 7 --user root -- e",
            "--parent=7 -- e",
            "--parent 7 --folder",
            "--parent 99999999999 -- e",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
