//! Structs that define Plimsoll's TOML configuration format, for serde (reading) and schemars (JSON schema).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use plimsoll_base::Priority;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

use crate::before_load::ReclaimBeforeLoad;
use crate::depth::TooLarge;
use crate::duration::Length;
use crate::engine_kind::CommandKind;
use crate::filters::RequestFilters;
use crate::guard::{GuardSettings, Size};
use crate::key::{ExpiryText, KeyRight};
use crate::log::{LogFormat, LogLevel};
use crate::serve_values::{AskText, FileText, ReserveText};

/// Plimsoll's configuration.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "Plimsoll configuration")]
pub(super) struct ConfigDocument {
    #[serde(default)]
    pub(super) serve: Serve,
    #[serde(default)]
    pub(super) engine: EngineTable,
    #[serde(default)]
    pub(super) fleet: FleetTable,
    /// The models, by name.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ModelTable>")]
    // Names are spanned to point at a model's header.
    pub(super) models: BTreeMap<Spanned<String>, ModelTable>,
    /// Groups of models, by name.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, GroupTable>")]
    pub(super) groups: BTreeMap<Spanned<String>, GroupTable>,
    /// API keys with rights and limits, by name.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, KeyTable>")]
    pub(super) keys: BTreeMap<Spanned<String>, KeyTable>,
}

/// The server itself.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Serve {
    /// Address and port, e.g. `127.0.0.1:8080`, `localhost:8080`, `8080`, or `:8080` for every interface; or
    /// a list of them.
    #[serde(deserialize_with = "crate::listen::from_file")]
    #[schemars(with = "Option<WordList>")]
    pub(super) listen: Vec<SocketAddr>,
    /// The model that answers requests that name none. Default: the only model, if there is only one.
    pub(super) default: Option<String>,
    /// A request for an unknown model is refused. With false, the only model answers it if there is only one.
    /// Default: false.
    pub(super) strict_names: bool,
    /// A request loads its model if that is not loaded. `?autoload=` in a request overrides this. Default:
    /// true.
    pub(super) autoload: Option<bool>,
    /// Other machines may use the server without a key, as with `--open`. Default: false.
    pub(super) open: bool,
    /// API keys that clients may use; without any, requests need no key.
    #[schemars(with = "Vec<String>")]
    pub(super) api_keys: Vec<Spanned<String>>,
    /// Files with one API key per line.
    pub(super) api_key_files: Vec<String>,
    /// The most models that are loaded at a time, whatever memory is free, as with `--models-max`. Default:
    /// `0`, memory alone limits them.
    pub(super) models_max: Option<usize>,
    /// Sets of models that may run together, e.g. `[["a", "b"], ["b", "c"]]`: two models run at a time only
    /// if one set has both. Default: none, memory alone decides.
    pub(super) together: Vec<Vec<String>>,
    /// Shortest time for which a model in use goes on while another waits for its memory. The time that both
    /// loads take is added, one and a half times if the model in use has more clients. Default: `5s`.
    pub(super) patience: Option<Length>,
    /// Longest wait of a request in the queue. Default: `10m`.
    pub(super) wait: Option<Length>,
    /// Time between two comments that keep the stream of a waiting request alive. The first comment comes
    /// with status 200; with `0` there are none, and the status is that of the answer. Default: `5s`.
    pub(super) heartbeat: Option<Length>,
    /// Cards to serve from, or budgets on them, e.g. `name=H200,total=80GiB`, as with `--card`; without any,
    /// all cards of the machine.
    #[schemars(with = "Vec<String>")]
    pub(super) cards: Vec<Spanned<String>>,
    /// Memory to leave free on each card, e.g. `512MiB`.
    pub(super) reserve: Option<ReserveText>,
    /// Memory that other processes always find free on each card, e.g. `1GiB`: when they use it, idle models
    /// are unloaded. Without it, no model is unloaded for another process.
    pub(super) yield_below: Option<ReserveText>,
    /// Programs with precedence, e.g. `["blender", "ComfyUI"]`: when one begins to use a card, the idle
    /// models on that card are unloaded.
    pub(super) yield_to: Vec<String>,
    /// Disk space for saved prompts, e.g. `8GiB`: a llama-server saves what it has computed of its prompts
    /// before its model is unloaded, and restores it after the next load. The files hold users' prompts.
    /// Default: `0`, nothing is saved.
    pub(super) warm: Option<ReserveText>,
    /// Folder for models that `plimsoll download` and `POST /models` fetch, in the layout of Hugging Face's
    /// cache. Its models are served beside those of this file. Without it, models are not downloaded.
    pub(super) downloads: Option<FileText>,
    /// File to which the lines of the log and the output of the engines are appended.
    pub(super) log_file: Option<FileText>,
    /// Guard settings for models on CUDA cards that set none of their own.
    pub(super) guard: GuardSettings,
    /// Time to wait for programs under guard to release cached memory before a model is evicted or refused,
    /// e.g. `500ms`. `0` disables this, and the same requests to idle engines (ComfyUI, vLLM). Default:
    /// `500ms`.
    pub(super) ask: Option<AskText>,
    /// Origins of web pages that may use this server besides its own page; `localhost` for those of every
    /// port of this machine, `*` for all.
    #[schemars(with = "Vec<String>")]
    pub(super) allow_origins: Vec<Spanned<String>>,
    /// On a machine whose GPU shares the host's memory: free the memory that a model needs before loading it.
    /// Default: `off`.
    pub(super) reclaim_before_load: Option<ReclaimBeforeLoad>,
    /// Engines listen on ports of 127.0.0.1, even a llama-server that could use a Unix socket. Default:
    /// false.
    pub(super) engine_ports: bool,
    /// User that engines run as, by name or number; the server must run as root. Default: the server's own.
    pub(super) engine_user: Option<String>,
    /// Environment variables of the server that engines inherit in addition to the usual ones; `NAME` or
    /// `BEGINNING*`.
    pub(super) pass_env: Vec<String>,
    /// Address that gets each failure as JSON, e.g. `https://example.org/hooks/plimsoll`.
    pub(super) webhook: Option<String>,
    /// Address that gets the traces of requests by OTLP (HTTP, JSON), e.g. `http://127.0.0.1:4318/v1/traces`.
    pub(super) traces: Option<String>,
    /// The least important lines in the server's log. Default: `info`.
    pub(super) log_level: Option<LogLevel>,
    /// Format of the server's log. Default: `text`.
    pub(super) log_format: Option<LogFormat>,
}

/// The program for models that give flags.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct EngineTable {
    /// The program, with its first arguments if it takes any. Default: `llama-server`.
    #[schemars(with = "Option<WordList>")]
    pub(super) command: Option<Spanned<WordList>>,
}

/// A fleet of hosts that serve the same models behind every host's address.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct FleetTable {
    /// The fleet's store: `etcd://HOST,HOST,HOST`, with ports and `/FLEET` if they are not 2379 and
    /// `default`; over TLS `etcds://…`.
    pub(super) store: Option<String>,
    /// File with the certificates (PEM) of the authorities of a store over TLS. Default: those that the
    /// machine trusts.
    pub(super) store_ca: Option<std::path::PathBuf>,
    /// File with the certificate (PEM) that this host shows to a store over TLS. It is read again every ten
    /// minutes.
    pub(super) store_certificate: Option<std::path::PathBuf>,
    /// File with the private key (PEM) of `store-certificate`.
    pub(super) store_certificate_key: Option<std::path::PathBuf>,
    /// User of a store with authentication; its role may read and write the keys that begin with
    /// `/plimsoll/FLEET/`.
    pub(super) store_user: Option<String>,
    /// File with the password of `store-user`.
    pub(super) store_password_file: Option<std::path::PathBuf>,
    /// This host's name in the fleet. Default: the machine's host name.
    pub(super) host: Option<String>,
    /// `ADDRESS:PORT` at which other hosts reach this one. Default: that of `identity`, else of `listen`
    /// here, else the first address for clients.
    pub(super) address: Option<String>,
    /// Address and port that only other hosts use. Default: with `identity`, that of `address`; with
    /// `key-file`, other hosts use the address for clients.
    #[schemars(with = "Option<String>")]
    pub(super) listen: Option<std::net::SocketAddr>,
    /// Folder that `plimsoll fleet init` or `plimsoll fleet join` has made: the certificate that this host
    /// shows to others.
    pub(super) identity: Option<std::path::PathBuf>,
    /// File with the key that all hosts of the fleet share, for a network of their own; instead of
    /// `identity`.
    pub(super) key_file: Option<std::path::PathBuf>,
    /// Number of hosts up to which each host watches the store itself. In a larger fleet at most 32 hosts do,
    /// and pass its changes on to the others. Default: 300.
    #[schemars(range(min = 1, max = 10_000))]
    pub(super) watchers: Option<usize>,
    /// Copies model files between hosts with this setting: if no host that has a model's files has memory for
    /// it, another host copies them. Default: false.
    pub(super) share_files: bool,
    /// Most bytes of files a second that this host copies, and most that it gives, e.g. `50MiB`. Default:
    /// `100MiB`.
    pub(super) share_bandwidth: Option<Size>,
}

/// A model: either `model` and `flags` for llama-server, or `cmd` for any program that speaks the OpenAI
/// protocol.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct ModelTable {
    /// Path of the GGUF file.
    #[schemars(with = "Option<String>")]
    pub(super) model: Option<Spanned<String>>,
    /// llama-server's flags.
    #[schemars(with = "Option<WordList>")]
    pub(super) flags: Option<Spanned<WordList>>,
    /// The llama-server for this model, if it differs from `[engine]`.
    #[schemars(with = "Option<WordList>")]
    pub(super) program: Option<Spanned<WordList>>,
    /// A whole command; `${PORT}` stands for the port on which the program must listen.
    #[schemars(with = "Option<WordList>")]
    pub(super) cmd: Option<Spanned<WordList>>,
    /// The kind of program that `cmd` starts, which says when it is ready and what it takes. Default: by the
    /// names in the command.
    pub(super) kind: Option<CommandKind>,
    /// Command that stops the program instead of a signal; may contain `${PID}` and `${PORT}`.
    #[schemars(with = "Option<WordList>")]
    pub(super) stop: Option<Spanned<WordList>>,
    /// Address on which a `cmd` listens. Default: `http://127.0.0.1:${PORT}`.
    pub(super) proxy: Option<String>,
    /// The path that answers 200 once the program of `cmd` is ready, or `none`. Default: that of its kind,
    /// else `/health`.
    pub(super) check: Option<String>,
    /// Other names of the model. A `*` stands for any characters: `claude-*`.
    pub(super) aliases: Vec<String>,
    /// Labels, shown in the list of models.
    pub(super) tags: Vec<String>,
    /// The model's name for people, shown in the list of models.
    pub(super) name: Option<String>,
    /// A description for people, shown in the list of models.
    pub(super) description: Option<String>,
    /// Changes of the parameters in requests, before the engine gets them.
    pub(super) filters: FilterTable,
    /// Variables set for this model only.
    pub(super) env: BTreeMap<String, String>,
    /// The model's memory, e.g. `6GiB`; overrides the plan. It is that of one card, unless flags name several
    /// or none is large enough.
    pub(super) memory: Option<Size>,
    /// Host memory for the last positions of the model's cache where a card has no room for them, e.g.
    /// `8GiB`. The model is then loaded even if a card lacks up to this much. Conversations up to a length
    /// that the log states are as fast as without. For a llama-server of this host on CUDA cards. Default:
    /// none.
    #[schemars(with = "Option<Size>")]
    pub(super) spill: Option<Spanned<Size>>,
    /// Cards that the model may use, by UUID or name; without any, it may use all cards.
    pub(super) cards: Vec<String>,
    /// Idle time after which the model is unloaded, e.g. `5m`; `0` means never.
    pub(super) ttl: Option<Length>,
    /// Longest pause between two requests for which the model keeps its memory, while its clients go on and
    /// another model waits; `0` means none. Its turn (`patience`) bounds all of them. Default: `10s`.
    pub(super) hold: Option<Length>,
    /// The model is never evicted.
    pub(super) pin: bool,
    /// The model is loaded when the server starts, and again when memory is free after it was unloaded for
    /// another model. Such a load stops no other model, and requests come first.
    pub(super) preload: bool,
    /// The model is served, but not shown in the list of models.
    pub(super) unlisted: bool,
    /// Requests that the engine gets at a time; more wait in the server. Default: the slots of a
    /// llama-server, else no limit.
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(super) concurrency: Option<NonZeroU32>,
    /// Hosts of a fleet that may serve the model at a time. A further one loads it when a request comes while
    /// each has four in progress. Default: 1.
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(super) replicas: Option<NonZeroU32>,
    /// Importance of a load: with `high` or `low`, it counts as waiting for a minute more or less, and the
    /// lost time of its clients counts twice or half. Default: `normal`.
    #[schemars(with = "PriorityWord")]
    pub(super) priority: Priority,
    /// Requests after which the engine ends and is started anew, against memory that an engine loses over
    /// time.
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(super) max_requests: Option<NonZeroU32>,
    /// Time that a load may go on without progress; an engine that only prints lines has ten times as long.
    /// Default: `120s`.
    pub(super) load_timeout: Option<Length>,
    /// With `warm` under `[serve]`: the model's prompts are saved too. Default: true.
    #[serde(default = "yes")]
    pub(super) warm: bool,
    /// Time that the engine has to exit before it is killed. Default: `10s`.
    pub(super) stop_timeout: Option<Length>,
    /// The model's name in requests to the program, if it differs from the name here.
    pub(super) upstream_name: Option<String>,
    /// Guard settings, for CUDA cards; defaults are those of `[serve.guard]` and of the command line.
    pub(super) guard: GuardSettings,
    /// Action if the model with its full context fits on no card.
    pub(super) too_large: TooLarge,
    /// For models whose memory grows with the tokens in use (depth): a request waits, or is refused, if its
    /// tokens may exceed the memory reserved for the model. With false, it is sent and the engine may run out
    /// of memory. Default: true.
    #[serde(default = "yes")]
    pub(super) depth_admission: bool,
}

/// Changes of the parameters in requests: first `strip`, then `set`, then `set-by-name`. A dot in a name
/// leads into an object: `chat_template_kwargs.enable_thinking`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct FilterTable {
    /// Parameters to remove.
    pub(super) strip: Vec<String>,
    /// Parameters of requests that do not set them.
    pub(super) default: Map<String, Value>,
    /// Parameters to set.
    pub(super) set: Map<String, Value>,
    /// Parameters to set in requests that use a certain name of the model: its own or one of `aliases`.
    pub(super) set_by_name: BTreeMap<String, Map<String, Value>>,
    /// System message of conversations that begin without one.
    pub(super) system: Option<String>,
}

impl From<FilterTable> for RequestFilters {
    fn from(table: FilterTable) -> Self {
        let FilterTable { strip, default, set, set_by_name, system } = table;
        Self { strip, default, set, set_by_name, system, ..Self::default() }.checked()
    }
}

/// Models of which some may not run together.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct GroupTable {
    /// The models, by name or alias. A model is in one group at most.
    pub(super) members: Vec<String>,
    /// One of the members runs at a time. Default: false.
    pub(super) swap: bool,
    /// A load of a member unloads all models outside the group. Default: false.
    pub(super) exclusive: bool,
    /// No load of a model outside the group unloads a member. Default: false.
    pub(super) persistent: bool,
}

/// An API key with a name, which the log uses instead of the key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct KeyTable {
    /// The key, or `sha256:` and the SHA-256 digest of the key in hexadecimal digits.
    #[schemars(with = "String")]
    pub(super) key: Option<Spanned<String>>,
    /// Models that the key may use, by name or alias. A `*` stands for any characters. Default: all models.
    pub(super) models: Option<Vec<String>>,
    /// Rights of the key. Default: `["use"]`.
    pub(super) rights: Option<Vec<KeyRight>>,
    /// Requests to models in a minute; more are refused with 429.
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(super) requests_per_minute: Option<NonZeroU32>,
    /// Tokens of prompts and answers in a minute. A request is refused with 429 while earlier ones have used
    /// them up.
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(super) tokens_per_minute: Option<NonZeroU32>,
    /// Requests at a time, waiting ones included; more are refused with 429.
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(super) concurrency: Option<NonZeroU32>,
    /// Importance of its requests: with `high` or `low`, they count as waiting for a minute more or less.
    /// Default: `normal`.
    #[schemars(with = "PriorityWord")]
    pub(super) priority: Priority,
    /// Time from which the key is refused, e.g. `"2027-01-31"` (its first second, UTC) or
    /// `"2027-01-31T18:00:00Z"`.
    pub(super) expires: Option<ExpiryText>,
}

/// Importance of requests, or of the load of a model.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", rename = "Priority")]
#[expect(dead_code, reason = "the type of a schema only")]
enum PriorityWord {
    High,
    Normal,
    Low,
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
