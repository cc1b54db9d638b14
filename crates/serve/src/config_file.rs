//! Reader of `plimsoll serve`'s configuration file and of the API key files that it names.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use plimsoll_config::{ConfigError, Configuration, ServeSettings};
use plimsoll_flags::{FlagOrigin, Warning};

/// Error in the configuration file, or in a key file that it names.
#[derive(Debug, thiserror::Error)]
pub enum ReadConfigError {
    #[error("cannot read the configuration {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Parse(#[from] ConfigError),
    #[error("cannot read the API keys in {}: {error}", path.display())]
    ReadKeys { path: PathBuf, error: io::Error },
}

/// Warning of a file with API keys that every user of the machine may read.
fn open_to_all(path: &Path) -> Option<Warning> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let file = path.to_string_lossy();
    (mode & 0o004 != 0).then(|| {
        let text = "the file contains API keys, and every user of this machine may read it";
        Warning::new(FlagOrigin::file(&file.clone().into(), 0), text)
            .hint(format!("run `chmod o-rwx {file}`"))
    })
}

/// A configuration with the API keys from its key files.
#[derive(Debug)]
pub struct Config {
    pub roster: Configuration,
    pub keys: Vec<String>,
}

impl Config {
    pub fn read(path: &Path) -> Result<Self, ReadConfigError> {
        let read = |error| ReadConfigError::Read { path: path.to_owned(), error };
        let text = std::fs::read_to_string(path).map_err(read)?;
        let mut roster =
            plimsoll_config::parse_each(&path.to_string_lossy(), &text, &|name| std::env::var(name).ok())?;
        // Files are read at every reload, so that a key can be revoked without touching the configuration.
        let mut keys = roster.serve.api_keys.clone();
        if !keys.is_empty() {
            roster.warnings.extend(open_to_all(path));
        }
        for file in &roster.serve.api_key_files {
            let path = PathBuf::from(file);
            let text =
                std::fs::read_to_string(&path).map_err(|error| ReadConfigError::ReadKeys { path, error })?;
            roster.warnings.extend(open_to_all(Path::new(file)));
            keys.extend(
                text.lines()
                    // An editor may leave blanks and an empty last line.
                    .map(str::trim)
                    .filter(|key| !key.is_empty())
                    .map(str::to_owned),
            );
        }
        Ok(Self { roster, keys })
    }

    /// Returns the first model that is refused as an error, if there is one.
    pub fn whole(self) -> Result<Self, ReadConfigError> {
        match self.roster.refused.first() {
            Some(refused) => Err(refused.error.clone().into()),
            None => Ok(self),
        }
    }

    /// Logs refused models, and settings of the file that have another effect here.
    pub fn warn(&self) {
        for refused in &self.roster.refused {
            tracing::error!("{}; the model `{}` is not served", refused.error, refused.name);
        }
        for warning in &self.roster.warnings {
            match warning.is_cosmetic {
                true => tracing::info!("{warning}"),
                false => tracing::warn!("{warning}"),
            }
        }
    }

    /// Logs settings of `[serve]` that differ from those of the start and take effect only at a restart.
    pub fn warn_of_restart(&self, start: &ServeSettings) {
        // Keys and models are applied at once; these are held by tasks that run already.
        for name in self.roster.serve.differ_since(start) {
            tracing::warn!("`{name}` under [serve] has changed; restart the server to apply it");
        }
    }
}
