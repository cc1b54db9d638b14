//! Test setup for the HTTP server: a `ModelService` with one model, and an engine scripted by the test.

mod text;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use plimsoll_base::Bytes;
use plimsoll_config::{ConfiguredKey, KeySecret, RequestFilters};
use plimsoll_engine::EngineAddress;
use plimsoll_fleet::SeatToken;
use plimsoll_hub::DerivedModel;
use plimsoll_log::Log;
use plimsoll_scheduler::{ModelId, ModelState, ModelView, Moment, SchedulerSnapshot};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::LocalSet;

pub(super) use self::text::{post, read_request, read_some, read_to_close, read_until, unchunked, write};
use crate::listing::tests::listing;
use crate::{
    AnswerTokens, ApiKeys, DownloadOrder, Events, Exposition, FlagsOrder, HostRequest, HttpProblem,
    HttpServer, HttpSettings, MetricKind, ModelListing, ModelService, Pass, RequestPrompt, RequestRouter,
    RouteOptions, StallLimit, Upstream, WhatIfError, bind, serve,
};

/// Knows the model `real`, also by the alias `alias`.
#[derive(Debug)]
pub(super) struct StubService {
    upstream: RefCell<Rc<Upstream>>,
    /// Requests come from another host of a fleet.
    is_host: Cell<bool>,
    pub(super) options: RefCell<Vec<RouteOptions>>,
    pub(super) in_flight: Rc<Cell<usize>>,
    bounces: Rc<Cell<usize>>,
    pub(super) state: Cell<ModelState>,
    pub(super) orders: RefCell<Vec<&'static str>>,
    pub(super) kept: RefCell<Vec<Option<Duration>>>,
    pub(super) events: Events,
    pub(super) log: Log,
    pub(super) stall_limit: StallLimit,
    /// While true, requests wait.
    pub(super) is_full: watch::Sender<bool>,
    pub(super) waiting: Rc<Cell<usize>>,
    /// The refusal of the next request that would be admitted.
    pub(super) refusal: RefCell<Option<HttpProblem>>,
    /// The model answers requests that name none, or an unknown one.
    pub(super) is_only: Cell<bool>,
    pub(super) has_tools: Cell<bool>,
    pub(super) failures: RefCell<Vec<Value>>,
    pub(super) ordered: RefCell<Vec<DownloadOrder>>,
    pub(super) filters: RefCell<Option<Arc<RequestFilters>>>,
    /// The operator has set a folder for derived models.
    pub(super) derives: Cell<bool>,
    pub(super) derived: RefCell<Vec<DerivedModel>>,
}

/// Counts a request as waiting until it is dropped.
struct Waiting(Rc<Cell<usize>>);

impl Waiting {
    fn begin(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

pub(super) struct StubPass {
    stall_limit: StallLimit,
    upstream: Rc<Upstream>,
    in_flight: Rc<Cell<usize>>,
    bounces: Rc<Cell<usize>>,
}

impl RequestRouter for StubService {
    type Pass = StubPass;
    type Local = Self;

    fn local(&self) -> &Self {
        self
    }

    fn hop(&self, _: &HeaderMap) -> Option<Result<HostRequest, HttpProblem>> {
        let token = SeatToken { incarnation: "life".to_owned(), revision: 7 };
        self.is_host.get().then_some(Ok(HostRequest::Passed(token)))
    }

    fn admit_at_once(self: &Rc<Self>, _: ModelId, options: RouteOptions) -> Option<StubPass> {
        if *self.is_full.borrow() || self.refusal.borrow().is_some() {
            return None;
        }
        self.options.borrow_mut().push(options);
        Some(self.pass())
    }

    async fn admit(
        self: Rc<Self>,
        _: ModelId,
        options: RouteOptions,
        _: RequestPrompt<'_>,
    ) -> Result<StubPass, HttpProblem> {
        self.options.borrow_mut().push(options);
        let waiting = Waiting::begin(&self.waiting);
        let _ = self.is_full.subscribe().wait_for(|full| !*full).await;
        drop(waiting);
        if let Some(refusal) = self.refusal.take() {
            return Err(refusal);
        }
        Ok(self.pass())
    }
}

impl ModelService for StubService {
    fn resolve(&self, name: &str) -> Option<ModelId> {
        let is_derived =
            self.filters.borrow().as_ref().is_some_and(|filters| filters.derived.contains_key(name));
        (is_derived || ["real", "alias", "user/real:Q4"].contains(&name)).then_some(ModelId(0))
    }

    fn stand_in(&self, name: Option<&str>) -> Option<ModelId> {
        match name {
            Some("refused") => None,
            _ => self.is_only.get().then_some(ModelId(0)),
        }
    }

    fn refusal(&self, name: &str) -> Option<HttpProblem> {
        let refused = || HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "model_misconfigured", "a flag");
        (name == "refused").then(refused)
    }

    fn with_flag(&self, _: &[&str]) -> Option<ModelId> {
        self.has_tools.get().then_some(ModelId(0))
    }

    fn autoloads(&self) -> bool {
        true
    }

    fn upstream(&self, _: ModelId) -> Option<Rc<Upstream>> {
        let is_known = (self.is_only.get() || self.is_host.get()) && self.state.get() == ModelState::Ready;
        is_known.then(|| self.upstream.borrow().clone())
    }

    fn filters(&self, _: ModelId) -> Option<Arc<RequestFilters>> {
        self.filters.borrow().clone()
    }

    fn wait_line(&self, _: ModelId) -> String {
        "waiting for 3 GiB of memory\non card 0".to_owned()
    }

    fn models(&self) -> Vec<ModelId> {
        vec![ModelId(0)]
    }

    fn listing(&self, _: ModelId) -> ModelListing {
        let filters = self.filters.borrow().clone();
        let derived = filters.iter().flat_map(|filters| filters.derived.keys().cloned()).collect();
        ModelListing { derived, ..listing("real", self.state.get()) }
    }

    fn is_named(&self, model: ModelId, fits: impl Fn(&str) -> bool) -> bool {
        let listing = self.listing(model);
        fits(&listing.name) || listing.aliases.iter().any(|alias| fits(alias))
    }

    fn load(&self, _: ModelId) {
        self.orders.borrow_mut().push("load");
    }

    fn unload(&self, _: ModelId) {
        self.orders.borrow_mut().push("unload");
    }

    fn pin(&self, _: ModelId, time: Duration) {
        self.orders.borrow_mut().push(if time.is_zero() { "unpin" } else { "pin" });
    }

    fn keep(&self, _: ModelId, time: Option<Duration>) {
        self.kept.borrow_mut().push(time);
    }

    async fn give_way(&self, card: Option<&str>, size: Bytes, time: Duration) -> Result<(), HttpProblem> {
        self.orders.borrow_mut().push(if size.is_zero() { "end yield" } else { "yield" });
        match card {
            None | Some("GPU-1") if time < Duration::MAX => Ok(()),
            _ => Err(HttpProblem::new(StatusCode::NOT_FOUND, "card_not_found", "there is no such card")),
        }
    }

    fn about(&self) -> Value {
        json!({ "version": "0" })
    }

    fn requests(&self) -> Value {
        json!([])
    }

    async fn reload(&self) -> Result<Vec<String>, HttpProblem> {
        self.orders.borrow_mut().push("reload");
        Ok(vec!["1 model changed".to_owned()])
    }

    async fn download(&self, order: &DownloadOrder) -> Result<Option<String>, HttpProblem> {
        self.ordered.borrow_mut().push(order.clone());
        self.orders.borrow_mut().push(if order.name == "u/r:Q4" { "download" } else { "other download" });
        Ok(None)
    }

    fn derives(&self) -> bool {
        self.derives.get()
    }

    async fn derive(&self, model: DerivedModel) -> Result<(), HttpProblem> {
        self.derived.borrow_mut().push(model);
        Ok(())
    }

    async fn remove(&self, name: &str) -> Result<(), HttpProblem> {
        self.orders.borrow_mut().push(if name == "u/r:Q4" { "remove" } else { "other remove" });
        Ok(())
    }

    fn downloading(&self) -> Vec<Value> {
        Vec::new()
    }

    fn snapshot(&self) -> SchedulerSnapshot {
        let model = ModelView {
            id: ModelId(0),
            name: "real".to_owned(),
            state: self.state.get(),
            pinned: false,
            pinned_until: None,
            run: None,
            in_flight: 1,
            queued: 2,
            load_wanted: false,
            last_used: None,
            idle_since: None,
            idle_end: None,
            kept_until: None,
            claim: Vec::new(),
            alone: false,
            measured: Vec::new(),
            learned: Bytes::ZERO,
            growth: None,
            depth: None,
            depth_unwatched: None,
            overflows: 0,
            deferred: None,
            last_failure: None,
            load_check: Vec::new(),
        };
        SchedulerSnapshot { now: Moment::START, models: vec![model], cards: Vec::new() }
    }

    async fn what_if(&self, _: ModelId, flags: Vec<String>) -> Result<Value, WhatIfError> {
        Ok(json!({ "flags": flags }))
    }

    async fn flags(&self, order: FlagsOrder) -> Result<Value, HttpProblem> {
        Ok(json!({ "order": format!("{order:?}") }))
    }

    fn what_if_kept_free(&self, _: Option<&str>, size: Bytes) -> Result<Value, HttpProblem> {
        Ok(json!({ "size": size }))
    }

    fn document(&self) -> Value {
        json!(self.snapshot())
    }

    fn failures(&self) -> Value {
        json!({ "failures": *self.failures.borrow() })
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn log(&self, _: Option<ModelId>) -> Log {
        self.log.clone()
    }

    fn write_metrics(&self, page: &mut Exposition) {
        page.family("plimsoll_loads_total", MetricKind::Counter, "Engines started");
        page.sample("plimsoll_loads_total", &[("model", "real")], 7);
    }
}

impl StubService {
    /// Takes all requests for those of another host, for an engine that takes any name.
    pub(super) fn take_hops(&self) {
        let address = self.upstream.borrow().address().clone();
        self.upstream.replace(Rc::new(Upstream::new(address)));
        self.is_host.set(true);
    }

    fn pass(&self) -> StubPass {
        self.in_flight.set(self.in_flight.get() + 1);
        StubPass {
            upstream: self.upstream.borrow().clone(),
            in_flight: Rc::clone(&self.in_flight),
            bounces: Rc::clone(&self.bounces),
            stall_limit: self.stall_limit.clone(),
        }
    }
}

impl Pass for StubPass {
    fn upstream(&self) -> &Rc<Upstream> {
        &self.upstream
    }

    fn stall_limit(&self) -> StallLimit {
        self.stall_limit.clone()
    }

    fn finished(self, _: Option<AnswerTokens>) {}

    async fn bounced(self, _: RequestPrompt<'_>) -> Result<Self, HttpProblem> {
        match self.bounces.get() {
            0 => Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "engine_died", "real died")),
            left => {
                self.bounces.set(left - 1);
                Ok(self)
            }
        }
    }

    fn broke(self) -> Pin<Box<dyn Future<Output = HttpProblem>>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            HttpProblem::new(StatusCode::BAD_GATEWAY, "engine_died", "real died in mid-answer")
        })
    }
}

impl Drop for StubPass {
    fn drop(&mut self) {
        self.in_flight.set(self.in_flight.get() - 1);
    }
}

/// The key `secret`, which has no name.
pub(super) fn secret_key() -> ApiKeys {
    let secret = KeySecret::Text("secret".to_owned());
    ApiKeys::new(vec![ConfiguredKey::unlimited(String::new(), secret)])
}

/// A server in front of an engine.
pub(super) struct Stage {
    pub(super) address: SocketAddr,
    pub(super) service: Rc<StubService>,
    pub(super) server: Rc<HttpServer<StubService>>,
    pub(super) engine: TcpListener,
    /// Dropping it asks the server to shut down.
    pub(super) running: oneshot::Sender<()>,
}

impl Stage {
    pub(super) async fn set(settings: HttpSettings, bounces: usize) -> Self {
        let engine = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream =
            Upstream::new(EngineAddress::Port(engine.local_addr().unwrap().port())).with_model("real");
        let service = Rc::new(StubService {
            upstream: RefCell::new(Rc::new(upstream)),
            is_host: Cell::new(false),
            options: RefCell::default(),
            in_flight: Rc::default(),
            bounces: Rc::new(Cell::new(bounces)),
            state: Cell::new(ModelState::Ready),
            orders: RefCell::default(),
            kept: RefCell::default(),
            events: Events::default(),
            log: Log::new("real", Bytes::kib(4)),
            stall_limit: StallLimit::default(),
            is_full: watch::Sender::new(false),
            waiting: Rc::default(),
            refusal: RefCell::default(),
            is_only: Cell::new(false),
            has_tools: Cell::new(false),
            failures: RefCell::default(),
            ordered: RefCell::default(),
            filters: RefCell::default(),
            derives: Cell::new(false),
            derived: RefCell::default(),
        });
        let listeners = bind(&["127.0.0.1:0".parse().unwrap()], false).unwrap();
        let address = listeners[0].local_addr().unwrap();
        let server = Rc::new(HttpServer::new(Rc::clone(&service), settings));
        let (running, stopped) = oneshot::channel::<()>();
        tokio::task::spawn_local(serve(listeners, Rc::clone(&server), async move {
            let _ = stopped.await;
        }));
        Self { address, service, server, engine, running }
    }

    pub(super) async fn client(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Takes the next connection to the engine.
    pub(super) async fn engine(&self) -> TcpStream {
        self.engine.accept().await.unwrap().0
    }

    pub(super) async fn until_idle(&self) {
        while self.service.in_flight.get() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Bounds of every play.
const LONGEST: Duration = Duration::from_secs(10);

/// Runs `play` on a stage with the default settings; nothing may take longer than ten seconds.
pub(super) fn on_stage<F: Future<Output = ()>>(play: impl FnOnce(Stage) -> F) {
    on_stage_with(HttpSettings::default(), 0, play);
}

pub(super) fn on_stage_with<F: Future<Output = ()>>(
    settings: HttpSettings,
    bounces: usize,
    play: impl FnOnce(Stage) -> F,
) {
    on_stage_within(LONGEST, settings, bounces, play);
}

/// A play of many inputs has as much time as a thousand take, for each thousand.
pub(super) fn on_stage_of_many<F: Future<Output = ()>>(play: impl FnOnce(Stage) -> F) {
    let thousands = u32::try_from(plimsoll_fuzz::count() / 1000 + 1).unwrap();
    on_stage_within(LONGEST * thousands, HttpSettings::default(), 0, play);
}

fn on_stage_within<F: Future<Output = ()>>(
    limit: Duration,
    settings: HttpSettings,
    bounces: usize,
    play: impl FnOnce(Stage) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let whole = async {
        let stage = Stage::set(settings, bounces).await;
        play(stage).await;
    };
    let limited = async { tokio::time::timeout(limit, whole).await };
    LocalSet::new().block_on(&runtime, limited).expect("the play hangs");
}
