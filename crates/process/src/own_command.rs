//! Builds the command for a program that Plimsoll runs for itself, such as an interpreter or an engine that
//! prints its version.
//!
//! DECISION: such a program starts in `/`, on Windows in the system's folder, and is never looked up in the
//! caller's. Python imports from there, and llama.cpp loads backends from there
//! (`ggml-backend-reg.cpp: ggml_backend_load_best @ 0.5.0`).
//! Engines that serve models start in the user's folder.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::system;

/// Command for `program`: a path, or a name that is looked up on PATH.
pub fn own_command(program: impl AsRef<Path>) -> io::Result<Command> {
    let mut command = Command::new(resolve(program.as_ref())?);
    command.current_dir(system::folder());
    Ok(command)
}

/// Resolves a program by the shell's rule: a name without a slash is searched on PATH, anything else is a
/// path. Relative entries of PATH are skipped, so that the result does not depend on the current folder.
pub fn resolve(program: &Path) -> io::Result<PathBuf> {
    if program.components().count() > 1 || program.is_absolute() {
        return std::path::absolute(program);
    }
    let name = system::file_name(program);
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut found = env::split_paths(&folders).filter(|folder| folder.is_absolute());
    let found = found.find_map(|folder| Some(folder.join(&name)).filter(|path| is_program(path)));
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no such program on PATH"))
}

pub fn is_program(path: &Path) -> bool {
    system::is_program(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_starts_in_the_root_folder_and_by_an_absolute_path() {
        let started = own_command("pwd").unwrap().output().unwrap();
        assert_eq!(String::from_utf8_lossy(&started.stdout), "/\n");
        for name in ["sh", "./sh", "bin/sh", "/bin/sh"] {
            assert!(Path::new(own_command(name).unwrap().get_program()).is_absolute(), "{name}");
        }
        assert_eq!(own_command("no-such-program").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
