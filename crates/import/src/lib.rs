//! Converts configurations of llama-swap, llama-server's preset INI and Ollama's model store to Plimsoll's
//! TOML.
//!
//! The readers are those of `serve`, so an import and a server interpret a file alike. The result has a
//! [`Warning`] for each setting that the TOML cannot express, and for each difference in behaviour.
#![forbid(unsafe_code)]

mod differences;
mod found;
mod llama_server;
mod ollama;
mod toml;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

pub use self::ollama::ollama_parameters;
pub use self::toml::write as write_toml;
use plimsoll_base::{Bytes, Order};
use plimsoll_config::{ConfigError, ConfigMistakes, Configuration};
use plimsoll_flags::{Warning, quoted};

pub use self::found::{Found, FoundModel, Places, Repository, Settled, find, find_read, find_settled};

/// The longest file that is read; all real ones together are a fraction of it.
const LONGEST: Bytes = Bytes::mib(1);

/// A configuration in Plimsoll's own format, and how it differs from its source.
#[derive(Debug)]
pub struct ImportedConfiguration {
    pub toml: String,
    pub models: usize,
    /// Changed behaviour, and settings without a counterpart that cause it.
    pub changes: Vec<Warning>,
    /// Settings without a counterpart that change nothing but what is shown.
    pub cosmetic: Vec<Warning>,
    /// The text holds API keys, or values of the environment.
    pub has_secrets: bool,
}

/// Error of an import.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("cannot read {}: {error}; name llama-swap's YAML, a preset of llama-server (.ini) or `ollama`", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{} is in Plimsoll's own format already; start it with `plimsoll serve`", .0.display())]
    OwnFormat(PathBuf),
    #[error(transparent)]
    Parse(#[from] ConfigMistakes),
    #[error("there is no store of Ollama in {}; name its folder: plimsoll import FOLDER", .0.display())]
    FindStore(PathBuf),
    #[error("cannot read the store of Ollama in {}: {error}; run this as a user that may read it", path.display())]
    ReadStore { path: PathBuf, error: io::Error },
    #[error("the source cannot be written as TOML: {0}")]
    Write(#[source] ConfigError),
}

/// Imports a file, the store of Ollama in a folder, or with `ollama` the one of this machine; `env` looks up
/// variables of the environment.
pub fn import(
    source: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<ImportedConfiguration, ImportError> {
    let used = RefCell::default();
    let is_store = source == Path::new("ollama") || source.is_dir();
    let mut configuration = if is_store { ollama::read(source, env)? } else { file(source, env, &used)? };
    let heading = format!("Imported from {} by plimsoll import.", source.to_string_lossy());
    let toml = toml::write(&heading, &configuration, |entry| entry.origin.to_string());
    // No text that `serve` refuses leaves this crate.
    plimsoll_config::parse("plimsoll.toml", &toml, &|_| None).map_err(ImportError::Write)?;
    let has_secrets = !used.borrow().is_empty() || !configuration.serve.api_keys.is_empty();
    configuration.warnings.order_by_key(|warning| warning.origin.line());
    let (cosmetic, changes) = configuration.warnings.into_iter().partition(|warning| warning.is_cosmetic);
    Ok(ImportedConfiguration { toml, models: configuration.models.len(), changes, cosmetic, has_secrets })
}

/// Writes models that were found as TOML, with a line on each as a comment.
pub fn write_found(
    places: &Places,
    configuration: Configuration,
    lines: &[String],
) -> Result<ImportedConfiguration, ImportError> {
    let named = configuration.models.iter().map(|model| model.name.as_str()).zip(lines);
    let notes = named.map(|(name, line)| {
        (name, line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(line).to_owned())
    });
    let notes: HashMap<&str, String> = notes.collect();
    let head = format!(
        "The models in {}, written by plimsoll init. A section here wins over what is found there.",
        places.in_words()
    );
    let toml = toml::write(&head, &configuration, |entry| {
        notes.get(entry.name.as_str()).cloned().unwrap_or_else(|| entry.origin.to_string())
    });
    plimsoll_config::parse("plimsoll.toml", &toml, &|_| None).map_err(ImportError::Write)?;
    let Configuration { models, warnings, .. } = configuration;
    Ok(ImportedConfiguration {
        toml,
        models: models.len(),
        changes: warnings,
        cosmetic: Vec::new(),
        has_secrets: false,
    })
}

/// Reads a file; `used` gets the variables of the environment that it names.
fn file(
    path: &Path,
    env: &dyn Fn(&str) -> Option<String>,
    used: &RefCell<BTreeSet<String>>,
) -> Result<Configuration, ImportError> {
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")) {
        return Err(ImportError::OwnFormat(path.to_owned()));
    }
    let failed = |error| ImportError::Read { path: path.to_owned(), error };
    let text = plimsoll_file::read_text(path, LONGEST).map_err(failed)?;
    let lookup = |name: &str| {
        used.borrow_mut().insert(name.to_owned());
        env(name)
    };
    let mut configuration = plimsoll_config::parse_each(&path.to_string_lossy(), &text, &lookup)?;
    // With no good model there is nothing to write but mistakes.
    if configuration.models.is_empty() {
        configuration = configuration.whole()?;
    }
    for refused in &configuration.refused {
        for error in refused.errors() {
            let text = format!("`{}` is not imported: {}", quoted(&refused.name), error.problem);
            configuration.warnings.push(Warning::new(error.origin.clone(), text));
        }
    }
    configuration.models.iter_mut().for_each(llama_server::unfold);
    // After it, since an engine of flags alone listens where the daemon orders.
    configuration.confine();
    configuration.warn_of_shell_words();
    configuration.notify_ports();
    differences::of_file(path, &mut configuration, &used.borrow());
    Ok(configuration)
}
