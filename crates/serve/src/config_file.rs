//! The configuration file and the files of keys it names.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_config::{ConfigError, Roster};

/// What can be wrong before a single model is known.
#[derive(Debug, thiserror::Error)]
pub enum ReadConfigError {
    #[error("cannot read the configuration {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Parse(#[from] ConfigError),
    #[error("cannot read the API keys in {}: {error}", path.display())]
    ReadKeys { path: PathBuf, error: io::Error },
}

/// What a configuration says, its keys read.
#[derive(Debug)]
pub struct Config {
    pub roster: Roster,
    pub keys: Vec<String>,
}

impl Config {
    pub fn read(path: &Path) -> Result<Self, ReadConfigError> {
        let read = |error| ReadConfigError::Read {
            path: path.to_owned(),
            error,
        };
        let text = std::fs::read_to_string(path).map_err(read)?;
        let roster =
            plimsoll_config::parse(&path.to_string_lossy(), &text, &|name| std::env::var(name).ok())?;
        let mut keys = roster.serve.api_keys.clone();
        for file in &roster.serve.api_key_files {
            let path = PathBuf::from(file);
            let text =
                std::fs::read_to_string(&path).map_err(|error| ReadConfigError::ReadKeys { path, error })?;
            keys.extend(
                text.lines()
                    .map(str::trim)
                    .filter(|key| !key.is_empty())
                    .map(str::to_owned),
            );
        }
        Ok(Self { roster, keys })
    }

    /// Tells what the file asks for and we do otherwise.
    pub fn warn(&self) {
        for warning in &self.roster.warnings {
            tracing::warn!("{warning}");
        }
    }
}
