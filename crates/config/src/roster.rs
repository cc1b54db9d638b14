//! Holds the parsed configuration: models, their launch commands and warnings.
//!
//! Models are compared without their position in the file, so a reload restarts only models that changed.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{Bytes, Card, CardKind, CardNames, Company, Priority, find_cards};
use plimsoll_flags::{FlagOrigin, Options, Setting, Warning, quoted};

use super::container::ContainerRun;
use super::depth::TooLarge;
use super::engine_flags::own_llama_server;
use super::engine_kind::{CardPart, CommandKind, Freeing};
use super::failure::{ConfigError, ConfigMistakes, ConfigProblem};
use super::filters::RequestFilters;
use super::guard::GuardSettings;
use super::proxy_address::ProxyAddress;
use super::serve_settings::ServeSettings;

/// Contents of a configuration file of any format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    pub serve: ServeSettings,
    /// In the order of the file.
    pub models: Vec<ConfiguredModel>,
    /// Models that cannot be served because of a mistake in their entry.
    pub refused: Vec<RefusedModel>,
    /// Models of folders that no flags make fit.
    pub unfit: Vec<UnfitModel>,
    pub warnings: Vec<Warning>,
}

/// A model that was found and is not served, because no flags make it fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfitModel {
    pub name: String,
    /// What its least flags lack.
    pub why: String,
}

/// A model with a mistake in its entry; the other models of the file are served.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedModel {
    pub name: String,
    pub aliases: Vec<String>,
    pub error: ConfigError,
    /// Further mistakes in its entry.
    pub others: Vec<ConfigError>,
    /// Its model file, with the place that names it.
    pub file: Option<Setting>,
    pub origin: ConfiguredPlacement,
}

impl RefusedModel {
    /// The entry, or what is refused if mistakes were found in it.
    pub(crate) fn of(entry: ConfiguredModel, found: Vec<ConfigError>) -> Result<ConfiguredModel, Box<Self>> {
        let mut found = found.into_iter();
        let Some(error) = found.next() else { return Ok(entry) };
        let file = entry.launch.model_file().cloned();
        let ConfiguredModel { name, aliases, origin, .. } = entry;
        Err(Box::new(Self { name, aliases, error, others: found.collect(), file, origin }))
    }

    pub fn errors(&self) -> impl Iterator<Item = &ConfigError> {
        std::iter::once(&self.error).chain(&self.others)
    }
}

impl Configuration {
    /// True for the name or an alias of a model, served or refused.
    pub fn has_model(&self, name: &str) -> bool {
        let served = self.models.iter().map(|model| (&model.name, &model.aliases));
        let mut all = served.chain(self.refused.iter().map(|model| (&model.name, &model.aliases)));
        all.any(|(own, aliases)| own == name || aliases.iter().any(|alias| alias == name))
    }

    /// Takes an entry, or what is refused of it.
    pub(crate) fn add(&mut self, entry: ConfiguredModel, found: Vec<ConfigError>) {
        match RefusedModel::of(entry, found) {
            Ok(entry) => self.models.push(entry),
            Err(refused) => self.refused.push(*refused),
        }
    }

    /// Writes the ids of the cards in place of what models call theirs, and refuses models that require a
    /// card which is not among these. Numbers count them as the engine's flags do (`CUDA0`).
    pub fn resolve_cards<'a>(&mut self, cards: impl Iterator<Item = &'a Card>) {
        let (gpus, host): (Vec<&Card>, Vec<&Card>) = cards.partition(|card| card.kind == CardKind::Cuda);
        let names: Vec<CardNames> = gpus.iter().chain(&host).map(|card| card.names()).collect();
        for mut model in std::mem::take(&mut self.models) {
            let mut found: Vec<String> = Vec::new();
            let mut mistakes = Vec::new();
            for name in &model.cards {
                match find_cards(name, &names) {
                    Ok(places) => found.extend(places.into_iter().map(|place| names[place].id.clone())),
                    Err(error) => {
                        let text = format!("model `{}`: {error}", quoted(&model.name));
                        mistakes.push(ConfigError::new(model.origin.0.clone(), ConfigProblem::Parse(text)));
                    }
                }
            }
            if mistakes.is_empty() {
                model.cards = found;
            }
            self.add(model, mistakes);
        }
    }

    /// The configuration if every model of it can be served.
    pub fn whole(self) -> Result<Self, ConfigMistakes> {
        let found = self.refused.iter().flat_map(RefusedModel::errors).cloned().collect();
        ConfigMistakes::none_in(self, found)
    }

    /// Model files of all models, with the places that name them.
    pub fn model_files(&self) -> impl Iterator<Item = &Setting> {
        let served = self.models.iter().filter_map(|model| model.launch.model_file());
        served.chain(self.refused.iter().filter_map(|model| model.file.as_ref()))
    }
}

/// A model that clients can request, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfiguredModel {
    pub name: String,
    pub aliases: Vec<String>,
    pub tags: Vec<String>,
    /// Name and description for people, shown in the list of models.
    pub title: Option<String>,
    pub description: Option<String>,
    /// Changes of its requests.
    pub filters: Arc<RequestFilters>,
    /// Models beside which it may run.
    pub company: Company,
    pub launch: Launch,
    /// Environment variables for this child only, as written; [`Self::environment`] inserts the port.
    pub env: Vec<(String, String)>,
    /// Declared memory; overrides the plan.
    pub memory: Option<Bytes>,
    /// Host memory for the last positions of its cache.
    pub spill: Option<Bytes>,
    /// The kind of program that its command starts, where that is given.
    pub kind: Option<CommandKind>,
    /// Names or UUIDs of the cards it may use; empty for any.
    pub cards: Vec<String>,
    /// Idle time after which it is unloaded; zero is never.
    pub ttl: Option<Duration>,
    /// Time for which it counts as busy between two requests, while its clients go on.
    pub hold: Option<Duration>,
    /// The model is never evicted.
    pub pinned: bool,
    /// The model is loaded when the server starts.
    pub preload: bool,
    /// Served, but not shown in `/v1/models`.
    pub unlisted: bool,
    /// Concurrent requests.
    pub concurrency: Option<u32>,
    /// Hosts of a fleet that may serve it at a time.
    pub replicas: Option<u32>,
    /// Importance of a load of it beside those of other models.
    pub priority: Priority,
    /// Requests after which its engine is started anew.
    pub max_requests: Option<u32>,
    /// Its slots are saved before it leaves, where the server has a folder for that.
    pub warm: bool,
    pub load_timeout: Option<Duration>,
    pub stop_timeout: Option<Duration>,
    /// The child's own name for the model, where it differs.
    pub upstream_name: Option<String>,
    /// Guard settings of this model's own.
    pub guard: GuardSettings,
    /// Handling where its full context does not fit.
    pub too_large: TooLarge,
    /// Requests are admitted by the depth that they may reach.
    pub depth_admission: bool,
    pub origin: ConfiguredPlacement,
}

impl ConfiguredModel {
    /// True if the entry names this card.
    pub fn names_card(&self, card: &Card) -> bool {
        self.cards.iter().any(|name| card.answers_to(name))
    }

    /// True if the model may be placed on this card: one that the entry names, or any if it names none.
    pub fn may_use(&self, card: &Card) -> bool {
        self.cards.is_empty() || self.names_card(card)
    }

    /// True for its name and for its aliases.
    pub(crate) fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// An entry with all settings at their defaults.
    pub fn new(name: String, origin: FlagOrigin) -> Self {
        Self {
            name,
            aliases: Vec::new(),
            tags: Vec::new(),
            title: None,
            description: None,
            filters: Arc::default(),
            company: Company::default(),
            launch: Launch::LlamaServer { program: None, options: Options::default() },
            env: Vec::new(),
            memory: None,
            spill: None,
            kind: None,
            cards: Vec::new(),
            ttl: None,
            hold: None,
            pinned: false,
            preload: false,
            unlisted: false,
            concurrency: None,
            replicas: None,
            priority: Priority::default(),
            max_requests: None,
            warm: true,
            load_timeout: None,
            stop_timeout: None,
            upstream_name: None,
            guard: GuardSettings::default(),
            too_large: TooLarge::default(),
            // On by default: sending the request instead risks the engine of every other client.
            depth_admission: true,
            origin: ConfiguredPlacement(origin),
        }
    }

    /// True for an engine that is not this server's own: requests go to another host, and no container of
    /// this one is started for them.
    pub fn is_foreign(&self) -> bool {
        self.launch.is_foreign()
    }

    /// The part of its cards that its command takes by its flags.
    pub fn part(&self) -> Option<CardPart> {
        let (kind, argv) = self.command_kind().filter(|_| !self.is_foreign())?;
        kind.part(argv)
    }

    /// The same, or what its engine takes without such a flag, where that is known.
    pub fn part_or_usual(&self) -> Option<CardPart> {
        let (kind, argv) = self.command_kind().filter(|_| !self.is_foreign())?;
        kind.part_or_usual(argv)
    }

    /// The way in which its engine frees memory while it is idle.
    pub fn freeing(&self) -> Option<Freeing> {
        let (kind, argv) = self.command_kind()?;
        kind.freeing(argv)
    }

    /// True if its engine's start measures the free memory of its cards.
    pub fn measures_free(&self) -> bool {
        self.command_kind().is_some_and(|(kind, _)| kind.measures_free())
    }

    fn command_kind(&self) -> Option<(CommandKind, &[String])> {
        let Launch::Command { argv, .. } = &self.launch else { return None };
        Some((self.kind.or_else(|| CommandKind::of(argv))?, argv))
    }

    /// Returns the environment variables of the child on `port`; their values may contain `${PORT}` too.
    pub fn environment(&self, port: u16) -> Vec<(String, String)> {
        let set = self.env.iter();
        set.map(|(name, value)| (name.clone(), with_port(value, port))).collect()
    }
}

/// Position of an entry in its file. All positions compare as equal, so that entries are compared by their
/// settings.
#[derive(Clone, Debug)]
pub struct ConfiguredPlacement(pub FlagOrigin);

impl PartialEq for ConfiguredPlacement {
    fn eq(&self, _: &Self) -> bool {
        // A line added at the top of a file moves every entry below it, and none of them has to restart.
        true
    }
}

impl Deref for ConfiguredPlacement {
    type Target = FlagOrigin;

    fn deref(&self) -> &FlagOrigin {
        &self.0
    }
}

/// Launch command of a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch {
    /// llama-server with these flags. Plimsoll sets host, port and alias.
    LlamaServer {
        /// The program, if not [`ServeSettings::engine`].
        program: Option<Vec<String>>,
        options: Options,
    },
    /// Any program that serves the OpenAI protocol on its own port.
    Command {
        /// With `${PORT}` unexpanded.
        argv: Vec<String>,
        /// Its flags, if it is a llama-server.
        options: Option<Options>,
        /// The listening address: `http://…`, with `${PORT}` unexpanded.
        proxy: String,
        /// The path that answers 200 once it is ready; `none` for no check.
        check: String,
        /// The command that stops it instead of a signal, with `${PORT}` and `${PID}` unexpanded.
        stop: Option<Vec<String>>,
    },
}

/// The path that answers 200 once an engine of no known kind is ready.
pub const CHECK: &str = "/health";
/// Placeholder for the port in a user's command.
pub const PORT: &str = "${PORT}";
/// Placeholder for the process id in a stop command.
pub const PID: &str = "${PID}";

impl Launch {
    /// True if it names no engine of its own: flags alone, or a command that begins with the bare name
    /// `llama-server`.
    pub fn names_no_engine(&self) -> bool {
        match self {
            Self::LlamaServer { program, .. } => program.is_none(),
            Self::Command { argv, .. } => argv.first().is_some_and(|word| word == "llama-server"),
        }
    }

    /// Returns the command line that serves `name` on `port` of the loopback. `engine` is the program for
    /// models that give only flags, and `socket` the Unix socket that it listens on instead.
    pub fn command_line(
        &self,
        engine: &[String],
        name: &str,
        port: u16,
        socket: Option<&str>,
    ) -> Vec<String> {
        match self {
            Self::LlamaServer { program, options } => {
                let mut argv = program.as_deref().unwrap_or(engine).to_vec();
                argv.extend(options.to_argv());
                let port = port.to_string();
                // Last on the line, so they win over anything in the options.
                let host = socket.unwrap_or("127.0.0.1");
                argv.extend(["--host", host, "--port", &port, "--alias", name].map(str::to_owned));
                argv
            }
            Self::Command { argv, .. } => argv.iter().map(|argument| with_port(argument, port)).collect(),
        }
    }

    /// Paths in the command: the program, if it is named with a folder, and the model file.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let program = match self {
            Self::LlamaServer { program, .. } => program.as_deref().and_then(<[String]>::first),
            Self::Command { argv, .. } => argv.first(),
        };
        let program = program.map(String::as_str).filter(|program| program.contains('/'));
        program.into_iter().chain(self.options().and_then(|options| options.text("--model")))
    }

    /// The setting that names the model file.
    pub fn model_file(&self) -> Option<&Setting> {
        self.options().and_then(|options| options.get("--model"))
    }

    /// Returns the address of the child that got `port`.
    pub fn upstream(&self, port: u16) -> String {
        match self {
            Self::LlamaServer { .. } => format!("http://127.0.0.1:{port}"),
            Self::Command { proxy, .. } => with_port(proxy, port),
        }
    }

    /// The address of the child that got `port`, or what is wrong with its `proxy` and what to write.
    pub fn address(&self, port: u16) -> Result<ProxyAddress, (&'static str, &'static str)> {
        ProxyAddress::read(&self.upstream(port))
    }

    /// Returns the port of 127.0.0.1 on which the child that got `port` listens; `None` if it listens
    /// elsewhere.
    pub fn listens_on(&self, port: u16) -> Option<u16> {
        match self.address(port) {
            Ok(ProxyAddress::Port(port)) => Some(port),
            _ => None,
        }
    }

    /// The address of an engine that is not this server's own, as it is written: on another machine, or in a
    /// container that is reached by its name.
    pub fn elsewhere(&self) -> Option<&str> {
        let Self::Command { proxy, .. } = self else { return None };
        matches!(self.address(1), Ok(ProxyAddress::Elsewhere(_))).then_some(proxy)
    }

    /// See [`ConfiguredModel::is_foreign`].
    pub(crate) fn is_foreign(&self) -> bool {
        let Self::Command { argv, .. } = self else { return false };
        self.elsewhere().is_some() && ContainerRun::of(argv).is_none()
    }

    /// True for a llama-server that the command itself becomes: neither behind a shell nor in a container.
    pub fn is_own_llama_server(&self) -> bool {
        match self {
            Self::LlamaServer { .. } => true,
            Self::Command { argv, options, .. } => options.is_some() && own_llama_server(argv).is_some(),
        }
    }

    /// Returns the path that answers 200 once the child is ready; `None` if no check is wanted.
    pub fn check(&self) -> Option<&str> {
        match self {
            // llama-server answers 503 there while it loads.
            Self::LlamaServer { .. } => Some(CHECK),
            Self::Command { check, .. } => (check != "none").then_some(check),
        }
    }

    /// The flags of a llama-server, for the memory plan; `None` for another program.
    pub fn options(&self) -> Option<&Options> {
        match self {
            Self::LlamaServer { options, .. } => Some(options),
            Self::Command { options, .. } => options.as_ref(),
        }
    }
}

fn with_port(text: &str, port: u16) -> String {
    // Plain substitution: the text was split into arguments before, so a port cannot add any.
    text.replace(PORT, &port.to_string())
}
