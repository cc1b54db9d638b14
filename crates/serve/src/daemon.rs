//! Assembles the `serve` daemon from configuration, scheduler and HTTP server, and handles signals.
//!
//! SIGTERM and SIGINT let requests in flight finish and then stop every engine; a second signal stops all at
//! once. SIGHUP reloads the configuration. Each step is reported to systemd.

mod cards;
mod check;
mod descriptors;
mod engine_report;
mod found;
mod service_manager;
mod variables;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use plimsoll_base::{Backends, Card, counted};
use plimsoll_cards::{Machine, Sampler, StartSamplerError};
use plimsoll_config::{ReclaimBeforeLoad, ServeSettings};
use plimsoll_engine::{inherited, program};
use plimsoll_hub::Address;
use plimsoll_import::Places;
use plimsoll_log::{LogFile, LogOutput};
use plimsoll_process::confinement::{EngineUser, EngineUserError};
use plimsoll_process::{LaunchError, Launcher};
use plimsoll_scheduler::SchedulerSnapshot;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;

pub use self::check::ConfigCheck;
use self::found::WatchedConfig;
use crate::handlers;
use crate::handlers::ExtensionSettings;
use plimsoll_member::{Fleet, FleetError, FleetMember};
use plimsoll_route::{ApiKeys, HEARTBEAT, HttpServer, Limits, Listen, ModelService, Origins};
use plimsoll_runtime::Config;
use plimsoll_runtime::ReadConfigError;
use plimsoll_runtime::{ConfigureError, Extension, Runtime, RuntimeSettings};
use plimsoll_task::DaemonFuture;
use plimsoll_task::spawn_local;
use service_manager::ServiceManager;

/// Time that a request waits for its model by default: a large model may take minutes to load.
const WAIT: Duration = Duration::from_secs(600);
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// A process at work calls its driver every few milliseconds; a load is not delayed for one that does not.
const ASK: Duration = Duration::from_millis(500);

/// Configuration file of `serve`, and the settings of the command line, which win over those of the file.
#[derive(Clone, Debug)]
pub struct Setup {
    pub config: PathBuf,
    /// Places whose models are served beside those of the file, which may then be missing.
    pub places: Option<Places>,
    pub serve: ServeSettings,
    /// The log of this program.
    pub log: LogOutput,
}

impl Setup {
    /// Reads the configuration, and gives the settings of command line and file together.
    fn read(&self) -> Result<(Config, ServeSettings), ConfigureError> {
        let config = Config::read_with(&self.config, self.places.as_ref())
            .map_err(ReadConfigError::and_missing_files)?;
        let serve = self.serve.clone().or(&config.roster.serve);
        Ok((config, serve))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Config(#[from] ConfigureError),
    #[error(
        "there is no memory to serve models from: no GPU responds, and /proc/meminfo cannot be read; \
            describe a card with \
            --card name=…,total=…"
    )]
    NoCard,
    #[error("the configuration {} contains no model; add one", .0.display())]
    NoModel(PathBuf),
    #[error("no model that can be served was found in {0}; put a GGUF file there, or name another folder")]
    FindModel(String),
    #[error(transparent)]
    Listen(#[from] Listen),
    #[error(transparent)]
    EngineUser(#[from] EngineUserError),
    #[error(transparent)]
    Launcher(#[from] LaunchError),
    #[error(transparent)]
    Sampler(#[from] StartSamplerError),
    #[error("cannot open the log file {}: {error}", path.display())]
    OpenLog { path: PathBuf, error: std::io::Error },
    #[error("`{0}` is not an address; write http://HOST/PATH or https://HOST/PATH")]
    Address(&'static str),
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
}

fn listen(serve: &ServeSettings) -> Vec<SocketAddr> {
    if serve.listen.is_empty() { vec![LISTEN] } else { serve.listen.clone() }
}

fn sampler(cards: &[Card]) -> Result<Sampler, StartSamplerError> {
    if cards::are_host_only(cards) { Sampler::of_host() } else { Sampler::start() }
}

/// Handle on a running daemon, for programs that run it in their own process.
#[derive(Clone)]
pub struct DaemonHandle(Rc<Runtime>);

impl fmt::Debug for DaemonHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DaemonHandle").finish_non_exhaustive()
    }
}

impl DaemonHandle {
    /// Ends every engine and waits for it.
    pub fn shut_down(&self) -> DaemonFuture<()> {
        let runtime = Rc::clone(&self.0);
        Box::pin(async move { runtime.shut_down().await })
    }

    /// Returns models, cards and queues.
    pub fn snapshot(&self) -> SchedulerSnapshot {
        self.0.snapshot()
    }
}

pub struct Daemon {
    runtime: Rc<Runtime>,
    /// The first address that it listens on.
    pub address: SocketAddr,
    config: WatchedConfig,
    listeners: Vec<TcpListener>,
    /// The port for other hosts of the fleet.
    peers: Option<TcpListener>,
    /// This host as a member of a fleet.
    member: Option<Rc<FleetMember>>,
    server: Rc<HttpServer<Fleet>>,
    signals: DaemonSignals,
    log: LogOutput,
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Daemon {
    pub fn handle(&self) -> DaemonHandle {
        DaemonHandle(Rc::clone(&self.runtime))
    }

    /// Binds, reads the configuration and applies its models; call inside a `LocalRuntime` or a `LocalSet`.
    pub fn start(setup: Setup) -> DaemonFuture<Result<Self, DaemonError>> {
        Box::pin(Self::begin(setup))
    }

    async fn begin(setup: Setup) -> Result<Self, DaemonError> {
        let (mut config, serve) = setup.read()?;
        // With no model left there is nothing to serve.
        if config.roster.models.is_empty() && config.found.is_none() {
            config =
                config.whole().map_err(ReadConfigError::and_missing_files).map_err(ConfigureError::Read)?;
        }
        let format = setup.log.configure(config.roster.serve.log_level, config.roster.serve.log_format);
        let log_file = serve.log_file.as_ref().map(|path| {
            let open = |error| DaemonError::OpenLog { path: path.clone(), error };
            LogFile::open(path, format).map_err(open)
        });
        let log_file = log_file.transpose()?;
        log_file.iter().cloned().for_each(|file| setup.log.add_file(file));
        if config.found.is_none() {
            config.warn();
        }
        // Before anything slow, so that a SIGHUP during the start does not end the daemon.
        let signals = DaemonSignals::listen()?;
        let keys = ApiKeys::new(config.keys.clone());
        // Bound before the models are read: a second daemon fails at once, and not after starting engines.
        let listeners = plimsoll_route::bind(&listen(&serve), serve.open || !keys.is_empty())?;
        let addresses: Vec<_> = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let address = addresses.first().copied().unwrap_or(LISTEN);
        let sampler = sampler(&serve.cards)?;
        let machine = sampler.machine();
        // Started while the sampler's thread reads the cards.
        let launcher = Launcher::start()?;
        let machine = machine.await.ok_or(DaemonError::NoCard)?;
        cards::warn_of_absent(&serve.cards, &machine);
        variables::notify(&serve, &config.roster);
        let (mut settings, extensions) = settings(&setup, &config, &serve, machine, keys.clone())?;
        if config.found.is_some() {
            let lines = config.choose_flags(&settings.served(), plimsoll_runtime::this_host());
            lines.iter().for_each(|line| tracing::info!("{line}"));
            config.warn();
        }
        config.notify_of_variables(settings.cards());
        config.roster.resolve_cards(settings.cards());
        if config.roster.models.is_empty() && !config.roster.refused.is_empty() {
            config = config.whole().map_err(ConfigureError::Read)?;
        }
        // A reload must not open a server that refused to start without a key.
        settings.log_file = log_file;
        settings.needs_keys = !serve.open && !addresses.iter().all(|address| address.ip().is_loopback());
        let of_variables = config.of_variables(settings.cards());
        config.roster.warnings.extend(of_variables);
        let (mut extensions, asks) = handlers::all(extensions, settings.cards());
        let fleet = FleetMember::of(&serve, address, settings.served())?.map(Rc::new);
        let peers = match fleet.as_ref().and_then(|fleet| fleet.peer_port()) {
            // Certificates or the fleet's key are asked for there, so it may be open to other machines.
            Some(port) => plimsoll_route::bind(&[port], true)?.pop(),
            None => None,
        };
        extensions.extend(fleet.iter().map(|fleet| Rc::clone(fleet) as Rc<dyn Extension>));
        settings.scheduler.asks = asks;
        let runtime = Runtime::start(settings, launcher, sampler, extensions);
        runtime.has_warned(&config);
        runtime.configure(config.roster).map_err(ConfigureError::Card)?;
        let settings = plimsoll_route::HttpSettings {
            keys,
            models_max: serve.models_max.unwrap_or(0),
            origins: origins(serve.allow_origins),
            heartbeat: Some(serve.heartbeat.unwrap_or(HEARTBEAT)).filter(|every| !every.is_zero()),
            limits: Limits {
                connections: descriptors::connections(Limits::default().connections),
                ..Limits::default()
            },
        };
        let service = Rc::new(Fleet::around(Rc::clone(&runtime), fleet.clone()));
        let server = Rc::new(HttpServer::new(service, settings));
        for address in &addresses {
            tracing::info!(
                "serving {} of {} at http://{address}",
                counted(runtime.state.count(), "model"),
                setup.places.as_ref().map_or_else(|| setup.config.display().to_string(), Places::in_words)
            );
        }
        if runtime.state.count() == 0 {
            tracing::warn!(
                "there is no model, so every request is refused; add a section [models.NAME] and run `plimsoll reload`, or a file to a folder that is served"
            );
        }
        // Surveys and the search for the engine read from disk; requests need not wait for them.
        spawn_local(introduce(Rc::clone(&runtime)));
        let (log, member) = (setup.log, fleet);
        let config = WatchedConfig { path: setup.config, places: setup.places, settled: config.settled };
        Ok(Self { runtime, address, config, listeners, peers, member, server, signals, log })
    }

    /// Serves until a signal ends it, and returns when no engine is left.
    pub fn run(self) -> DaemonFuture<()> {
        Box::pin(self.serve())
    }

    async fn serve(self) {
        let Self { runtime, address, config, listeners, peers, member, server, mut signals, log } = self;
        let watching = found::watch(Rc::clone(&runtime), config.clone());
        let config = config.path;
        let manager = Rc::new(ServiceManager::of_environment());
        let ready = {
            let (manager, runtime) = (Rc::clone(&manager), Rc::clone(&runtime));
            move || manager.ready(&format!("{} at http://{address}", counted(runtime.state.count(), "model")))
        };
        ready();
        let (drained, listening) = oneshot::channel();
        let ending = Rc::clone(&server);
        let requested = Rc::clone(&runtime);
        let end = async {
            while signals.next().await == DaemonOrder::Reload {
                tracing::info!("audit reload: SIGHUP");
                manager.reloading();
                log.reopen();
                let (runtime, config, ready) = (Rc::clone(&runtime), config.clone(), ready.clone());
                // A task of its own, so that a signal is heard while it reads.
                spawn_local(async move {
                    // A failure is logged, and changes nothing.
                    let _ = runtime.read_config(&config).await;
                    ready();
                });
            }
            tracing::info!("audit stop: a signal");
            manager.stopping();
            let busy = runtime.snapshot().models.iter().map(|model| model.in_flight).sum::<u32>();
            if busy > 0 {
                let answers = counted(busy, "answer");
                tracing::info!("stopping after the end of {answers}; a second signal stops at once");
            }
            ending.end_feeds();
            tokio::select! {
                // From here on no engine is left, and only connections are open.
                () = runtime.shut_down() => drop(drained.send(Some(signals))),
                () = signals.insisted() => {
                    tracing::warn!("stopping at once; engines are killed");
                    // Answers in progress would keep their connections, and the daemon its engines.
                    drop(drained.send(None));
                }
            }
        };
        // Connections of clients that read slowly may outlive the last engine.
        let insisted = async {
            match listening.await {
                Ok(Some(mut signals)) => {
                    signals.insisted().await;
                    tracing::warn!("stopping at once; open connections are closed");
                }
                Ok(None) => {}
                Err(_) => std::future::pending().await,
            }
        };
        let (notify_peers, mut ended) = watch::channel(false);
        let for_peers = member.clone().zip(peers).map(|(fleet, listener)| {
            let ended = async move { drop(ended.wait_for(|ended| *ended).await) };
            plimsoll_route::serve_peers(listener, Rc::clone(&server), fleet, ended)
        });
        let end = async {
            end.await;
            notify_peers.send_replace(true);
        };
        let serving = async {
            tokio::join!(plimsoll_route::serve(listeners, server, end), async {
                if let Some(for_peers) = for_peers {
                    for_peers.await;
                }
            })
        };
        tokio::select! {
            _ = serving => {}
            () = insisted => {}
            () = watching => {}
            () = manager.keep_alive() => {}
        }
        requested.end_questions();
        if let Some(member) = member {
            member.leave().await;
        }
        tracing::info!(
            "end: {}, {} s after the start",
            requested.counted(),
            requested.state.up_since().elapsed().as_secs()
        );
    }
}

/// Logs the engine, the cards and the need of each model.
async fn introduce(runtime: Rc<Runtime>) {
    // After the requests that already wait for the daemon's start.
    yield_now().await;
    engine_report::notify(runtime.settings.engine.as_deref(), &runtime.settings.scheduler.cards);
    runtime.introduce().await;
}

fn origins(named: Vec<String>) -> Origins {
    match named.as_slice() {
        // Pages of other sites must not use a server that asks for no key.
        [] => Origins::Own,
        named if named.iter().any(|origin| origin == "*") => Origins::Any,
        _ => Origins::These(named),
    }
}

fn settings(
    setup: &Setup,
    config: &Config,
    serve: &ServeSettings,
    machine: Machine,
    keys: ApiKeys,
) -> Result<(RuntimeSettings, ExtensionSettings), DaemonError> {
    let (unified, kernel_cards) = (machine.unified, machine.kernel_cards.clone());
    // Where the library knows all GPUs nothing depends on it.
    let configured = serve.engine.as_deref().and_then(|command| command.first()).map(Path::new);
    let engine = if kernel_cards.is_empty() { Backends::Unsure } else { program::usual_backends(configured) };
    let mut cards = cards::choose(&serve.cards, serve.reserve, machine, &engine);
    // Memory that other processes find free until idle models have left for them.
    for limit in &mut cards {
        limit.reserve = limit.reserve.max(serve.yield_below.unwrap_or_default());
    }
    // Neither a card nor /proc/meminfo: this happens in a sandbox only.
    if cards.is_empty() {
        return Err(DaemonError::NoCard);
    }
    let reclaim_before_load = serve.reclaim_before_load.unwrap_or_default();
    if reclaim_before_load != ReclaimBeforeLoad::Off && !unified {
        tracing::info!(
            "reclaim-before-load has no effect: no driver of this machine counts page cache as used"
        );
    }
    let mut scheduler = plimsoll_scheduler::SchedulerSettings::new(cards);
    // A setting that is not given keeps the scheduler's own value.
    scheduler.models_max = serve.models_max.and_then(NonZeroUsize::new);
    scheduler.patience = serve.patience.unwrap_or(scheduler.patience);
    // Where cards have memory of their own, one load does not fill another's memory with page cache.
    scheduler.largest_first = unified || scheduler.cards.iter().any(|limit| limit.card.shares_host);
    scheduler.gives_way = serve.yield_below.is_some();
    let engine_user = serve.engine_user.as_deref().map(EngineUser::find).transpose()?;
    let extensions = ExtensionSettings {
        guard: serve.guard,
        engine_user: engine_user.clone(),
        ask: serve.ask.unwrap_or(ASK),
        unified: unified.then_some(reclaim_before_load),
    };
    let (inherited, _) = inherited(std::env::vars_os(), &serve.pass_env);
    let address = |key, text: &Option<String>| {
        text.as_deref().map(Address::parse).transpose().map_err(|_| DaemonError::Address(key))
    };
    let settings = RuntimeSettings {
        config: setup.config.clone(),
        places: setup.places.clone(),
        serve: config.roster.serve.clone(),
        keys,
        needs_keys: false,
        scheduler,
        kernel_cards,
        engine: serve.engine.clone(),
        wait: serve.wait.unwrap_or(WAIT),
        log_file: None,
        warm: serve.warm.unwrap_or_default(),
        engine_user,
        webhook: address("webhook", &serve.webhook)?,
        traces: address("traces", &serve.traces)?,
        inherited,
    };
    Ok((settings, extensions))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DaemonOrder {
    Reload,
    End,
}

struct DaemonSignals {
    term: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl DaemonSignals {
    fn listen() -> Result<Self, DaemonError> {
        let listen = |kind| signal(kind).map_err(DaemonError::Signals);
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> DaemonOrder {
        tokio::select! {
            _ = self.term.recv() => DaemonOrder::End,
            _ = self.interrupt.recv() => DaemonOrder::End,
            _ = self.hangup.recv() => DaemonOrder::Reload,
        }
    }

    async fn insisted(&mut self) {
        // A reload is ignored from here on: the daemon is ending.
        while self.next().await != DaemonOrder::End {}
    }
}
