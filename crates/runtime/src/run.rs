//! Runs one engine process, from the scheduler's start command until its end is reported.
//!
//! If another process takes the engine's port, the engine is started again on another port. The scheduler is
//! not notified of that.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::post_mortem::post_mortem;
use http::Method;
use plimsoll_base::{Bytes, CacheOverflow, CardId, End, Placement, Reason};
use plimsoll_config::ConfiguredModel;
use plimsoll_doctor::{CauseSign, EngineVerdict, Exit};
use plimsoll_engine::{Child, ChildEvent};
use plimsoll_log::{Log, LogLine};
use plimsoll_scheduler::{ModelId, ModelState, RunId, SchedulerEvent, Stopping};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::Runtime;
use super::launch::{Started, Starter};
use super::moved::MovedMemory;
use super::probe_kind::ProbeKind;
use super::slots::RunSlots;
use plimsoll_route::{StallLimit, Upstream};
use plimsoll_task::spawn_local;

/// Shorter than the scheduler's own stop timeout, so that the child's task kills the process and collects its
/// last lines.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Time for an engine that had to be killed at its last stop.
const GRACE: Duration = Duration::from_secs(1);
/// Time for an engine that is ready to say how many slots it has.
const SLOTS_WITHIN: Duration = Duration::from_secs(2);
/// The properties of an engine have its chat template.
const LONGEST_PROPERTIES: usize = 4 << 20;
/// Longest time from the death of a process to its report: the cards are read until the memory is back.
const REPORT_WITHIN: Duration = Duration::from_secs(6);
/// Time that a client may take nothing of its answer while its model drains for another one.
const STALL_WHILE_DRAINING: Duration = Duration::from_secs(15);
/// Ports tried for one start.
const PORTS: u32 = 3;
/// Verdict on a run that ended on request.
const EXPECTED: EngineVerdict =
    EngineVerdict { sign: None, end: End::Expected, hints: Vec::new(), diagnosis: None };

#[derive(Debug)]
pub struct EngineRun {
    pub id: RunId,
    pub model: ModelId,
    pub entry: Rc<ConfiguredModel>,
    pub log: Log,
    /// Time that clients of this run may take nothing of their answers.
    pub(super) stall_limit: StallLimit,
    /// The engine's address, with idle connections to it; dropped with the process.
    upstream: RefCell<Option<Rc<Upstream>>>,
    /// The child's own entry of `/v1/models`.
    about: OnceCell<Value>,
    /// Chosen for the engine, which may not listen yet: a second engine that got it too would be taken for
    /// it.
    pub(super) port: Cell<Option<u16>>,
    pid: Cell<Option<u32>>,
    placement: Placement,
    /// The part of its cache in host memory, by card; empty where all of it is on the cards.
    overflow: Vec<CacheOverflow>,
    pub(super) arguments: RefCell<Vec<String>>,
    /// The operator knows that it takes more of a card than models may use.
    pub(super) reported_beyond: Cell<bool>,
    /// Guard's layer of Vulkan shows it its cards alone, and numbers of its loader do not matter.
    pub(super) isolated_by_layer: Cell<bool>,
    /// Size of the files from which it reads weights.
    pub(super) file_bytes: Cell<Bytes>,
    /// The kind of the last request that it answered with success.
    pub(super) answered_kind: Cell<Option<ProbeKind>>,
    /// Pieces of good answers that clients were sent.
    pub(super) progress: Cell<u64>,
    /// Free memory of its cards when its process was started.
    free: RefCell<Vec<(CardId, Bytes)>>,
    exit_code: Cell<Option<i32>>,
    /// Why it must end, if it holds a card that is not its own.
    pub(super) stray: OnceCell<Reason>,
    /// What its driver has moved off its cards.
    pub(super) moved: MovedMemory,
    /// llama-server's `--sleep-idle-seconds`.
    asleep: Cell<bool>,
    /// It was asked to sleep, and answers only after it was woken.
    pub(super) needs_wake: Cell<bool>,
    /// Held while it is woken.
    pub(super) waking: tokio::sync::Mutex<()>,
    /// It was ordered to stop.
    pub(super) reported: Notify,
    orders: mpsc::UnboundedSender<Stopping>,
    fate: OnceCell<Reason>,
    over: Notify,
    started: Instant,
    /// Lines of the log from earlier runs.
    older_lines: u64,
}

impl EngineRun {
    /// The run, and the orders to stop it.
    pub(super) fn new(
        id: RunId,
        model: ModelId,
        entry: Rc<ConfiguredModel>,
        log: Log,
        placement: Placement,
        overflow: Vec<CacheOverflow>,
    ) -> (Rc<Self>, mpsc::UnboundedReceiver<Stopping>) {
        let (orders, inbox) = mpsc::unbounded_channel();
        let run = Self {
            id,
            model,
            entry,
            older_lines: log.pushed(),
            log,
            stall_limit: StallLimit::default(),
            upstream: RefCell::default(),
            about: OnceCell::new(),
            port: Cell::new(None),
            pid: Cell::new(None),
            placement,
            overflow,
            arguments: RefCell::default(),
            reported_beyond: Cell::default(),
            isolated_by_layer: Cell::default(),
            file_bytes: Cell::default(),
            answered_kind: Cell::default(),
            progress: Cell::default(),
            free: RefCell::default(),
            exit_code: Cell::new(None),
            stray: OnceCell::new(),
            moved: MovedMemory::default(),
            asleep: Cell::new(false),
            needs_wake: Cell::new(false),
            waking: tokio::sync::Mutex::default(),
            reported: Notify::new(),
            orders,
            fate: OnceCell::new(),
            over: Notify::new(),
            started: Instant::now(),
        };
        (Rc::new(run), inbox)
    }

    /// Lets a client that takes nothing of its answer hold the memory of a draining run only briefly.
    pub(super) fn shorten_stalls(&self) {
        self.stall_limit.set(STALL_WHILE_DRAINING);
    }

    pub(super) fn stop(&self, how: Stopping) {
        self.reported.notify_one();
        let _ = self.orders.send(how);
    }

    /// Connections to the engine; `None` until it is ready and after it has ended.
    pub fn upstream(&self) -> Option<Rc<Upstream>> {
        self.upstream.borrow().clone()
    }

    pub(super) fn about(&self) -> Option<&Value> {
        self.about.get()
    }

    /// The command line it was started with.
    pub(super) fn arguments(&self) -> Vec<String> {
        self.arguments.borrow().clone()
    }

    /// The engine is idle and has freed its memory for the time.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.get()
    }

    pub fn is_isolated_by_layer(&self) -> bool {
        self.isolated_by_layer.get()
    }

    /// Exit code of the engine, or 128 plus the signal; `None` while it runs.
    pub(super) fn exit_code(&self) -> Option<i32> {
        self.exit_code.get()
    }

    /// Its start, if that was later than `time`.
    pub(super) fn start_after(&self, time: Instant) -> Option<Instant> {
        (self.started > time).then_some(self.started)
    }

    /// Time since it was started.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn pid(&self) -> Option<u32> {
        self.pid.get()
    }

    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    pub fn overflow(&self) -> &[CacheOverflow] {
        &self.overflow
    }

    /// Log lines of this run that the log still holds.
    pub fn lines(&self) -> Vec<Arc<LogLine>> {
        // The log is shared by all runs of the model, and may have dropped old lines.
        let own = self.log.pushed().saturating_sub(self.older_lines);
        self.log.tail(usize::try_from(own).unwrap_or(usize::MAX))
    }

    pub(super) fn free_at_start(&self) -> Vec<(CardId, Bytes)> {
        self.free.borrow().clone()
    }

    /// The path that answers while the engine is healthy, if it has one.
    pub(super) fn health_path(&self) -> Option<&str> {
        match self.entry.launch.options() {
            Some(_) => Some("/health"),
            None => self.entry.launch.check(),
        }
    }

    /// Waits for its end, at most this long, and returns the reason of the end if it has ended. Of a process
    /// that is dead by then, the report is waited for.
    pub(super) async fn fate(&self, patience: Duration) -> Option<&Reason> {
        for patience in [patience, REPORT_WITHIN] {
            let over = self.over.notified();
            if self.fate.get().is_none() {
                let _ = tokio::time::timeout(patience, over).await;
            }
            if self.upstream().is_some() {
                break;
            }
        }
        self.fate.get()
    }
}

/// Starts the engine and follows it to its end.
pub(super) async fn live(
    runtime: Rc<Runtime>,
    run: Rc<EngineRun>,
    mut orders: mpsc::UnboundedReceiver<Stopping>,
) {
    let starter = Starter { runtime: &runtime, run: &run, only_port: Cell::new(false) };
    // Taken for this load by the scheduler, a moment ago.
    run.free.replace(runtime.readings.free_on(&run));
    let mut verdict = match prepare(&runtime, &run, &mut orders).await {
        ControlFlow::Continue(()) => starter.attempt(&mut orders).await,
        ControlFlow::Break(()) => EXPECTED,
    };
    // The port was free when it was chosen; between that and the bind of the engine another process may take
    // it. A socket cannot be bound where the engine does not see its folder.
    for _ in 1..PORTS {
        // A fixed port is as taken as before, and an engine that was ready has had its port.
        let elsewhere = run.entry.fixed_port().is_none() && run.about().is_none();
        if verdict.sign == Some(CauseSign::PortTaken) && elsewhere {
            starter.only_port.set(true);
            verdict = starter.attempt(&mut orders).await;
        }
    }
    // Requests that arrive now must not be sent to a dead port.
    run.upstream.take();
    // The scheduler concludes from the cards, so they are read after the death and before it is reported.
    if matches!(&verdict.end, End::OutOfMemory { .. }) {
        runtime.read_after_failure(&run).await;
    }
    // No await from here to the report: a request that waits for the end would come back before it.
    let _ = run.fate.set(fate(&run.entry.name, &verdict.end));
    run.over.notify_waiters();
    runtime.state.statuses.ended(run.model, &verdict.end);
    for extension in &runtime.extensions {
        extension.ended(&runtime, &run, &verdict.end);
    }
    runtime.reports.operator_log.ended(&run, &verdict.end);
    runtime.board.mark_end(&run, &verdict);
    runtime.submit(SchedulerEvent::Ended { run: run.id, end: verdict.end });
}

/// Lets extensions prepare the load; stops early if the run is stopped in the meantime.
async fn prepare(
    runtime: &Rc<Runtime>,
    run: &Rc<EngineRun>,
    orders: &mut mpsc::UnboundedReceiver<Stopping>,
) -> ControlFlow<()> {
    for extension in &runtime.extensions {
        let Some(work) = extension.before_load(runtime, run) else {
            continue;
        };
        tokio::select! {
            () = work => {}
            Some(_) = orders.recv() => return ControlFlow::Break(()),
        }
    }
    ControlFlow::Continue(())
}

impl Starter<'_> {
    async fn attempt(&self, orders: &mut mpsc::UnboundedReceiver<Stopping>) -> EngineVerdict {
        match self.start().await {
            Ok(started) => self.follow(started, orders).await,
            Err(end) => EngineVerdict { sign: None, end, hints: Vec::new(), diagnosis: None },
        }
    }

    async fn follow(
        &self,
        started: Started,
        orders: &mut mpsc::UnboundedReceiver<Stopping>,
    ) -> EngineVerdict {
        // The folder is removed when this returns.
        let Started { child, mut events, key, folder: _folder, program, slots } = started;
        self.run.pid.set(Some(child.pid()));
        // An attempt before this one may have ended.
        self.run.exit_code.set(None);
        let mut stop: Option<(Instant, Duration)> = None;
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(ChildEvent::Ended(ended)) => {
                        self.run.exit_code.set(exit_code(ended.exit));
                        if let Some((begun, grace)) = stop {
                            let ignored = begun.elapsed() >= grace;
                            self.runtime.state.statuses.with(self.run.model, |status| status.ignores_stop = ignored);
                        }
                        if let Some(reason) = self.run.stray.get().cloned() {
                            let end = End::Unstartable { reason, lasts: true };
                            return EngineVerdict { end, ..EXPECTED };
                        }
                        let extensions = self.runtime.extensions.iter();
                        let refused = extensions.filter_map(|it| it.last_refusal(self.runtime, self.run)).next();
                        return post_mortem(&self.run.entry.name, &ended, refused.as_ref());
                    }
                    Some(ChildEvent::Ready(about)) => {
                        if self.run.about.get().is_none()
                            && let Some(reason) = self.runtime.stray(self.run).await
                        {
                            let _ = self.run.stray.set(reason);
                            child.kill();
                            continue;
                        }
                        if self.only_port.get() {
                            self.runtime.engines.only_ports.borrow_mut().extend(program.clone());
                        }
                        let upstream = self.upstream(&child, key.as_deref());
                        // A sleeping llama-server reports ready again, and its request does not wait for us.
                        if let Some(slots) = slots.as_ref().filter(|_| self.run.about.get().is_none()) {
                            tokio::select! {
                                () = self.runtime.files.slots.restore(self.run, slots, &upstream) => {}
                                Some(how) = orders.recv() => {
                                    stop = stop.or(self.end(&child, how));
                                    continue;
                                }
                            }
                        }
                        self.ready(upstream, about);
                    }
                    Some(ChildEvent::Progress(payload)) => self.progressed(&payload),
                    // It wakes by itself with its next request.
                    Some(ChildEvent::Sleeping(_)) => {
                        self.run.asleep.set(true);
                        self.runtime.reports.events.asleep(&self.run.entry.name);
                        self.runtime.submit(SchedulerEvent::Slept { run: self.run.id });
                    }
                    // The supervisor ends without a report only when the daemon ends.
                    None => return EXPECTED,
                },
                Some(how) = orders.recv() => {
                    let how = match how {
                        Stopping::Graceful => self.save(slots.as_ref(), orders).await,
                        Stopping::Kill => Stopping::Kill,
                    };
                    // The scheduler's own limit may pass a moment before this one.
                    if how == Stopping::Kill {
                        stop = stop.map(|(begun, _)| (begun, Duration::ZERO));
                    }
                    stop = stop.or(self.end(&child, how));
                }
            }
        }
    }

    /// Returns the time of a stop, and that within which the engine has to end.
    fn end(&self, child: &Child, how: Stopping) -> Option<(Instant, Duration)> {
        match how {
            Stopping::Graceful => {
                // Another model may wait for the memory, and this one did not obey the last time.
                let ignores = self.runtime.state.statuses.with(self.run.model, |status| status.ignores_stop);
                let grace = if ignores { self.stop_within().min(GRACE) } else { self.stop_within() };
                child.stop(grace);
                Some((Instant::now(), grace))
            }
            Stopping::Kill => {
                child.kill();
                None
            }
        }
    }

    /// Saves the slots of an engine that is about to stop, and returns the way to stop it.
    async fn save(
        &self,
        slots: Option<&Rc<RunSlots>>,
        orders: &mut mpsc::UnboundedReceiver<Stopping>,
    ) -> Stopping {
        // A sleeping engine has none, and a question would wake it.
        let awake = self.run.upstream().filter(|_| !self.run.is_asleep());
        let (Some(slots), Some(upstream)) = (slots, awake) else {
            return Stopping::Graceful;
        };
        // The scheduler's own limit runs already, and the engine needs some of it to end.
        let limit = self.stop_within() / 2;
        tokio::select! {
            in_time = self.runtime.files.slots.save(self.run, slots, &upstream, limit) => if in_time { Stopping::Graceful } else { Stopping::Kill },
            Some(how) = orders.recv() => how,
        }
    }

    fn upstream(&self, child: &Child, key: Option<&str>) -> Upstream {
        let mut upstream = Upstream::new(child.address().clone()).of_group(child.pid());
        if let Some(key) = key {
            upstream = upstream.with_key(key);
        }
        match &self.run.entry.upstream_name {
            Some(name) => upstream.with_model(name),
            None => upstream,
        }
    }

    fn ready(&self, upstream: Upstream, about: Value) {
        self.run.asleep.set(false);
        self.run.upstream.replace(Some(Rc::new(upstream)));
        // A sleeping llama-server reports ready again; the first report stands.
        let _ = self.run.about.set(about.clone());
        self.runtime.state.statuses.with(self.run.model, |status| status.hints.clear());
        self.runtime.reports.operator_log.ready(self.run);
        self.runtime.reports.operator_log.depth(self.run);
        // The upstream is set by now, so that the requests dispatched by this event find it.
        self.runtime.submit(SchedulerEvent::Ready { run: self.run.id });
        if self.run.entry.launch.options().is_some() {
            spawn_local(report_slots(Rc::clone(self.runtime), Rc::clone(self.run)));
        }
        // The last reading may lie within the load. Memory to be freed after this run is counted from a
        // reading without it. From a lower reading, more would be awaited than can come back.
        self.runtime.read_after_load(self.run);
        self.runtime.reports.publish(self.run.model, ModelState::Ready, &json!({ "info": about }));
        for extension in &self.runtime.extensions {
            extension.loaded(self.runtime, self.run);
        }
    }

    fn stop_within(&self) -> Duration {
        self.run.entry.stop_timeout.unwrap_or(STOP_WITHIN)
    }

    fn progressed(&self, progress: &Value) {
        // A line of output comes without a payload; only the control channel reports a figure.
        let measured = !progress.is_null();
        self.runtime.state.statuses.with(self.run.model, |status| status.progress = Some(progress.clone()));
        self.runtime.submit(SchedulerEvent::Progressed { run: self.run.id, measured });
        self.runtime.reports.publish(self.run.model, ModelState::Loading, &json!({ "progress": progress }));
    }
}

/// Reports how many requests the engine works on at once; its flags alone do not say it of every build.
async fn report_slots(runtime: Rc<Runtime>, run: Rc<EngineRun>) {
    let Some(upstream) = run.upstream() else { return };
    let requested = upstream.ask(Method::GET, "/props", None, LONGEST_PROPERTIES);
    let answer = tokio::time::timeout(SLOTS_WITHIN, requested).await.ok().flatten();
    let properties: Option<Value> = answer.and_then(|(_, page)| serde_json::from_slice(&page).ok());
    let slots = properties.and_then(|properties| u32::try_from(properties["total_slots"].as_u64()?).ok());
    if let Some(slots) = slots {
        runtime.submit(SchedulerEvent::SlotsKnown { run: run.id, slots });
    }
}

/// The reason of the end, for clients with a request in flight.
fn fate(model: &str, end: &End) -> Reason {
    match end {
        End::Expected => Reason::new("stopped", format!("{model} was stopped")),
        End::Crashed { reason } | End::OutOfMemory { reason, .. } | End::Unstartable { reason, .. } => {
            reason.clone()
        }
    }
}

/// The exit status as a shell reports it.
fn exit_code(exit: Exit) -> Option<i32> {
    match exit {
        Exit::Code(code) => Some(code),
        Exit::Signal(signal) => Some(128 + signal),
        Exit::Unknown => None,
    }
}
