//! Structs that define Plimsoll's TOML configuration format, for serde (reading) and schemars (JSON schema).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use crate::before_load::ReclaimBeforeLoad;
use crate::depth::TooLarge;
use crate::duration::Length;
use crate::guard::{GuardSettings, Size};

/// Plimsoll's configuration.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "Plimsoll configuration")]
pub(super) struct ConfigDocument {
    #[serde(default)]
    pub(super) serve: Serve,
    #[serde(default)]
    pub(super) engine: EngineTable,
    /// The models, by name.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ModelTable>")]
    // Names are spanned to point at a model's header.
    pub(super) models: BTreeMap<Spanned<String>, ModelTable>,
}

/// The server itself.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Serve {
    /// Address and port, e.g. `127.0.0.1:8080`, `localhost:8080`, `8080`, or `:8080` for every interface.
    #[serde(deserialize_with = "crate::listen::from_file")]
    #[schemars(with = "Option<String>")]
    pub(super) listen: Option<SocketAddr>,
    /// Keys that clients may use; none for no check.
    #[schemars(with = "Vec<String>")]
    pub(super) api_keys: Vec<Spanned<String>>,
    /// Files with one key per line.
    pub(super) api_key_files: Vec<String>,
    /// Time that a warm model may keep a queued one waiting before it drains, e.g. `10s`.
    pub(super) patience: Option<Length>,
    /// Longest wait of a request in the queue, e.g. `10m`.
    pub(super) wait: Option<Length>,
    /// On a machine whose GPU shares the host's memory: free the memory that a model needs before loading it.
    /// Default: `off`.
    pub(super) reclaim_before_load: Option<ReclaimBeforeLoad>,
    /// Engines listen on ports of 127.0.0.1, also a llama-server that could use a Unix socket. Default: false.
    pub(super) engine_ports: bool,
    /// User that engines run as, by name or number; the server must run as root. Default: the server's own.
    pub(super) engine_user: Option<String>,
    /// Variables of the server that engines inherit beside the usual ones; `NAME` or `BEGINNING*`.
    pub(super) pass_env: Vec<String>,
}

/// The program for models that give flags.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct EngineTable {
    /// The program, with its first arguments if it takes any. Default: `llama-server`.
    #[schemars(with = "Option<WordList>")]
    pub(super) command: Option<Spanned<WordList>>,
}

/// A model: either `model` and `flags` for llama-server, or `cmd` for any program that speaks the OpenAI
/// protocol.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct ModelTable {
    /// Path of the GGUF file.
    pub(super) model: Option<String>,
    /// llama-server's flags.
    #[schemars(with = "Option<WordList>")]
    pub(super) flags: Option<Spanned<WordList>>,
    /// The llama-server for this model, where it differs from `[engine]`.
    #[schemars(with = "Option<WordList>")]
    pub(super) program: Option<Spanned<WordList>>,
    /// A whole command; `${PORT}` stands for the port it is to listen on.
    #[schemars(with = "Option<WordList>")]
    pub(super) cmd: Option<Spanned<WordList>>,
    /// Command that stops it instead of a signal; may contain `${PID}` and `${PORT}`.
    #[schemars(with = "Option<WordList>")]
    pub(super) stop: Option<Spanned<WordList>>,
    /// Address on which a `cmd` listens. Default: `http://127.0.0.1:${PORT}`.
    pub(super) proxy: Option<String>,
    /// The path that answers 200 once a `cmd` is ready, or `none`. Default: `/health`.
    pub(super) check: Option<String>,
    /// Other names for it.
    pub(super) aliases: Vec<String>,
    /// Labels, shown in the list of models.
    pub(super) tags: Vec<String>,
    /// Variables set for this model only.
    pub(super) env: BTreeMap<String, String>,
    /// Its memory, e.g. `6GiB`; overrides the plan.
    pub(super) memory: Option<Size>,
    /// Cards it may use, by UUID or name; none for any.
    pub(super) cards: Vec<String>,
    /// Idle time after which it is unloaded, e.g. `5m`; `0` is never.
    pub(super) ttl: Option<Length>,
    /// Never evicted.
    pub(super) pin: bool,
    /// Started with the server.
    pub(super) preload: bool,
    /// Served, but not shown in the list of models.
    pub(super) unlisted: bool,
    /// Concurrent requests.
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(super) concurrency: Option<NonZeroU32>,
    /// Longest load, e.g. `10m`.
    pub(super) load_timeout: Option<Length>,
    /// Time to exit before it is killed, e.g. `10s`.
    pub(super) stop_timeout: Option<Length>,
    /// The model name in requests to the program, where it differs from this one.
    pub(super) upstream_name: Option<String>,
    /// Guard settings, for CUDA cards; defaults are those of `plimsoll serve`.
    pub(super) guard: GuardSettings,
    /// Handling where it fits on no card at its full context.
    pub(super) too_large: TooLarge,
    /// For models whose memory grows with depth: a request waits, or is refused, if the depth that it may
    /// reach exceeds the model's memory. With false, it is sent and the engine may run out of memory.
    /// Default: true.
    #[serde(default = "yes")]
    pub(super) depth_admission: bool,
}

fn yes() -> bool {
    true
}

/// Arguments: a list, or one line split as a shell splits it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a string or a list of strings")]
pub(super) enum WordList {
    Line(String),
    List(Vec<String>),
}
