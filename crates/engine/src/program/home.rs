//! Finds the folder of installed engines: `$PLIMSOLL_HOME`, else `$XDG_DATA_HOME/plimsoll`, else
//! `~/.local/share/plimsoll`.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error(
        "there is no directory to install into: none of PLIMSOLL_HOME, XDG_DATA_HOME and HOME is set\nhint: \
            set PLIMSOLL_HOME \
            to a directory"
    )]
    Choose,
    #[error("PLIMSOLL_HOME={} is a relative path\nhint: give an absolute path", .0.display())]
    Relative(PathBuf),
}

/// Folder for everything that Plimsoll installs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineHome(PathBuf);

impl EngineHome {
    pub fn from_environment() -> Result<Self, HomeError> {
        Self::choose(|name| env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn choose(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, HomeError> {
        if let Some(own) = variable("PLIMSOLL_HOME").map(PathBuf::from) {
            return if own.is_absolute() {
                Ok(Self(own))
            } else {
                // Unlike XDG's, our own variable was set on purpose, so a wrong value is reported and not
                // ignored.
                Err(HomeError::Relative(own))
            };
        }
        let data = variable("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let user = || Some(PathBuf::from(variable("HOME")?).join(".local/share"));
        data.or_else(user).map(|data| Self(data.join("plimsoll"))).ok_or(HomeError::Choose)
    }

    /// The folder of engines, one directory each.
    pub fn engines(&self) -> PathBuf {
        self.0.join("engines")
    }

    /// The folder of `plimsoll quickstart`: its models and their configuration.
    pub fn quickstart(&self) -> PathBuf {
        self.0.join("quickstart")
    }

    #[cfg(test)]
    pub fn at(path: &std::path::Path) -> Self {
        Self(path.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn chosen(set: &[(&str, &str)]) -> Result<EngineHome, HomeError> {
        EngineHome::choose(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn our_own_variable_wins_over_the_desktop_one_and_that_over_the_home_directory() {
        let all = [("PLIMSOLL_HOME", "/p"), ("XDG_DATA_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(chosen(&all).unwrap(), EngineHome::at(Path::new("/p")));
        assert_eq!(chosen(&all[1..]).unwrap(), EngineHome::at(Path::new("/x/plimsoll")));
        assert_eq!(chosen(&all[2..]).unwrap(), EngineHome::at(Path::new("/h/.local/share/plimsoll")));
    }

    #[test]
    fn relative_paths_are_refused_or_passed_over() {
        assert!(matches!(chosen(&[("PLIMSOLL_HOME", "p")]), Err(HomeError::Relative(_))));
        assert!(matches!(chosen(&[("XDG_DATA_HOME", "x")]), Err(HomeError::Choose)));
    }
}
