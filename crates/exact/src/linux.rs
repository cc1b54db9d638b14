//! Linux' half: an engine in a process group of its own, with the stand-in preloaded, on a Unix socket.
//!
//! If Plimsoll dies first, the kernel kills the engine.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, PipeReader, Read};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_engine::EngineAddress;
use plimsoll_http::HttpClient;
pub(super) use plimsoll_probe::guard::{Unreachable, unreachable};
use plimsoll_process::{PLIMSOLL, descendants::sweep, resident};
use plimsoll_wire::env::STAND_INS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, getuid, kill_process_group, waitid};

use super::run::{Job, RunVariables};

/// The loader's own list of folders.
pub(super) const SEARCHED: &str = "LD_LIBRARY_PATH";
/// Beginnings of names of variables that would load other libraries into the engine.
pub(super) const LOADING: &[&str] = &["LD_PRELOAD", SEARCHED];

/// An installed engine is asked without a word of the user.
pub(super) const ASKS_INSTALLED: bool = true;

/// The place where an engine of a run listens: a socket whose name ends as llama-server wants it.
#[derive(Clone, Debug)]
pub(super) struct Listening(PathBuf);

impl Listening {
    /// The place of every run, for the key of a cached answer.
    pub(super) fn of_any() -> Self {
        Self(PathBuf::from("s.sock"))
    }

    /// A new place for the run with this report.
    pub(super) fn beside(report: &Path) -> io::Result<Self> {
        Ok(Self(report.with_extension("sock")))
    }

    /// The engine's flags.
    pub(super) fn words(&self) -> Vec<String> {
        vec!["--host".to_owned(), self.0.to_string_lossy().into_owned()]
    }

    pub(super) fn client(&self) -> HttpClient {
        EngineAddress::Socket { path: self.0.clone(), user: getuid().as_raw() }.client()
    }
}

/// The variables by which an engine runs on the stand-in.
#[derive(Debug)]
pub(super) struct StandIn(RunVariables);

impl StandIn {
    /// Places the names of the drivers' libraries in a folder. `others` is the engine's own list of folders.
    ///
    /// The loader takes a library by its name, so a machine without CUDA has the names here. The preload
    /// answers before any other library of these names that the engine's own search path leads to.
    pub(super) fn place(library: &Path, folder: &Path, others: &OsStr) -> io::Result<Self> {
        let folder = folder.join("stand-ins");
        // The loader knows a file by its inode, so every name leads to the one library that is preloaded.
        let link = |name: &&str| symlink(library, folder.join(name));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => created.and_then(|()| STAND_INS.iter().try_for_each(link))?,
        }
        let mut searched = folder.into_os_string();
        if !others.is_empty() {
            searched.push(":");
            searched.push(others);
        }
        Ok(Self(vec![(SEARCHED.into(), searched), ("LD_PRELOAD".into(), library.into())]))
    }
}

/// What distinguishes a file from one that has replaced it.
pub(super) fn version(about: &Metadata) -> String {
    format!("{} {}.{:09} {}", about.size(), about.mtime(), about.mtime_nsec(), about.ino())
}

/// Extending a file leaves a hole: no block is allocated (ftruncate(2)).
pub(super) fn make_sparse(_: &fs::File) -> io::Result<()> {
    Ok(())
}

/// An engine that is killed on drop, with all that it started, in whatever group or session.
#[derive(Debug)]
pub(super) struct Engine(Child);

impl Engine {
    /// Starts the engine; what it writes can be read from its log.
    pub(super) fn start(program: &Path, job: &Job) -> io::Result<(Self, Log)> {
        let (log, stated) = io::pipe()?;
        let child = Command::new(PLIMSOLL)
            .arg("exec-child")
            .args(["--parent", &getpid().as_raw_nonzero().to_string(), "--"])
            .arg(program)
            .args(&job.arguments)
            // The question built the whole environment. Inheriting more would let variables bypass its
            // filter.
            .env_clear()
            .envs(job.environment.iter().chain(&job.stand_in.0).map(|(name, value)| (name, value)))
            .current_dir(job.folder())
            .stdin(Stdio::null())
            .stdout(stated.try_clone()?)
            .stderr(stated)
            .process_group(0)
            .spawn()?;
        Ok((Self(child), Log(log)))
    }

    /// True if the engine has ended; it stays a zombie.
    pub(super) fn has_ended(&mut self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.0)), options).is_ok_and(|status| status.is_some())
    }

    /// Its memory on the host, with that of its descendants.
    pub(super) fn resident(&self) -> Bytes {
        resident(self.0.id()).unwrap_or_default()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The leader is not reaped yet, so the kernel cannot have reused its number.
        if !sweep(self.0.id()) {
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            sweep(self.0.id());
        }
        let _ = self.0.wait();
    }
}

/// What an engine writes on stdout and stderr.
#[derive(Debug)]
pub(super) struct Log(PipeReader);

impl Log {
    /// Waits until there is something to read, the end included; false after this time without.
    pub(super) fn wait(&mut self, time: Duration) -> io::Result<bool> {
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&time)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Read for Log {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}
