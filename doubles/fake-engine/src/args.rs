//! Parses the command line of the fake engine: the few llama-server flags that matter to a router, and
//! `--fake key=value`.
//!
//! All other flags are ignored together with their values, so that a real llama-server command line starts
//! the fake engine unchanged.

use std::collections::BTreeSet;
use std::env;
use std::iter::Peekable;

use plimsoll_wire::env as names;

use super::faults::{self, Script};

#[derive(Debug, Clone)]
pub(crate) struct Args {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) alias: String,
    pub(crate) model: String,
    pub(crate) api_key: Option<String>,
    pub(crate) context: u64,
    /// Folder of saved slots, with its slash.
    pub(crate) slots: Option<String>,
    /// True when a router started us and listens to our stdout.
    pub(crate) has_router: bool,
    pub(crate) script: Script,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgsError {
    #[error("flag {0} needs a value")]
    MissingValue(String),
    #[error("{flag}: {value:?} is not a number")]
    NotANumber { flag: String, value: String },
    #[error(transparent)]
    Script(#[from] faults::ScriptError),
}

impl Args {
    pub(crate) fn from_process() -> Result<Self, ArgsError> {
        let mut args = Self::bare();
        if let Ok(port) = env::var("PORT") {
            args.port = number("PORT", &port)?;
        }
        args.api_key = env::var(names::LLAMA_API_KEY).ok();
        args.has_router = env::var_os(names::LLAMA_SERVER_ROUTER_PORT).is_some();
        args.script.read(&env::var("PLIMSOLL_FAKE_ENGINE").unwrap_or_default())?;
        args.read(env::args().skip(1))?;
        Ok(args)
    }

    fn bare() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8080,
            alias: String::new(),
            model: String::new(),
            api_key: None,
            context: 4096,
            slots: None,
            has_router: false,
            script: Script::default(),
        }
    }

    fn read(&mut self, words: impl Iterator<Item = String>) -> Result<(), ArgsError> {
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let (flag, mut value) = match word.split_once('=') {
                Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
                None => (word, None),
            };
            let mut value = || {
                let given = value.take().or_else(|| words.next_if(|word| !word.starts_with("--")));
                given.ok_or_else(|| ArgsError::MissingValue(flag.clone()))
            };
            match flag.as_str() {
                "--host" => self.host = value()?,
                "--port" => self.port = number(&flag, &value()?)?,
                "-a" | "--alias" => self.alias = value()?,
                "-m" | "--model" => self.model = value()?,
                "--api-key" => self.api_key = Some(value()?),
                "-c" | "--ctx-size" => self.context = number(&flag, &value()?)?,
                "--slot-save-path" => self.slots = Some(value()?),
                "--fake" => self.script.read(&value()?)?,
                _ => skip_value(&mut words),
            }
        }
        if self.alias.is_empty() {
            self.alias =
                self.model.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("fake").to_owned();
        }
        Ok(())
    }

    /// All names, in the order in which llama-server holds them: sorted.
    pub(crate) fn aliases(&self) -> BTreeSet<&str> {
        self.alias.split(',').map(str::trim).filter(|alias| !alias.is_empty()).collect()
    }

    /// The name that answers carry: the first of all names.
    pub(crate) fn name(&self) -> &str {
        self.aliases().first().unwrap_or(&"fake")
    }
}

fn skip_value(words: &mut Peekable<impl Iterator<Item = String>>) {
    words.next_if(|word| !word.starts_with('-'));
}

fn number<N: std::str::FromStr>(flag: &str, value: &str) -> Result<N, ArgsError> {
    value.parse().map_err(|_| ArgsError::NotANumber { flag: flag.to_owned(), value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Args, ArgsError> {
        let mut args = Args::bare();
        args.read(line.split_whitespace().map(str::to_owned))?;
        Ok(args)
    }

    #[test]
    fn both_spellings_of_a_value_are_read() {
        assert_eq!(read("--port 81").unwrap().port, 81);
        assert_eq!(read("--port=82").unwrap().port, 82);
    }

    #[test]
    fn unknown_flags_are_ignored_with_their_value() {
        let args = read("-ngl 99 --flash-attn on --no-mmap --alias b,a -fa --port 9").unwrap();
        assert_eq!((args.name(), args.port), ("a", 9));
    }

    #[test]
    fn the_model_file_names_the_model_when_no_alias_does() {
        assert_eq!(read("-m /models/tiny.gguf").unwrap().name(), "tiny.gguf");
    }

    #[test]
    fn a_flag_without_its_value_is_refused_by_name() {
        assert_eq!(read("--port").unwrap_err().to_string(), "flag --port needs a value");
        assert_eq!(read("--alias --port 1").unwrap_err().to_string(), "flag --alias needs a value");
    }
}
