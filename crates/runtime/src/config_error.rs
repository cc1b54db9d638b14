//! Errors in the configuration file of `plimsoll serve`, and in the API key files that it names.

use std::io;
use std::path::PathBuf;

use plimsoll_config::{ConfigError, ConfigMistakes, ConfigProblem};
use plimsoll_flags::{FlagValue, Setting, quoted};

/// Error in the configuration file, or in a key file that it names.
#[derive(Debug, thiserror::Error)]
pub enum ReadConfigError {
    #[error("cannot read the configuration {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Parse(#[from] ConfigMistakes),
    #[error("cannot read the API keys in {}: {error}", path.display())]
    ReadKeys { path: PathBuf, error: io::Error },
    #[error("cannot read an API key in {}: {why}", path.display())]
    ReadKey { path: PathBuf, why: String },
    #[error(
        "{}: the file contains no API key, which would open the server to everyone; write one key per line, or remove \
            the file from `api-key-files`",
        path.display()
    )]
    NoKeyIn { path: PathBuf },
    #[error("{}: the API key `{name}` is given twice; give each client a key of its own", path.display())]
    SameKey { path: PathBuf, name: String },
}

impl ReadConfigError {
    /// Adds model files that are not there, so that one reading names all that is to be mended before a
    /// start.
    pub fn and_missing_files(mut self) -> Self {
        if let Self::Parse(mistakes) = &mut self {
            let missing: Vec<ConfigError> = mistakes.rest.model_files().filter_map(missing).collect();
            mistakes.extend(missing);
        }
        self
    }
}

fn missing(setting: &Setting) -> Option<ConfigError> {
    let FlagValue::Text(path) = &setting.value else { return None };
    let error = std::fs::metadata(path).err()?;
    let problem = ConfigProblem::Parse(format!("cannot open {}: {error}", quoted(path)));
    Some(ConfigError { origin: setting.origin.clone(), problem })
}
