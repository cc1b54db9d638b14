//! Starts and talks to the warden, a helper process that kills all engines when the daemon dies.
//!
//! A warden that died is replaced, and the new one gets the complete list of process groups.
//!
//! DECISION: the warden does not start together with the daemon. It starts once the daemon answers requests,
//! or with the first engine. Its start occupies a core for as long as the daemon's own.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Registered process groups, and the helper process that kills them.
#[derive(Debug)]
pub(crate) struct Warden {
    program: PathBuf,
    helper: Option<Child>,
    groups: BTreeSet<u32>,
}

impl Warden {
    /// A warden that is not started yet.
    pub(crate) fn of(program: PathBuf) -> Self {
        Self { program, helper: None, groups: BTreeSet::new() }
    }

    /// Starts the helper if there is none, and gives it the whole list.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        if self.helper.is_some() {
            return Ok(());
        }
        self.helper = Some(helper(self.program.as_os_str())?);
        let all: String = self.groups.iter().map(|group| format!("+{group}\n")).collect();
        self.write(&all)
    }

    /// Registers `group`, which will be killed when the daemon dies.
    pub(crate) fn register(&mut self, group: u32) -> io::Result<()> {
        self.groups.insert(group);
        self.notify(format_args!("+{group}\n"))
    }

    /// `group` is empty, and its number is about to be free for others.
    pub(crate) fn strike_off(&mut self, group: u32) -> io::Result<()> {
        self.groups.remove(&group);
        self.notify(format_args!("-{group}\n"))
    }

    fn notify(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        self.start()?;
        match self.write(&line.to_string()) {
            Ok(()) => Ok(()),
            Err(_) => self.replace(),
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        match self.helper.as_mut().and_then(|helper| helper.stdin.as_mut()) {
            Some(pipe) => pipe.write_all(text.as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn replace(&mut self) -> io::Result<()> {
        tracing::warn!(
            "the warden, the process that kills engines if plimsoll dies, has died; starting \
            another"
        );
        if let Some(mut dead) = self.helper.take() {
            // A helper that lost its pipe but lives would kill by its old list.
            let _ = dead.kill();
            let _ = dead.wait();
        }
        self.start()
    }
}

/// Leaves the helper running: it ends by itself when its pipe closes, and killing it would leave the groups
/// alive.
impl Drop for Warden {
    fn drop(&mut self) {
        if let Some(mut helper) = self.helper.take() {
            drop(helper.stdin.take());
            let _ = helper.wait();
        }
    }
}

fn helper(program: &OsStr) -> io::Result<Child> {
    Command::new(program)
        // The program is started by way of /proc/self/exe; `ps` shows its name instead.
        .arg0("plimsoll")
        .arg("warden")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
