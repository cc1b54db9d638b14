//! Finds out what an engine program is: its project (llama.cpp, ik_llama.cpp) and its build number.
//!
//! The program is run with `--version`, and the result is cached until the program's file changes.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use plimsoll_base::indented;
use plimsoll_flags::{EngineBuild, EngineKind};

use super::EngineProgram;
use plimsoll_process::own_command::own_command;
use plimsoll_process::{ProgramEnded, run};

pub(super) const LIMIT: Duration = Duration::from_secs(5);
// DECISION: a file name proves nothing. Where `--version` is ambiguous, `--help` decides: only ik_llama.cpp
// lists a flag to repack weights at run time.
/// Flag that only ik_llama.cpp has (`common/common.cpp: gpt_params_print_usage`).
const IK_FLAG: &str = "--run-time-repack";
/// The ending by which llama-server knows a Unix socket (`arg.cpp: --host @ b10605`).
const SOCKET_ENDING: &str = ".sock";
/// The kernel reads no more of a script's first line (`binfmt_script.c`).
const FIRST_LINE: u64 = 256;

/// Kind and build that a program reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineIdentity {
    /// Kind and build, in the form that a plan needs.
    pub engine: EngineBuild,
    /// The version line as the program prints it.
    pub version: String,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("cannot run {} --version: {source}", path.display())]
    Ask { path: PathBuf, source: io::Error },
    #[error("{} --version did not end within {} s\nhint: run this command by hand; the cause may be a GPU \
        driver that hangs", path.display(), LIMIT.as_secs())]
    Wait { path: PathBuf },
    #[error("{} --version prints no llama.cpp version; its output is{}", path.display(), indented(.stated))]
    Parse { path: PathBuf, stated: String },
}

/// Asks the program which engine it is.
pub fn identify(program: &EngineProgram) -> Result<EngineIdentity, IdentityError> {
    static KNOWN: Answers<EngineIdentity> = Mutex::new(Vec::new());
    remembered(&KNOWN, &program.path, ask_program)
}

/// Finds out whether the program can listen on a Unix socket: its help says so beside `--host`.
pub fn takes_socket(program: &Path) -> bool {
    static KNOWN: Answers<bool> = Mutex::new(Vec::new());
    let ask = |path: &Path| Ok(ask(path, "--help")?.stated.contains(SOCKET_ENDING));
    remembered(&KNOWN, program, ask).unwrap_or(false)
}

/// True for a shell script, which may start the engine anywhere (a container).
pub fn is_shell_script(program: &Path) -> bool {
    let mut first = Vec::new();
    let read = plimsoll_file::open(program).and_then(|file| file.take(FIRST_LINE).read_to_end(&mut first));
    let first = String::from_utf8_lossy(&first);
    let interpreter = first.lines().next().and_then(|line| line.strip_prefix("#!"));
    // `#!/usr/bin/env bash` names it in its second word.
    let is_shell = |line: &str| line.split_whitespace().any(|word| word.ends_with("sh"));
    read.is_ok() && interpreter.is_some_and(is_shell)
}

/// Answers of programs, each valid for as long as the file does not change.
pub(super) type Answers<T> = Mutex<Vec<(Stamp, T)>>;

pub(super) fn remembered<T: Clone>(
    known: &Answers<T>,
    path: &Path,
    ask: impl FnOnce(&Path) -> Result<T, IdentityError>,
) -> Result<T, IdentityError> {
    let stamp = Stamp::of(path).map_err(|source| IdentityError::Ask { path: path.to_owned(), source })?;
    // Held while the program runs, so that two callers at once start it once. No panic leaves the list half
    // changed.
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, answer)) = known.iter().find(|(of, _)| *of == stamp) {
        return Ok(answer.clone());
    }
    let answer = ask(path)?;
    // An upgrade replaces the file, and the answer of the old one must go.
    known.retain(|(of, _)| of.path != stamp.path);
    known.push((stamp, answer.clone()));
    Ok(answer)
}

/// Properties of a program file; while they are the same, the stored result is valid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    path: PathBuf,
    modified: SystemTime,
    size: u64,
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self { path: path.to_owned(), modified: metadata.modified()?, size: metadata.len() })
    }
}

fn ask_program(path: &Path) -> Result<EngineIdentity, IdentityError> {
    let answer = ask(path, "--version")?;
    let Some(version) = version_line(&answer.stated) else {
        return Err(IdentityError::Parse { path: path.to_owned(), stated: answer.tail(5) });
    };
    // `--help` is a second start of the program, so it is used only where the version does not decide.
    let kind = if version.ambiguous && ask(path, "--help")?.stated.contains(IK_FLAG) {
        EngineKind::IkLlamaCpp
    } else {
        EngineKind::LlamaCpp
    };
    let engine = EngineBuild { kind, build: version.build };
    Ok(EngineIdentity { engine, version: version.line.to_owned() })
}

pub(super) fn ask(path: &Path, flag: &str) -> Result<ProgramEnded, IdentityError> {
    let ended = own_command(path)
        .and_then(|mut command| run(command.arg(flag), LIMIT))
        .map_err(|source| IdentityError::Ask { path: path.to_owned(), source })?;
    // Only a missing status is an error: a program that prints its version and fails has still answered.
    if ended.status.is_none() {
        return Err(IdentityError::Wait { path: path.to_owned() });
    }
    Ok(ended)
}

pub(crate) struct VersionLine<'a> {
    line: &'a str,
    build: Option<u32>,
    /// True for the spelling that llama.cpp and ik_llama.cpp share.
    ambiguous: bool,
}

/// Finds the version among whatever a GPU backend prints before it.
pub(crate) fn version_line(stated: &str) -> Option<VersionLine<'_>> {
    stated.lines().find_map(|line| {
        let line = line.trim();
        let rest = line.strip_prefix("version: ")?;
        // A line without brackets or a number is another tool's, and the search goes on.
        let (_, bracket) = rest.split_once(" (")?;
        let build = EngineBuild::number_in(rest)?;
        Some(VersionLine { line, build, ambiguous: !bracket.starts_with("build ") })
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::program::EngineOrigin;

    fn look_alike(directory: &Path, script: &str) -> EngineProgram {
        let path = directory.join("llama-server");
        let mut file = fs::File::create(&path).unwrap();
        write!(file, "#!/bin/sh\n{script}\n").unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o755)).unwrap();
        EngineProgram { path, origin: EngineOrigin::Configured }
    }

    #[test]
    fn every_known_spelling_of_the_version_is_read() {
        let build = |stated| version_line(stated).unwrap().build;
        assert_eq!(build("version: 10605 (c1d0e7a)\nbuilt with GNU 12.2.0 for Linux x86_64"), Some(10605));
        assert_eq!(build("version: 0.3.0-dev (build 10621, commit c1d0e7a00)"), Some(10621));
        assert_eq!(
            build("ggml_cuda_init: found 1 CUDA devices:\n  Device 0\nversion: 4848 (0ed847d3)"),
            Some(4848)
        );
        assert_eq!(build("version: 0.2.0-dev (build 1, commit unknown)"), None);
        assert_eq!(build("version: 0 (unknown)"), None);
    }

    #[test]
    fn malformed_version_lines_are_rejected() {
        for stated in
            ["", "version: ", "version: (", "version: one (two)", "version: 99999999999 (x)", "v 10605 (x)"]
        {
            assert!(version_line(stated).is_none(), "{stated}");
        }
    }

    #[test]
    fn ik_llama_is_distinguished_from_llama_by_a_flag_that_only_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let ik = r#"[ "$1" = --version ] && echo "version: 4848 (0ed847d3)" >&2 || echo "-rtr, --run-time-repack""#;
        let identity = identify(&look_alike(directory.path(), ik)).unwrap();
        assert_eq!(identity.engine, EngineBuild { kind: EngineKind::IkLlamaCpp, build: Some(4848) });
    }

    #[test]
    fn a_program_is_asked_again_only_after_its_file_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let requested = directory.path().join("asked");
        let answer = |build| {
            format!("echo >> {}\necho \"version: 0.6.0-dev (build {build}, commit a)\"", requested.display())
        };
        let program = look_alike(directory.path(), &answer(11549));
        assert_eq!(identify(&program).unwrap(), identify(&program).unwrap());
        assert_eq!(fs::read_to_string(&requested).unwrap().lines().count(), 1);
        let program = look_alike(directory.path(), &answer(115500));
        assert_eq!(identify(&program).unwrap().engine.build, Some(115_500));
    }

    #[test]
    fn a_program_takes_a_socket_if_its_help_says_so_and_a_shell_script_is_known_as_one() {
        let directory = tempfile::tempdir().unwrap();
        let says = |text: &str| look_alike(directory.path(), &format!("echo '{text}'")).path;
        assert!(takes_socket(&says("--host HOST  bind to an UNIX socket if the address ends with .sock")));
        assert!(!takes_socket(&says("--host HOST  ip address to listen")));
        assert!(!takes_socket(Path::new("/nowhere/llama-server")));
        assert!(is_shell_script(&says("")));
        assert!(!is_shell_script(Path::new("/proc/self/exe")));
        let python = directory.path().join("python");
        fs::write(&python, "#!/usr/bin/python3 -I\nsh\n").unwrap();
        assert!(!is_shell_script(&python));
    }

    #[test]
    fn a_program_that_is_no_engine_is_refused_with_what_it_said() {
        let directory = tempfile::tempdir().unwrap();
        let error = identify(&look_alike(directory.path(), "echo usage: something else")).unwrap_err();
        assert!(error.to_string().contains("usage: something else"), "{error}");
    }
}
