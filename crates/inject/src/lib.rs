//! Starts a program of Windows with libraries loaded into it before its first instruction.
//!
//! The program begins suspended, in a job that ends it with its starter. A thread in it loads each library by
//! `LoadLibraryW`; then the program goes on. On other systems the crate is empty.
//!
//! DECISION: the crate has unsafe code, because the standard library has neither jobs nor memory of other
//! processes. It has nothing else, so that its users forbid unsafe code.
#![cfg(windows)]

mod job;
mod remote;
mod thread;

use std::io;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::io::{AsHandle, AsRawHandle};
use std::os::windows::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use windows_sys::Win32::System::Console::SetConsoleCtrlHandler;
use windows_sys::Win32::System::Threading::CREATE_SUSPENDED;

pub use self::job::Job;
pub use self::remote::{LoadError, load};

/// Error: a program could not be started with its libraries.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot start `{}`: {source}", .program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("cannot load `{}` into `{}`: {source}", .library.display(), .program.display())]
    Load { program: PathBuf, library: PathBuf, source: LoadError },
    #[error("cannot resume `{}`: {source}", .program.display())]
    Resume { program: PathBuf, source: io::Error },
}

/// A program that runs with its libraries.
#[derive(Debug)]
pub struct Injected {
    pub child: Child,
    /// Ends the program and what it started when it is dropped. The error of a system that refused: Windows 7
    /// has no job within a job.
    pub job: io::Result<Job>,
}

/// Starts `command` and loads `libraries`, in their order, before the program runs.
pub fn start(command: &mut Command, libraries: &[&Path]) -> Result<Injected, StartError> {
    let program = PathBuf::from(command.get_program());
    let child = command.creation_flags(CREATE_SUSPENDED).spawn();
    let mut child = child.map_err(|source| StartError::Start { program: program.clone(), source })?;
    // Before the program runs: what it starts is in the job, too.
    let job = Job::with(child.as_raw_handle());
    let prepared = prepare(&child, &program, libraries);
    if prepared.is_err() {
        // Suspended as it is, it would wait for ever.
        let _ = child.kill().and_then(|()| child.wait());
    }
    prepared.map(|()| Injected { child, job })
}

fn prepare(child: &Child, program: &Path, libraries: &[&Path]) -> Result<(), StartError> {
    let program = program.to_owned();
    for library in libraries {
        let wide: Vec<u16> = library.as_os_str().encode_wide().chain([0]).collect();
        if let Err(source) = load(child.as_handle(), &wide) {
            return Err(StartError::Load { program, library: library.to_path_buf(), source });
        }
    }
    thread::resume(child.id()).map_err(|source| StartError::Resume { program, source })
}

/// Leaves Ctrl-C to the started program, which has the same console. Call it after [`start`]: programs that
/// are started later would ignore Ctrl-C as well.
pub fn leave_ctrl_c() {
    // SAFETY: without a function, the call sets one flag of this process.
    unsafe { SetConsoleCtrlHandler(None, 1) };
}
