//! The roster: which models there are, how each is started, and what the file said that we cannot honour.
//!
//! Three formats end here: llama-server's `--models-preset` INI, llama-swap's YAML and our own TOML. Nothing after
//! this point knows which one it was. What a format asks for and we do otherwise is a [`Warning`], never silence.
//! Two entries are equal if they ask for the same, wherever they stand: a reload restarts only what changed.

use std::net::SocketAddr;
use std::time::Duration;

use super::failure::{ConfigError, Problem};
use super::options::Options;
use super::origin::Origin;
use crate::bytes::Bytes;

/// What a configuration file says, whatever its format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roster {
    pub serve: ServeSettings,
    /// In the order of the file.
    pub models: Vec<Entry>,
    pub warnings: Vec<Warning>,
}

/// Settings of the server itself; `None` is "not said", the caller's own default stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServeSettings {
    pub listen: Option<SocketAddr>,
    pub api_keys: Vec<String>,
    /// Files with one key per line.
    pub api_key_files: Vec<String>,
    /// How long a warm model may keep a queued one waiting before it drains.
    pub patience: Option<Duration>,
    /// How long a request may wait in the queue.
    pub wait: Option<Duration>,
    /// The program for models that give only flags, with leading arguments if it takes any.
    pub engine: Option<Vec<String>>,
}

/// A model that can be asked for.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub aliases: Vec<String>,
    pub tags: Vec<String>,
    pub launch: Launch,
    /// Variables set for this child only.
    pub env: Vec<(String, String)>,
    /// What it takes, said by the user; wins over what is planned.
    pub memory: Option<Bytes>,
    /// Names or UUIDs of the cards it may use; empty for any.
    pub cards: Vec<String>,
    /// Idle time after which it is unloaded; zero is never.
    pub ttl: Option<Duration>,
    /// Never evicted.
    pub pinned: bool,
    /// Started with the server.
    pub preload: bool,
    /// Served, but not shown in `/v1/models`.
    pub unlisted: bool,
    /// How many requests at once.
    pub concurrency: Option<u32>,
    pub load_timeout: Option<Duration>,
    pub stop_timeout: Option<Duration>,
    /// The name the child wants in `model`, where it differs from ours.
    pub upstream_name: Option<String>,
    pub origin: Origin,
}

/// How a model is started.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch {
    /// llama-server with these flags. Host, port and alias are ours to set.
    LlamaServer {
        /// Where it differs from [`ServeSettings::engine`].
        program: Option<Vec<String>>,
        options: Options,
    },
    /// Any program that speaks the OpenAI protocol on a port of its own.
    Command {
        /// `${PORT}` still stands in it.
        argv: Vec<String>,
        /// Its flags, if it is a llama-server.
        options: Option<Options>,
        /// Where it listens: an `http://` address in which `${PORT}` still stands.
        proxy: String,
        /// The path that answers 200 once it is ready; `none` for no check.
        check: String,
        /// What stops it, where a signal does not; `${PORT}` and `${PID}` still stand in it.
        stop: Option<Vec<String>>,
    },
}

/// What stands for the port in a command of the user's own.
pub const PORT: &str = "${PORT}";
/// What stands for the process id in a command that stops one.
pub const PID: &str = "${PID}";

impl Launch {
    /// Returns the command line that serves `name` on `port` of the loopback; `engine` is the program for models
    /// that give only flags.
    pub fn command_line(&self, engine: &[String], name: &str, port: u16) -> Vec<String> {
        match self {
            Self::LlamaServer { program, options } => {
                let mut argv = program.as_deref().unwrap_or(engine).to_vec();
                argv.extend(options.to_argv());
                let port = port.to_string();
                argv.extend(["--host", "127.0.0.1", "--port", &port, "--alias", name].map(str::to_owned));
                argv
            }
            Self::Command { argv, .. } => argv.iter().map(|argument| with_port(argument, port)).collect(),
        }
    }

    /// Returns the command line that stops it, where a signal would not.
    pub fn stop_line(&self, port: u16, pid: u32) -> Option<Vec<String>> {
        let Self::Command { stop: Some(stop), .. } = self else {
            return None;
        };
        let pid = pid.to_string();
        Some(
            stop.iter()
                .map(|argument| with_port(argument, port).replace(PID, &pid))
                .collect(),
        )
    }

    /// Returns the address of the child that got `port`.
    pub fn upstream(&self, port: u16) -> String {
        match self {
            Self::LlamaServer { .. } => format!("http://127.0.0.1:{port}"),
            Self::Command { proxy, .. } => with_port(proxy, port),
        }
    }

    /// Returns the path that answers 200 once the child is ready; `None` if it is not to be asked.
    pub fn check(&self) -> Option<&str> {
        match self {
            Self::LlamaServer { .. } => Some("/health"),
            Self::Command { check, .. } => (check != "none").then_some(check),
        }
    }

    /// The flags, if it is a llama-server: what its memory is planned from.
    pub fn options(&self) -> Option<&Options> {
        match self {
            Self::LlamaServer { options, .. } => Some(options),
            Self::Command { options, .. } => options.as_ref(),
        }
    }
}

fn with_port(text: &str, port: u16) -> String {
    text.replace(PORT, &port.to_string())
}

/// Something that the file says and we do otherwise, or that its own program would do otherwise than it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub origin: Origin,
    pub text: String,
    pub hint: Option<String>,
}

impl Warning {
    pub fn new(origin: Origin, text: impl Into<String>) -> Self {
        Self {
            origin,
            text: text.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.origin, self.text)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            name,
            aliases,
            tags,
            launch,
            env,
            memory,
            cards,
            ttl,
            pinned,
            preload,
            unlisted,
            concurrency,
            load_timeout,
            stop_timeout,
            upstream_name,
            origin: _,
        } = self;
        *name == other.name
            && *aliases == other.aliases
            && *tags == other.tags
            && *launch == other.launch
            && *env == other.env
            && *memory == other.memory
            && *cards == other.cards
            && *ttl == other.ttl
            && *pinned == other.pinned
            && *preload == other.preload
            && *unlisted == other.unlisted
            && *concurrency == other.concurrency
            && *load_timeout == other.load_timeout
            && *stop_timeout == other.stop_timeout
            && *upstream_name == other.upstream_name
    }
}

/// Reads a configuration file of any of the three formats, told apart by the extension of its name.
///
/// `env` looks a variable of the environment up, for `${env.NAME}` in llama-swap's YAML.
pub fn parse(
    file_name: &str,
    _text: &str,
    _env: &dyn Fn(&str) -> Option<String>,
) -> Result<Roster, ConfigError> {
    Err(ConfigError {
        origin: Origin::file(&file_name.into(), 0),
        problem: Problem::TellFormat,
    })
}
