//! The roster: which models there are, how each is started, and what the file said that we cannot honour.
//!
//! Three formats end here: llama-server's `--models-preset` INI, llama-swap's YAML and our own TOML. Nothing after
//! this point knows which one it was. What a format asks for and we do otherwise is a [`Warning`], never silence.
//! Two entries are equal if they ask for the same, wherever they stand: a reload restarts only what changed.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_flags::{Options, Origin, Warning};

use super::before_load::ReclaimBeforeLoad;
use super::depth::TooLarge;
use super::guard::GuardWish;

/// What a configuration file says, whatever its format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roster {
    pub serve: ServeSettings,
    /// In the order of the file.
    pub models: Vec<Entry>,
    pub warnings: Vec<Warning>,
}

/// Settings of the server itself; `None` is "not said", the caller's own default stands.
#[derive(Clone, Default, PartialEq, Eq)]
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
    /// What is done before a load where cards take the host's memory.
    pub reclaim_before_load: Option<ReclaimBeforeLoad>,
}

/// Keys are counted, not shown: what is debugged ends up in logs.
impl fmt::Debug for ServeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeSettings")
            .field("listen", &self.listen)
            .field("api_keys", &self.api_keys.len())
            .field("api_key_files", &self.api_key_files)
            .field("patience", &self.patience)
            .field("wait", &self.wait)
            .field("engine", &self.engine)
            .field("reclaim_before_load", &self.reclaim_before_load)
            .finish()
    }
}

/// A model that can be asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    pub aliases: Vec<String>,
    pub tags: Vec<String>,
    pub launch: Launch,
    /// Variables set for this child only, as written; [`Entry::environment`] knows the port.
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
    /// What guard does for it, as far as it says so itself.
    pub guard: GuardWish,
    /// What becomes of it where its full context does not fit.
    pub too_large: TooLarge,
    /// Its requests are admitted by the depth that they may reach.
    pub depth_admission: bool,
    pub origin: Placement,
}

impl Entry {
    /// An entry that says nothing but its name yet.
    pub fn new(name: String, origin: Origin) -> Self {
        Self {
            name,
            aliases: Vec::new(),
            tags: Vec::new(),
            launch: Launch::LlamaServer {
                program: None,
                options: Options::default(),
            },
            env: Vec::new(),
            memory: None,
            cards: Vec::new(),
            ttl: None,
            pinned: false,
            preload: false,
            unlisted: false,
            concurrency: None,
            load_timeout: None,
            stop_timeout: None,
            upstream_name: None,
            guard: GuardWish::default(),
            too_large: TooLarge::default(),
            depth_admission: true,
            origin: Placement(origin),
        }
    }

    /// Returns the variables of the child that got `port`: `${PORT}` may stand in their values too.
    pub fn environment(&self, port: u16) -> Vec<(String, String)> {
        let set = self.env.iter();
        set.map(|(name, value)| (name.clone(), with_port(value, port)))
            .collect()
    }
}

/// The place of an entry. Any two are equal, so that entries compare by what they ask for.
#[derive(Clone, Debug)]
pub struct Placement(pub Origin);

impl PartialEq for Placement {
    fn eq(&self, _: &Self) -> bool {
        // A line added at the top of a file moves every entry below it, and none of them has to restart.
        true
    }
}

impl Deref for Placement {
    type Target = Origin;

    fn deref(&self) -> &Origin {
        &self.0
    }
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

    /// Returns the port of the loopback on which the child that got `port` listens; `None` if it listens
    /// elsewhere, or below a path.
    pub fn listens_on(&self, port: u16) -> Option<u16> {
        let address = self.upstream(port);
        let (host, port) = address
            .strip_prefix("http://")?
            .trim_end_matches('/')
            .split_once(':')?;
        matches!(host, "127.0.0.1" | "localhost")
            .then(|| port.parse().ok())
            .flatten()
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
