//! Windows' half: an engine in a job of its own, with the stand-ins loaded first, on a port of the loopback.
//!
//! If Plimsoll dies first, the system ends the job. Stand-ins that are loaded by their full paths answer for
//! NVIDIA's libraries, also for those beside the engine, and nothing is written into its folder.
// The foreign ABI: one call that makes a file sparse.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, PipeReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::windows::fs::MetadataExt;
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use plimsoll_base::{Bytes, Order};
use plimsoll_http::HttpClient;
use plimsoll_inject::Injected;
use windows_sys::Win32::System::IO::DeviceIoControl;
use windows_sys::Win32::System::Ioctl::FSCTL_SET_SPARSE;

use super::run::Job;

/// The loader searches the folders of this variable last.
pub(super) const SEARCHED: &str = "PATH";
/// No variable loads a library into a program.
pub(super) const LOADING: &[&str] = &[];
/// The folder of the forwarders, beside the library that they forward to.
const FORWARDERS: &str = "stand-ins";
/// Pieces of a log that wait to be read.
const PIECES: usize = 64;

/// Libraries that a thread loads into another program may alarm antivirus programs, so the user has to ask.
pub(super) const ASKS_INSTALLED: bool = false;

/// Nothing of a program's file keeps libraries out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {}

impl std::fmt::Display for Unreachable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

pub(super) fn unreachable(_: &Path) -> Option<Unreachable> {
    None
}

/// The place where an engine of a run listens: a port of the loopback interface.
#[derive(Clone, Debug)]
pub(super) struct Listening(u16);

impl Listening {
    /// The place of every run, for the key of a cached answer.
    pub(super) fn of_any() -> Self {
        Self(0)
    }

    /// A new place: a port that is free now.
    pub(super) fn beside(_: &Path) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok(Self(listener.local_addr()?.port()))
    }

    /// The engine's flags.
    pub(super) fn words(&self) -> Vec<String> {
        let words = ["--host", &Ipv4Addr::LOCALHOST.to_string(), "--port", &self.0.to_string()];
        words.map(str::to_owned).to_vec()
    }

    pub(super) fn client(&self) -> HttpClient {
        HttpClient::new(Ipv4Addr::LOCALHOST.to_string(), self.0)
    }
}

/// The libraries that are loaded into an engine: the stand-in, and then those with NVIDIA's names, which
/// forward to it.
#[derive(Debug)]
pub(super) struct StandIn(Vec<PathBuf>);

impl StandIn {
    /// Finds the forwarders beside the stand-in. The engine's own list of folders stays as it is.
    pub(super) fn place(library: &Path, _: &Path, _: &OsStr) -> io::Result<Self> {
        let folder = library.parent().unwrap_or(Path::new("")).join(FORWARDERS);
        let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        let mut names: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        names.order();
        Ok(Self([library.to_owned()].into_iter().chain(names).collect()))
    }
}

/// What distinguishes a file from one that has replaced it.
pub(super) fn version(about: &Metadata) -> String {
    format!("{} {} {}", about.file_size(), about.last_write_time(), about.creation_time())
}

/// Makes a file sparse, so that extending it takes no disk space. A file system without sparse files keeps
/// the zeros.
pub(super) fn make_sparse(file: &File) -> io::Result<()> {
    let mut returned = 0;
    // SAFETY: a live handle; the request has neither input nor output.
    unsafe {
        DeviceIoControl(
            file.as_raw_handle(),
            FSCTL_SET_SPARSE,
            null(),
            0,
            null_mut(),
            0,
            &raw mut returned,
            null_mut(),
        )
    };
    Ok(())
}

/// An engine that is ended on drop, with all that it started.
#[derive(Debug)]
pub(super) struct Engine(Injected);

impl Engine {
    /// Starts the engine; what it writes can be read from its log.
    pub(super) fn start(program: &Path, job: &Job) -> io::Result<(Self, Log)> {
        let (log, stated) = io::pipe()?;
        let mut command = Command::new(program);
        // The question built the whole environment. Inheriting more would let variables bypass its filter.
        command
            .args(&job.arguments)
            .env_clear()
            .envs(job.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(job.folder()).stdin(Stdio::null());
        command.stdout(stated.try_clone()?).stderr(stated);
        let libraries: Vec<&Path> = job.stand_in.0.iter().map(PathBuf::as_path).collect();
        let engine = plimsoll_inject::start(&mut command, &libraries).map_err(io::Error::other)?;
        Ok((Self(engine), Log::of(log)))
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.0.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Its memory on the host is not measured.
    pub(super) fn resident(&self) -> Bytes {
        Bytes::ZERO
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.0.child.kill();
        let _ = self.0.child.wait();
    }
}

/// What an engine writes on stdout and stderr, which a thread reads: a pipe cannot be waited for.
#[derive(Debug)]
pub(super) struct Log {
    pieces: Receiver<Vec<u8>>,
    /// What has arrived and was not read.
    rest: Vec<u8>,
}

impl Log {
    fn of(pipe: PipeReader) -> Self {
        let (sender, pieces) = sync_channel(PIECES);
        thread::spawn(move || pass_on(pipe, &sender));
        Self { pieces, rest: Vec::new() }
    }

    /// Waits until there is something to read, the end included; false after this time without.
    pub(super) fn wait(&mut self, time: Duration) -> io::Result<bool> {
        if !self.rest.is_empty() {
            return Ok(true);
        }
        match self.pieces.recv_timeout(time) {
            Ok(piece) => self.rest = piece,
            Err(RecvTimeoutError::Timeout) => return Ok(false),
            Err(RecvTimeoutError::Disconnected) => {}
        }
        Ok(true)
    }
}

impl Read for Log {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            // The end of the pipe is that of the thread.
            self.rest = self.pieces.recv().unwrap_or_default();
        }
        let count = self.rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}

/// Reads a pipe until its end, or until nobody listens any more.
fn pass_on(mut pipe: PipeReader, sender: &SyncSender<Vec<u8>>) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        if sender.send(buffer[..count].to_vec()).is_err() {
            return;
        }
    }
}
