//! Finds the engine program on this machine: any program with llama-server's command line.
//!
//! The configured command comes first, then `llama-server` on PATH, then the CPU engine that Plimsoll
//! installed.

mod backends;
mod home;
mod identity;
#[cfg(unix)]
mod in_use;
#[cfg(unix)]
mod install;
#[cfg(unix)]
mod linux;
mod listed_flags;
mod vulkan;
#[cfg(windows)]
mod windows;

use std::path::{Path, PathBuf};

pub use self::backends::{backend_names, backends, libraries, real_program, usual_backends};
pub use self::home::{EngineHome, HomeError};
#[cfg(test)]
pub(crate) use self::identity::version_line;
pub use self::identity::{IdentityError, identify, is_shell_script, takes_socket};
#[cfg(unix)]
pub use self::in_use::in_use;
#[cfg(unix)]
pub use self::install::{InstallError, InstallStep, RELEASE, install, installed, uninstall};
pub use self::listed_flags::lists_flag;
pub use self::vulkan::{listed_device, lists_card_without_vulkan, vulkan_cards, vulkan_numbers};

#[cfg(unix)]
use self::linux as system;
#[cfg(windows)]
use self::windows as system;
use plimsoll_process::own_command;

/// The name that llama.cpp and its family give their server.
const LLAMA_SERVER: &str = "llama-server";

/// Place in which an engine was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineOrigin {
    Configured,
    SearchPath,
    Installed,
}

/// Executable program that runs models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineProgram {
    pub path: PathBuf,
    pub origin: EngineOrigin,
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("the configured engine {} is not an executable file\nhint: give the path of a llama-server, or a name that is on PATH", .0.display())]
    RunConfigured(PathBuf),
    #[error(
        "no engine was found: there is no llama-server on PATH, and plimsoll has installed none\nhint: {0}"
    )]
    Find(&'static str),
    #[error(transparent)]
    Home(#[from] HomeError),
}

/// Returns the engine to run: the configured one, else `llama-server` on PATH, else the installed CPU engine.
pub fn find(configured: Option<&Path>) -> Result<EngineProgram, EngineError> {
    if let Some(command) = configured {
        let path = resolve(command).ok_or_else(|| EngineError::RunConfigured(command.to_owned()))?;
        return Ok(EngineProgram { path, origin: EngineOrigin::Configured });
    }
    match on_search_path() {
        Some(program) => Ok(program),
        None => system::installed_here()?.ok_or(EngineError::Find(system::INSTALLS)),
    }
}

/// Returns `llama-server` on PATH, if there is one.
pub fn on_search_path() -> Option<EngineProgram> {
    resolve(Path::new(LLAMA_SERVER)).map(|path| EngineProgram { path, origin: EngineOrigin::SearchPath })
}

fn resolve(command: &Path) -> Option<PathBuf> {
    own_command::resolve(command).ok().filter(|path| own_command::is_program(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_engine_that_is_not_there_is_named() {
        let error = find(Some(Path::new("/nowhere/llama-server"))).unwrap_err();
        assert!(
            error.to_string().starts_with("the configured engine /nowhere/llama-server is not"),
            "{error}"
        );
    }

    #[test]
    fn a_configured_path_does_not_depend_on_the_current_folder_any_more() {
        let here = tempfile::NamedTempFile::new_in(".").unwrap();
        std::fs::set_permissions(here.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let name = Path::new(".").join(here.path().file_name().unwrap());
        assert!(find(Some(&name)).unwrap().path.is_absolute());
    }

    #[test]
    fn a_configured_name_is_looked_up_on_the_search_path() {
        let program = find(Some(Path::new("sh"))).unwrap();
        assert!(program.path.is_absolute() && program.path.ends_with("sh"));
        assert_eq!(program.origin, EngineOrigin::Configured);
    }

    #[test]
    fn a_file_that_cannot_be_executed_is_no_engine() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(find(Some(file.path())).is_err());
    }
}
