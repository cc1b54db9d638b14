//! Membership in a fleet of hosts: which host answers a request, and what the store is told of this one.
//!
//! Decisions are those of [`FleetNode`]. A request whose model is loaded here or has a seat is decided from memory;
//! the store is asked only for a seat that is claimed, or under which a model is loaded.

mod news;
mod offers;
mod pass;
mod store_link;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderValue, StatusCode};
use plimsoll_base::{Card, CardKind, Reason};
use plimsoll_config::ServeSettings;
use plimsoll_etcd::{Etcd, StoreAddress, StoreAddressError};
use plimsoll_fleet::{
    Affinity, FleetEffect, FleetEvent, FleetNode, KeySpace, NodeSettings, OfferList, SeatToken,
};
use plimsoll_launch::EngineAddress;
use plimsoll_scheduler::{ModelId, SchedulerEvent};
use tokio::sync::{Notify, oneshot};
use tokio::task::spawn_local;

pub(crate) use self::pass::ServePass;
use crate::route::{
    HOP, HttpProblem, ModelService, RequestPrompt, Rope, RouteOptions, SEAT, Upstream, shows,
};
use crate::runtime::Runtime;

/// Time after which a refused client may ask again.
const RETRY: Duration = Duration::from_secs(2);
/// Longest time that a request waits for a seat, if the configuration says nothing.
const WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error(transparent)]
    Store(#[from] StoreAddressError),
    #[error(
        "`{0}` is no name of a host in a fleet; hint: set `host` under [fleet], with a-z, 0-9, '-', '.' and '_'"
    )]
    Name(String),
    #[error("other hosts cannot reach this one at {0}; hint: set `address` under [fleet]")]
    Address(SocketAddr),
    #[error("the hosts of a fleet share a key, and `key-file` under [fleet] is not set")]
    NoKey,
    #[error("cannot read the fleet's key from {}: {error}", path.display())]
    ReadKey { path: PathBuf, error: std::io::Error },
    #[error("the fleet's key in {} is shorter than 16 letters", .0.display())]
    ShortKey(PathBuf),
}

/// The host that answers a request.
#[derive(Debug)]
enum Decision {
    Here,
    There { host: String, address: String, token: SeatToken },
    Nowhere(Reason),
}

pub(crate) struct FleetMember {
    pub(crate) name: HeaderValue,
    node: RefCell<FleetNode>,
    store: Etcd,
    lease: Cell<u64>,
    /// The key that the hosts of the fleet share.
    key: String,
    cards: Vec<Card>,
    offers: RefCell<OfferList>,
    offers_changed: Cell<bool>,
    /// Hosts that may serve a model, as the node was told.
    replicas: RefCell<BTreeMap<String, u32>>,
    runtime: OnceCell<Weak<Runtime>>,
    me: OnceCell<Weak<Self>>,
    waiting: RefCell<HashMap<u64, oneshot::Sender<Decision>>>,
    next_request: Cell<u64>,
    /// Connections to other hosts, by address.
    peers: RefCell<HashMap<String, Upstream>>,
    start: Instant,
    wake_at: Cell<Option<Duration>>,
    wake: Notify,
    /// Told once.
    name_is_taken: Cell<bool>,
    /// Requests that were passed on to other hosts.
    passed_on: Cell<u64>,
}

/// A request that waits for a decision; dropping it gives the request up.
struct Undecided<'a> {
    member: &'a FleetMember,
    request: u64,
}

/// A request at another host, of a model that several hosts serve; dropping it tells the node of its end.
pub(super) struct PassedOn {
    member: Rc<FleetMember>,
    request: u64,
}

impl Drop for PassedOn {
    fn drop(&mut self) {
        self.member.submit(FleetEvent::Ended { request: self.request });
    }
}

impl Drop for Undecided<'_> {
    fn drop(&mut self) {
        if self.member.waiting.borrow_mut().remove(&self.request).is_some() {
            self.member.submit(FleetEvent::Ended { request: self.request });
        }
    }
}

impl FleetMember {
    /// The member that the settings describe; `None` for a server of its own.
    pub(crate) fn of(
        serve: &ServeSettings,
        listens: SocketAddr,
        served: Vec<Card>,
    ) -> Result<Option<Self>, FleetError> {
        let Some(store) = &serve.fleet else { return Ok(None) };
        let store: StoreAddress = store.parse()?;
        let line = |path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let name = serve.fleet_host.clone().unwrap_or_else(|| line("/proc/sys/kernel/hostname"));
        let keys = KeySpace::of(&store.fleet).filter(|_| KeySpace::is_name(&name));
        let (Some(keys), Ok(header)) = (keys, HeaderValue::from_str(&name)) else {
            return Err(FleetError::Name(name));
        };
        let address = match &serve.fleet_address {
            Some(address) => address.clone(),
            None if listens.ip().is_unspecified() => return Err(FleetError::Address(listens)),
            None => listens.to_string(),
        };
        let path = serve.fleet_key_file.clone().ok_or(FleetError::NoKey)?;
        let key = std::fs::read_to_string(&path);
        let key = key.map_err(|error| FleetError::ReadKey { path: path.clone(), error })?.trim().to_owned();
        if key.len() < 16 {
            return Err(FleetError::ShortKey(path));
        }
        // Memory of the host counts only where models are computed there.
        let gpus: Vec<Card> = served.iter().filter(|card| card.kind != CardKind::Host).cloned().collect();
        let cards = if gpus.is_empty() { served } else { gpus };
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seed = u64::try_from(began.as_nanos() & u128::from(u64::MAX)).unwrap_or_default();
        let node = FleetNode::new(NodeSettings {
            life: format!("{seed:x}-{:x}", std::process::id()),
            machine: format!("{} {address}", line("/etc/machine-id")),
            name,
            address,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capacity: cards.iter().map(|card| card.free).sum(),
            seed,
            wait: serve.wait.unwrap_or(WAIT),
        });
        Ok(Some(Self {
            name: header,
            node: RefCell::new(node),
            store: Etcd::new(&store, keys),
            lease: Cell::new(0),
            key,
            cards,
            offers: RefCell::default(),
            offers_changed: Cell::new(false),
            replicas: RefCell::default(),
            runtime: OnceCell::new(),
            me: OnceCell::new(),
            waiting: RefCell::default(),
            next_request: Cell::new(1),
            peers: RefCell::default(),
            start: Instant::now(),
            wake_at: Cell::new(None),
            wake: Notify::new(),
            name_is_taken: Cell::new(false),
            passed_on: Cell::new(0),
        }))
    }

    /// The token of a request that another host passes on.
    pub(crate) fn hop(&self, headers: &HeaderMap) -> Option<Result<SeatToken, HttpProblem>> {
        headers.get(HOP)?;
        let refused = |status, code, text: &str| Some(Err(HttpProblem::new(status, code, text)));
        if !shows(headers, &self.key) {
            let text = "only hosts of the fleet pass requests on, with the fleet's key";
            return refused(StatusCode::UNAUTHORIZED, "invalid_fleet_key", text);
        }
        let token = headers.get(SEAT).and_then(|token| token.to_str().ok()?.parse().ok());
        match token {
            Some(token) => Some(Ok(token)),
            None => refused(StatusCode::BAD_REQUEST, "bad_seat", "the request names no seat"),
        }
    }

    pub(crate) fn admit_at_once(
        &self,
        runtime: &Rc<Runtime>,
        model: ModelId,
        wish: &RouteOptions,
    ) -> Option<ServePass> {
        if self.is_only_here(runtime, wish) {
            return runtime.pass_at_once(model, wish.clone()).map(ServePass::Run);
        }
        let name = &runtime.entry(model).name;
        // Which of several hosts it is depends on the prompt, which is not read here.
        if wish.hop.is_none() && self.node.borrow().has_replicas(name) {
            return None;
        }
        let (_undecided, mut decision) = self.ask(|request| wanted(request, name, wish, Affinity::default()));
        match decision.try_recv().ok()? {
            Decision::Here => runtime.pass_at_once(model, wish.clone()).map(ServePass::Run),
            Decision::There { host, address, token } => {
                let me = self.me()?;
                Some(me.pass_on(Rc::clone(runtime), model, wish.clone(), (host, address, token), 0, None))
            }
            // Decided again, with a future that can wait.
            Decision::Nowhere(_) => None,
        }
    }

    pub(crate) async fn admit(
        self: Rc<Self>,
        runtime: Rc<Runtime>,
        model: ModelId,
        wish: RouteOptions,
        prompt: RequestPrompt<'_>,
    ) -> Result<ServePass, HttpProblem> {
        if self.is_only_here(&runtime, &wish) {
            return runtime.admit_here(model, wish, prompt).await.map(ServePass::Run);
        }
        let name = runtime.entry(model).name.clone();
        let affinity = self.affinity(&runtime, model, &name, &wish, prompt.body);
        let (undecided, decision) = self.ask(|request| wanted(request, &name, &wish, affinity));
        let decision = decision.await;
        let request = undecided.request;
        drop(undecided);
        self.follow(runtime, model, wish, prompt, (request, decision.unwrap_or_else(|_| ended())), 0).await
    }

    /// True for a request that loads no model: it is for this very server.
    fn is_only_here(&self, runtime: &Runtime, wish: &RouteOptions) -> bool {
        wish.hop.is_none() && !wish.autoload.unwrap_or_else(|| runtime.autoloads())
    }

    async fn follow(
        self: Rc<Self>,
        runtime: Rc<Runtime>,
        model: ModelId,
        wish: RouteOptions,
        prompt: RequestPrompt<'_>,
        (request, decision): (u64, Decision),
        tries: u32,
    ) -> Result<ServePass, HttpProblem> {
        match decision {
            Decision::Here => runtime.admit_here(model, wish, prompt).await.map(ServePass::Run),
            Decision::There { host, address, token } => {
                let has_replicas = self.node.borrow().has_replicas(&runtime.entry(model).name);
                let counted = has_replicas.then(|| PassedOn { member: Rc::clone(&self), request });
                Ok(self.pass_on(runtime, model, wish, (host, address, token), tries, counted))
            }
            Decision::Nowhere(reason) => Err(refusal(reason)),
        }
    }

    fn pass_on(
        self: Rc<Self>,
        runtime: Rc<Runtime>,
        model: ModelId,
        wish: RouteOptions,
        (host, address, token): (String, String, SeatToken),
        tries: u32,
        counted: Option<PassedOn>,
    ) -> ServePass {
        let peer = self.peer(&address);
        self.passed_on.set(self.passed_on.get() + 1);
        ServePass::peer(self, runtime, model, wish, (host, token), (&peer, tries), counted)
    }

    /// What draws a request to one of several hosts.
    fn affinity(
        &self,
        runtime: &Runtime,
        model: ModelId,
        name: &str,
        wish: &RouteOptions,
        body: &Rope,
    ) -> Affinity {
        if wish.hop.is_some() || !self.node.borrow().has_replicas(name) {
            return Affinity::default();
        }
        Affinity { prompt: prompt_digest(body), here: runtime.in_flight(model) }
    }

    /// Submits an event of a new request, and gives where its decision will arrive.
    fn ask(&self, event: impl FnOnce(u64) -> FleetEvent) -> (Undecided<'_>, oneshot::Receiver<Decision>) {
        let request = self.next_request.replace(self.next_request.get() + 1);
        let (sender, decision) = oneshot::channel();
        self.waiting.borrow_mut().insert(request, sender);
        self.submit(event(request));
        (Undecided { member: self, request }, decision)
    }

    fn peer(&self, address: &str) -> Upstream {
        let mut peers = self.peers.borrow_mut();
        let peer = peers
            .entry(address.to_owned())
            .or_insert_with(|| Upstream::new(EngineAddress::Remote(address.to_owned())).with_key(&self.key));
        peer.with_lines(Vec::new())
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn me(&self) -> Option<Rc<Self>> {
        self.me.get().and_then(Weak::upgrade)
    }

    fn runtime(&self) -> Option<Rc<Runtime>> {
        self.runtime.get().and_then(Weak::upgrade)
    }

    fn submit(&self, event: FleetEvent) {
        let mut effects = Vec::new();
        self.node.borrow_mut().on_event(self.now(), event, &mut effects);
        effects.into_iter().for_each(|effect| self.carry_out(effect));
    }

    fn carry_out(&self, effect: FleetEffect) {
        let Some(me) = self.me() else { return };
        match effect {
            FleetEffect::Transact { operation, transaction } => drop(spawn_local(async move {
                let outcome = me.store.transact(&transaction, me.lease.get()).await;
                me.submit(FleetEvent::Transacted { operation, outcome });
            })),
            FleetEffect::ReadSeat { operation, model } => drop(spawn_local(async move {
                let seats = me.store.seats(&model).await.ok();
                me.submit(FleetEvent::SeatRead { operation, seats });
            })),
            FleetEffect::Serve { request } => self.decided(request, Decision::Here),
            FleetEffect::Forward { request, host, address, token } => {
                self.decided(request, Decision::There { host, address, token });
            }
            FleetEffect::Refuse { request, reason } => self.decided(request, Decision::Nowhere(reason)),
            // Later: the runtime may be carrying out an effect now.
            FleetEffect::Release { model } => drop(spawn_local(async move {
                if let Some(runtime) = me.runtime()
                    && let Some(model) = runtime.resolve(&model)
                {
                    runtime.unload(model);
                }
            })),
            FleetEffect::HoldIdle { held } => drop(spawn_local(async move {
                if let Some(runtime) = me.runtime() {
                    runtime.submit(SchedulerEvent::IdleHeld { held });
                }
            })),
            FleetEffect::NameTaken { address } => {
                if !self.name_is_taken.replace(true) {
                    let name = self.name.to_str().unwrap_or_default();
                    tracing::error!(
                        "another host at {address} is registered as '{name}', so this one is no member of the fleet; \
                        hint: set `host` under [fleet]"
                    );
                }
            }
            FleetEffect::WakeAt(at) => {
                self.wake_at.set(Some(at));
                self.wake.notify_one();
            }
        }
    }

    fn decided(&self, request: u64, decision: Decision) {
        if let Some(waiting) = self.waiting.borrow_mut().remove(&request) {
            // The client has left in this moment.
            let _ = waiting.send(decision);
        }
    }
}

fn wanted(request: u64, name: &str, wish: &RouteOptions, affinity: Affinity) -> FleetEvent {
    let model = name.to_owned();
    match wish.hop.clone() {
        Some(token) => FleetEvent::Hop { request, model, token },
        None => FleetEvent::Wanted { request, model, affinity },
    }
}

/// Beginnings of prompts in the bodies of the APIs, and the bytes from there on that tell one conversation from another.
const PROMPTS: [&[u8]; 3] = [b"\"messages\"", b"\"prompt\"", b"\"input\""];
const BEGINNING: usize = 512;

/// Digest of the beginning of a prompt. A conversation keeps it, since each turn sends the former ones again.
fn prompt_digest(body: &Rope) -> Option<u64> {
    let at = PROMPTS.iter().find_map(|key| body.find(key, 0))?;
    Some(offers::fnv(&body.copy(at..at + BEGINNING)))
}

fn ended() -> Decision {
    Decision::Nowhere(Reason::new("shutting_down", "the server is shutting down"))
}

fn refusal(reason: Reason) -> HttpProblem {
    HttpProblem::because(StatusCode::SERVICE_UNAVAILABLE, reason).retry_after(RETRY)
}
