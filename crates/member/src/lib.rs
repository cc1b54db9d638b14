//! Makes this daemon a member of a fleet: it chooses the host for each request, and publishes its own state.
//!
//! [`FleetNode`] makes the decisions. A seat is the fleet's record that a host has a model, or is about to
//! load it. A request needs no access to the fleet's store (etcd) if its model is loaded here or has a seat.
//! The store is used to claim a seat, and once more before the model of a claimed seat is loaded.
#![forbid(unsafe_code)]

mod files;
mod follow;
mod follow_host;
mod news;
mod news_share;
mod notify;
mod offers;
mod pace;
mod pass;
mod reported_news;
mod service;
mod start;
mod store_link;
mod trust;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode};
use plimsoll_base::{Card, Reason};
use plimsoll_engine::EngineAddress;
use plimsoll_etcd::Etcd;
use plimsoll_fleet::{Affinity, FleetEffect, FleetEvent, FleetNode, HostCopies, OfferList, SeatToken};
use plimsoll_scheduler::{ModelId, SchedulerEvent};
use tokio::sync::{Notify, oneshot};

use self::files::SharedFiles;
pub use self::pass::{PeerPass, ServePass};
use self::reported_news::ReportedNews;
pub use self::service::Fleet;
pub use self::start::FleetError;
use self::trust::{HostTrust, RefusedPeers};
use plimsoll_route::{HttpProblem, ModelService, RequestPrompt, Rope, RouteOptions, Upstream};
use plimsoll_runtime::Runtime;
use plimsoll_task::spawn_local;

/// Time after which a refused client may ask again.
const RETRY: Duration = Duration::from_secs(2);

/// The host that answers a request.
#[derive(Debug)]
enum Decision {
    Here,
    There { host: String, address: String, token: SeatToken },
    Nowhere(Reason),
}

pub struct FleetMember {
    pub name: HeaderValue,
    node: RefCell<FleetNode>,
    store: Etcd,
    /// 0 while the store has granted none.
    lease: Cell<u64>,
    lease_given_up: Notify,
    /// News come from another host, and not from the store.
    is_following: Cell<bool>,
    /// The news source lied; it is left.
    leaves_source: Cell<bool>,
    source_left: Notify,
    reported: ReportedNews,
    trust: HostTrust,
    /// Where other hosts come to, if not to the address of clients.
    peer_port: Option<SocketAddr>,
    refused: RefCell<RefusedPeers>,
    cards: Vec<Card>,
    offers: RefCell<OfferList>,
    offers_changed: Cell<bool>,
    /// Files that it shares with other hosts, if it shares any.
    files: Option<SharedFiles>,
    /// Files that it lacks and copies, as reported to the node.
    copies_reported: RefCell<HostCopies>,
    /// Hosts that may serve a model, as reported to the node.
    replicas: RefCell<BTreeMap<String, u32>>,
    runtime: OnceCell<Weak<Runtime>>,
    me: OnceCell<Weak<Self>>,
    waiting: RefCell<HashMap<u64, oneshot::Sender<Decision>>>,
    next_request: Cell<u64>,
    /// Address of each other host, and connections to it.
    peers: RefCell<HashMap<String, (String, Upstream)>>,
    start: Instant,
    wake_at: Cell<Option<Duration>>,
    wake: Notify,
    /// Reported once.
    name_is_taken: Cell<bool>,
    /// Requests that were passed on to other hosts.
    passed_on: Cell<u64>,
}

impl fmt::Debug for FleetMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetMember").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A request that waits for a decision; dropping it gives the request up.
struct Undecided<'a> {
    member: &'a FleetMember,
    request: u64,
}

/// A request at another host, of a model that several hosts serve; dropping it reports to the node its end.
pub(crate) struct PassedOn {
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
    pub(crate) fn admit_at_once(
        &self,
        runtime: &Rc<Runtime>,
        model: ModelId,
        options: &RouteOptions,
    ) -> Option<ServePass> {
        if self.is_only_here(runtime, options) {
            return runtime.admit_at_once(model, options.clone()).map(ServePass::from);
        }
        let name = &runtime.state.entry(model).name;
        // Which of several hosts it is depends on the prompt, which is not read here.
        if options.hop.is_none() && self.node.borrow().has_replicas(name) {
            return None;
        }
        let (_undecided, mut decision) =
            self.ask(|request| wanted(request, name, options, Affinity::default()));
        match decision.try_recv().ok()? {
            Decision::Here => runtime.admit_at_once(model, options.clone()).map(ServePass::from),
            Decision::There { host, address, token } => {
                let me = self.me()?;
                Some(me.pass_on(Rc::clone(runtime), model, options.clone(), (host, address, token), 0, None))
            }
            // Decided again, with a future that can wait.
            Decision::Nowhere(_) => None,
        }
    }

    pub(crate) async fn admit(
        self: Rc<Self>,
        runtime: Rc<Runtime>,
        model: ModelId,
        options: RouteOptions,
        prompt: RequestPrompt<'_>,
    ) -> Result<ServePass, HttpProblem> {
        if self.is_only_here(&runtime, &options) {
            return runtime.admit(model, options, prompt).await.map(ServePass::from);
        }
        let name = runtime.state.entry(model).name.clone();
        let affinity = self.affinity(&runtime, model, &name, &options, prompt.body);
        let (undecided, decision) = self.ask(|request| wanted(request, &name, &options, affinity));
        let decision = decision.await;
        let request = undecided.request;
        drop(undecided);
        self.follow(runtime, model, options, prompt, (request, decision.unwrap_or_else(|_| ended())), 0).await
    }

    /// True for a request that loads no model: it is for this very server.
    fn is_only_here(&self, runtime: &Runtime, options: &RouteOptions) -> bool {
        options.hop.is_none() && !options.autoload.unwrap_or_else(|| runtime.autoloads())
    }

    async fn follow(
        self: Rc<Self>,
        runtime: Rc<Runtime>,
        model: ModelId,
        options: RouteOptions,
        prompt: RequestPrompt<'_>,
        (request, decision): (u64, Decision),
        tries: u32,
    ) -> Result<ServePass, HttpProblem> {
        match decision {
            Decision::Here => runtime.admit(model, options, prompt).await.map(ServePass::from),
            Decision::There { host, address, token } => {
                let has_replicas = self.node.borrow().has_replicas(&runtime.state.entry(model).name);
                let counted = has_replicas.then(|| PassedOn { member: Rc::clone(&self), request });
                Ok(self.pass_on(runtime, model, options, (host, address, token), tries, counted))
            }
            Decision::Nowhere(reason) => Err(refusal(reason)),
        }
    }

    fn pass_on(
        self: Rc<Self>,
        runtime: Rc<Runtime>,
        model: ModelId,
        options: RouteOptions,
        (host, address, token): (String, String, SeatToken),
        tries: u32,
        counted: Option<PassedOn>,
    ) -> ServePass {
        let peer = self.peer(&host, &address);
        self.passed_on.set(self.passed_on.get() + 1);
        ServePass::peer(self, runtime, model, options, (host, token), (&peer, tries), counted)
    }

    /// Affinity of a request to one of several hosts.
    fn affinity(
        &self,
        runtime: &Runtime,
        model: ModelId,
        name: &str,
        options: &RouteOptions,
        body: &Rope,
    ) -> Affinity {
        if options.hop.is_some() || !self.node.borrow().has_replicas(name) {
            return Affinity::default();
        }
        Affinity { prompt: prompt_digest(body), here: runtime.state.in_flight(model) }
    }

    /// Submits an event of a new request, and gives where its decision will arrive.
    fn ask(&self, event: impl FnOnce(u64) -> FleetEvent) -> (Undecided<'_>, oneshot::Receiver<Decision>) {
        let request = self.next_request.replace(self.next_request.get() + 1);
        let (sender, decision) = oneshot::channel();
        self.waiting.borrow_mut().insert(request, sender);
        self.submit(event(request));
        (Undecided { member: self, request }, decision)
    }

    fn peer(&self, host: &str, address: &str) -> Upstream {
        let mut peers = self.peers.borrow_mut();
        if let Some((_, peer)) = peers.get(host).filter(|(known, _)| known == address) {
            return peer.with_lines(Vec::new());
        }
        let peer = Upstream::new(EngineAddress::Remote(address.to_owned()));
        let peer = match &self.trust {
            HostTrust::Key(key) => peer.with_key(key),
            HostTrust::Certificates(certificates) => {
                let (me, name) = (self.me.get().cloned().unwrap_or_default(), host.to_owned());
                peer.of_host(certificates.tls(), host, move |error| {
                    tracing::warn!("fleet: host '{name}' is not used for a minute: {error}");
                    if let Some(me) = me.upgrade() {
                        me.submit(FleetEvent::HostDistrusted { host: name.clone() });
                    }
                })
            }
        };
        let shared = peer.with_lines(Vec::new());
        peers.insert(host.to_owned(), (address.to_owned(), peer));
        shared
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
                let outcome = me.transact(&transaction).await;
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
            FleetEffect::HoldIdle { occupied } => drop(spawn_local(async move {
                if let Some(runtime) = me.runtime() {
                    runtime.submit(SchedulerEvent::IdleOccupied { occupied });
                }
            })),
            FleetEffect::Copy { model, host, address } => {
                drop(spawn_local(me.order_copy(model, host, address)));
            }
            FleetEffect::NameTaken { address } => {
                if !self.name_is_taken.replace(true) {
                    let name = self.name.to_str().unwrap_or_default();
                    tracing::error!(
                        "another host at {address} is registered as '{name}', so this one is not a member of the fleet; \
                        hint: set another name as `host` under [fleet]"
                    );
                }
            }
            FleetEffect::StoreRestored => self.begin_life(),
            FleetEffect::NewsDoubted { host } => {
                tracing::warn!(
                    "fleet: host '{host}' sent records that the store does not have; its records are \
                        ignored for an hour"
                );
            }
            FleetEffect::LeaveSource => {
                self.leaves_source.set(true);
                self.source_left.notify_one();
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

fn wanted(request: u64, name: &str, options: &RouteOptions, affinity: Affinity) -> FleetEvent {
    let model = name.to_owned();
    match options.hop.clone() {
        Some(token) => FleetEvent::Hop { request, model, token },
        None => FleetEvent::Wanted { request, model, affinity },
    }
}

/// Beginnings of prompts in the bodies of the APIs, and the bytes from there on that distinguish one
/// conversation from another.
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
