//! The daemon: a configuration, an owner of its models, a listener in front, and the signals that end it.
//!
//! Composition only. SIGTERM and SIGINT drain: nothing new is taken, answers in flight finish, every engine
//! ends. A second one ends them at once. SIGHUP reads the configuration again; what is wrong with the new one
//! is told and the old one stays.

mod cards;
mod descriptors;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use plimsoll_base::{Bytes, Card};
use plimsoll_config::{GuardWish, ReclaimBeforeLoad};
use plimsoll_launch::{LaunchError, Launcher, LogFile};
use plimsoll_probe::{Machine, Sampler, StartSamplerError};
use plimsoll_scheduler::Snapshot;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config_file::Config;
use crate::owner::{ConfigureError, Forecast, Owner, Terms};
use crate::route::{Harbor, Keys, Limits, Listen, Origins, Server};
use crate::{owner, route};

/// How long a request waits for its model where nothing else is said: a large model may take minutes to load.
const WAIT: Duration = Duration::from_secs(600);
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Whoever is at work calls its driver every few milliseconds, and a newcomer is not to be kept for one that stands still.
const ASK: Duration = Duration::from_millis(500);

/// What the command line says; everything else is in the configuration.
#[derive(Clone, Debug)]
pub struct Setup {
    pub config: PathBuf,
    pub listen: Option<SocketAddr>,
    /// Others may reach it without a key.
    pub open: bool,
    /// Budgets and descriptions of the user's own; empty to take what is there.
    pub cards: Vec<Card>,
    pub reserve: Option<Bytes>,
    pub engine: Option<PathBuf>,
    pub log_file: Option<PathBuf>,
    /// What guard does for models that say nothing of it.
    pub guard: GuardWish,
    /// How long neighbours may take to give back what they hold idle.
    pub ask: Option<Duration>,
    /// What is done before a load where cards take the host's memory.
    pub reclaim_before_load: Option<ReclaimBeforeLoad>,
    /// Pages that may use the server beside those of this machine; `*` for all.
    pub origins: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Config(#[from] ConfigureError),
    #[error(
        "no memory to serve from: no card answers and /proc/meminfo cannot be read; describe one with --card name=…,total=…"
    )]
    NoCard,
    #[error(transparent)]
    Listen(#[from] Listen),
    #[error(transparent)]
    Launcher(#[from] LaunchError),
    #[error(transparent)]
    Sampler(#[from] StartSamplerError),
    #[error("cannot open the log file {}: {error}", path.display())]
    OpenLog { path: PathBuf, error: std::io::Error },
    #[error("cannot hear signals: {0}")]
    Signals(#[source] std::io::Error),
}

/// What `serve` would do with a configuration, without doing it.
#[derive(Debug)]
pub struct Check {
    pub cards: Vec<plimsoll_scheduler::CardLimit>,
    pub models: Vec<Forecast>,
}

impl Check {
    /// Looks at the cards and at every model; starts nothing and listens nowhere.
    pub async fn of(setup: Setup) -> Result<Self, DaemonError> {
        let config = Config::read(&setup.config).map_err(ConfigureError::Read)?;
        config.warn();
        let sampler = sampler(&setup.cards)?;
        let machine = sampler.machine().await.ok_or(DaemonError::NoCard)?;
        let Terms { settings, engine, .. } = terms(&setup, &config, machine)?;
        let entries = config.roster.models;
        let cards: Vec<Card> = settings.cards.iter().map(|limit| limit.card.clone()).collect();
        owner::check(entries.clone(), &cards).map_err(ConfigureError::Card)?;
        let models = owner::forecast(&entries, engine.as_deref(), &settings.cards);
        Ok(Self {
            cards: settings.cards,
            models,
        })
    }
}

fn sampler(cards: &[Card]) -> Result<Sampler, StartSamplerError> {
    match cards::are_host_only(cards) {
        true => Sampler::of_host(),
        false => Sampler::start(),
    }
}

/// A handle on a running daemon, for programs that run it in their own process.
#[derive(Clone)]
pub struct DaemonHandle(Rc<Owner>);

impl fmt::Debug for DaemonHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DaemonHandle").finish_non_exhaustive()
    }
}

impl DaemonHandle {
    /// Ends every engine and waits for it.
    pub async fn shut_down(&self) {
        self.0.shut_down().await;
    }

    /// Returns models, cards and queues as they are now.
    pub fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }
}

pub struct Daemon {
    owner: Rc<Owner>,
    pub address: SocketAddr,
    config: PathBuf,
    listener: TcpListener,
    server: Rc<Server<Owner>>,
    signals: Signals,
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Daemon {
    pub fn handle(&self) -> DaemonHandle {
        DaemonHandle(Rc::clone(&self.owner))
    }

    /// Binds, reads the configuration and takes its models over; call inside a `LocalRuntime` or a `LocalSet`.
    pub async fn start(setup: Setup) -> Result<Self, DaemonError> {
        let config = Config::read(&setup.config).map_err(ConfigureError::Read)?;
        config.warn();
        let signals = Signals::listen()?;
        let keys = Keys::new(config.keys.clone());
        let listen = setup.listen.or(config.roster.serve.listen).unwrap_or(LISTEN);
        let listener = route::bind(listen, setup.open || !keys.is_empty()).await?;
        let address = listener.local_addr().unwrap_or(listen);
        let sampler = sampler(&setup.cards)?;
        let machine = sampler.machine().await.ok_or(DaemonError::NoCard)?;
        let terms = terms(&setup, &config, machine)?;
        let owner = Owner::start(terms, Launcher::start()?, sampler);
        owner
            .configure(config.roster.models)
            .map_err(ConfigureError::Card)?;
        let settings = route::Settings {
            keys,
            origins: origins(setup.origins),
            limits: Limits {
                connections: descriptors::connections(Limits::default().connections),
                ..Limits::default()
            },
        };
        let server = Rc::new(Server::new(Rc::clone(&owner), settings));
        tracing::info!(
            "{} of {} at http://{address}",
            counted(owner.count()),
            setup.config.display()
        );
        if owner.count() == 0 {
            tracing::warn!("there is no model in it; add one and send SIGHUP");
        }
        tokio::task::spawn_local(Rc::clone(&owner).introduce());
        Ok(Self {
            owner,
            address,
            config: setup.config,
            listener,
            server,
            signals,
        })
    }

    /// Serves until it is told to end, and returns when no engine is left.
    pub async fn run(self) {
        let Self {
            owner,
            config,
            listener,
            server,
            mut signals,
            ..
        } = self;
        let end = async {
            while signals.next().await == Order::Reload {
                reload(&owner, &config);
            }
            tokio::select! {
                () = owner.shut_down() => {}
                () = signals.insisted() => tracing::warn!("ending at once; engines are killed"),
            }
        };
        route::serve(listener, server, end).await;
    }
}

/// Reads the configuration again; what is wrong with it is told and changes nothing.
fn reload(owner: &Owner, path: &Path) {
    match owner.read_config(path) {
        Ok(changed) => tracing::info!("{}: read again, {} changed", path.display(), counted(changed)),
        Err(error) => tracing::error!("{error}; the old configuration stays"),
    }
}

fn counted(models: usize) -> String {
    format!("{models} {}", if models == 1 { "model" } else { "models" })
}

fn origins(named: Vec<String>) -> Origins {
    match named.as_slice() {
        [] => Origins::Loopback,
        named if named.iter().any(|origin| origin == "*") => Origins::Any,
        _ => Origins::These(named),
    }
}

fn terms(setup: &Setup, config: &Config, machine: Machine) -> Result<Terms, DaemonError> {
    let serve = &config.roster.serve;
    let unified = machine.unified;
    let cards = cards::choose(&setup.cards, setup.reserve, machine);
    if cards.is_empty() {
        return Err(DaemonError::NoCard);
    }
    let reclaim_before_load = setup
        .reclaim_before_load
        .or(serve.reclaim_before_load)
        .unwrap_or_default();
    if reclaim_before_load != ReclaimBeforeLoad::Off && !unified {
        tracing::info!("reclaim-before-load has no effect: no card here takes the host's memory");
    }
    let mut settings = plimsoll_scheduler::Settings::new(cards);
    settings.patience = serve.patience.unwrap_or(settings.patience);
    settings.largest_first = unified;
    let chosen = setup
        .engine
        .as_ref()
        .map(|path| vec![path.to_string_lossy().into_owned()]);
    let log_file = setup.log_file.as_ref().map(|path| {
        let open = |error| DaemonError::OpenLog {
            path: path.clone(),
            error,
        };
        LogFile::open(path).map_err(open)
    });
    Ok(Terms {
        config: setup.config.clone(),
        settings,
        engine: chosen.or(serve.engine.clone()),
        wait: serve.wait.unwrap_or(WAIT),
        guard: setup.guard,
        ask: setup.ask.unwrap_or(ASK),
        unified,
        reclaim_before_load,
        log_file: log_file.transpose()?,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Reload,
    End,
}

struct Signals {
    term: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> Result<Self, DaemonError> {
        let listen = |kind| signal(kind).map_err(DaemonError::Signals);
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Order {
        tokio::select! {
            _ = self.term.recv() => Order::End,
            _ = self.interrupt.recv() => Order::End,
            _ = self.hangup.recv() => Order::Reload,
        }
    }

    async fn insisted(&mut self) {
        while self.next().await != Order::End {}
    }
}
