//! Client of the warden, a helper process that kills all engines when the daemon dies.
//!
//! A warden that died is replaced and gets the whole list of process groups again.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Registered process groups, and the helper process that kills them.
#[derive(Debug)]
pub(super) struct Warden {
    program: std::path::PathBuf,
    helper: Child,
    groups: BTreeSet<u32>,
}

impl Warden {
    pub(super) fn start(program: &OsStr) -> io::Result<Self> {
        Ok(Self { program: program.into(), helper: helper(program)?, groups: BTreeSet::new() })
    }

    /// Registers `group`, which will be killed when the daemon dies.
    pub(super) fn register(&mut self, group: u32) -> io::Result<()> {
        self.groups.insert(group);
        self.tell(format_args!("+{group}\n"))
    }

    /// `group` is empty, and its number is about to be free for others.
    pub(super) fn strike_off(&mut self, group: u32) -> io::Result<()> {
        self.groups.remove(&group);
        self.tell(format_args!("-{group}\n"))
    }

    fn tell(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        match write_whole(&mut self.helper, &line.to_string()) {
            Ok(()) => Ok(()),
            Err(_) => self.replace(),
        }
    }

    fn replace(&mut self) -> io::Result<()> {
        tracing::warn!(
            "the warden, the process that kills engines if plimsoll dies, has died; starting \
            another"
        );
        // A helper that lost its pipe but lives would kill by its old list.
        let _ = self.helper.kill();
        let _ = self.helper.wait();
        self.helper = helper(self.program.as_os_str())?;
        let all: String = self.groups.iter().map(|group| format!("+{group}\n")).collect();
        write_whole(&mut self.helper, &all)
    }
}

/// Leaves the helper running: it ends by itself when its pipe closes, and killing it would leave the groups
/// alive.
impl Drop for Warden {
    fn drop(&mut self) {
        drop(self.helper.stdin.take());
        let _ = self.helper.wait();
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

fn write_whole(helper: &mut Child, text: &str) -> io::Result<()> {
    match &mut helper.stdin {
        Some(pipe) => pipe.write_all(text.as_bytes()),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}
