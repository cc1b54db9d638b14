//! One life of one engine, from the scheduler's Start to its Ended.
//!
//! The task owns the child; the run is what others see of it: where it listens, what it said, how it ended. A
//! port that somebody else took meanwhile is nobody's fault and is replaced here, without a word to the
//! scheduler.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_base::{End, Placement, Reason};
use plimsoll_config::Entry;
use plimsoll_doctor::{Exit, Sign, Verdict};
use plimsoll_launch::{Child, ChildEvent, Log, LogLine, post_mortem};
use plimsoll_scheduler::{Event, ModelId, RunId, State, Stopping};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::guard::Guarded;
use super::{Owner, unified};
use crate::route::Upstream;

mod start;

use self::start::Starter;
pub(super) use self::start::{engine_command, unstartable};

/// The scheduler's own stop timeout comes later; this one lets the child's task kill in good order.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Ports tried for one start.
const PORTS: u32 = 3;
/// The end of a run of which there is nothing to say.
const EXPECTED: Verdict = Verdict {
    sign: None,
    end: End::Expected,
    hints: Vec::new(),
    diagnosis: None,
};

#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) model: ModelId,
    pub(super) entry: Rc<Entry>,
    pub(super) log: Log,
    /// Where it listens, with the idle connections to it; gone with the process.
    upstream: RefCell<Option<Rc<Upstream>>>,
    /// The child's own entry of `/v1/models`.
    about: OnceCell<Value>,
    pid: Cell<Option<u32>>,
    placement: Placement,
    /// The child's guard, as long as the child is there.
    guarded: RefCell<Option<Rc<Guarded>>>,
    arguments: RefCell<Vec<String>>,
    exit_code: Cell<Option<i32>>,
    orders: mpsc::UnboundedSender<Stopping>,
    inbox: RefCell<Option<mpsc::UnboundedReceiver<Stopping>>>,
    fate: OnceCell<Reason>,
    over: Notify,
    started: Instant,
    /// Lines of the log that were there before it.
    older_lines: u64,
}

impl Run {
    pub(super) fn new(
        id: RunId,
        model: ModelId,
        entry: Rc<Entry>,
        log: Log,
        placement: Placement,
    ) -> Rc<Self> {
        let (orders, inbox) = mpsc::unbounded_channel();
        Rc::new(Self {
            id,
            model,
            entry,
            older_lines: log.pushed(),
            log,
            upstream: RefCell::default(),
            about: OnceCell::new(),
            pid: Cell::new(None),
            placement,
            guarded: RefCell::default(),
            arguments: RefCell::default(),
            exit_code: Cell::new(None),
            orders,
            inbox: RefCell::new(Some(inbox)),
            fate: OnceCell::new(),
            over: Notify::new(),
            started: Instant::now(),
        })
    }

    pub(super) fn stop(&self, how: Stopping) {
        let _ = self.orders.send(how);
    }

    /// Where it listens; None until it is ready and after it has ended.
    pub(super) fn upstream(&self) -> Option<Rc<Upstream>> {
        self.upstream.borrow().clone()
    }

    pub(super) fn about(&self) -> Option<&Value> {
        self.about.get()
    }

    /// Where it listens, in words.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.upstream().map(|upstream| upstream.address())
    }

    /// The command line it was started with.
    pub(super) fn arguments(&self) -> Vec<String> {
        self.arguments.borrow().clone()
    }

    /// Its exit code, or 128 and the signal; None while it runs.
    pub(super) fn exit_code(&self) -> Option<i32> {
        self.exit_code.get()
    }

    /// Time since it was started.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.pid.get()
    }

    pub(super) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// What it has said, as far as the log still has it.
    pub(super) fn lines(&self) -> Vec<Arc<LogLine>> {
        let own = self.log.pushed().saturating_sub(self.older_lines);
        self.log.tail(usize::try_from(own).unwrap_or(usize::MAX))
    }

    pub(super) fn guarded(&self) -> Option<Rc<Guarded>> {
        self.guarded.borrow().clone()
    }

    /// Waits until it has ended, at most this long, and says how it ended if it has.
    pub(super) async fn fate(&self, patience: Duration) -> Option<&Reason> {
        let over = self.over.notified();
        if self.fate.get().is_none() {
            let _ = tokio::time::timeout(patience, over).await;
        }
        self.fate.get()
    }
}

/// Starts the engine and follows it to its end.
pub(super) async fn live(owner: Rc<Owner>, run: Rc<Run>) {
    let Some(mut orders) = run.inbox.take() else {
        return;
    };
    let starter = Starter {
        owner: &owner,
        run: &run,
    };
    let mut verdict = match unified::make_way(&owner, &run, &mut orders).await {
        ControlFlow::Continue(()) => starter.attempt(&mut orders).await,
        ControlFlow::Break(()) => EXPECTED,
    };
    for _ in 1..PORTS {
        if verdict.sign == Some(Sign::PortTaken) {
            verdict = starter.attempt(&mut orders).await;
        }
    }
    let _ = run.fate.set(fate(&run.entry.name, &verdict.end));
    run.over.notify_waiters();
    run.upstream.take();
    run.guarded.take();
    owner.state.borrow_mut().runs.remove(&run.id);
    owner.notes.ended(run.model, &verdict.end);
    owner.hint_at_reclaim(&run, &verdict.end);
    owner.tell_end(&run, &verdict.end);
    owner.submit(Event::Ended {
        run: run.id,
        end: verdict.end,
    });
}

impl Starter<'_> {
    async fn attempt(&self, orders: &mut mpsc::UnboundedReceiver<Stopping>) -> Verdict {
        match self.start().await {
            Ok((child, events, key)) => self.follow(child, events, key, orders).await,
            Err(reason) => Verdict {
                sign: None,
                end: End::Unstartable { reason },
                hints: Vec::new(),
                diagnosis: None,
            },
        }
    }

    async fn follow(
        &self,
        child: Child,
        mut events: mpsc::Receiver<ChildEvent>,
        key: Option<String>,
        orders: &mut mpsc::UnboundedReceiver<Stopping>,
    ) -> Verdict {
        self.run.pid.set(Some(child.pid()));
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(ChildEvent::Ended(ended)) => {
                        self.run.exit_code.set(exit_code(ended.exit));
                        let refused = self.owner.last_refusal(self.run);
                        return post_mortem(&self.run.entry.name, &ended, refused.as_ref());
                    }
                    Some(ChildEvent::Ready(about)) => self.ready(&child, key.as_deref(), about),
                    Some(ChildEvent::Progress(payload)) => self.progressed(&payload),
                    // It wakes by itself; its memory is its own until it leaves.
                    Some(ChildEvent::Sleeping(_)) => {}
                    None => return EXPECTED,
                },
                Some(how) = orders.recv() => match how {
                    Stopping::Graceful => child.stop(self.stop_within()),
                    Stopping::Kill => child.kill(),
                },
            }
        }
    }

    fn ready(&self, child: &Child, key: Option<&str>, about: Value) {
        let entry = &self.run.entry;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, child.port()));
        let mut upstream = Upstream::new(address).of_group(child.pid());
        if let Some(key) = key {
            upstream = upstream.with_key(key);
        }
        if let Some(name) = &entry.upstream_name {
            upstream = upstream.with_model(name);
        }
        self.run.upstream.replace(Some(Rc::new(upstream)));
        let _ = self.run.about.set(about.clone());
        self.owner.notes.with(self.run.model, |note| note.hints.clear());
        self.owner.tell_ready(self.run);
        self.owner.tell_depth(self.run);
        self.owner.submit(Event::Ready { run: self.run.id });
        self.owner
            .tell(self.run.model, State::Ready, &json!({ "info": about }));
        unified::let_go(self.owner, self.run);
    }

    fn stop_within(&self) -> Duration {
        self.run.entry.stop_timeout.unwrap_or(STOP_WITHIN)
    }

    fn progressed(&self, progress: &Value) {
        self.owner.submit(Event::Progressed { run: self.run.id });
        self.owner
            .tell(self.run.model, State::Loading, &json!({ "progress": progress }));
    }
}

/// How it ended, for whoever had a request with it.
fn fate(model: &str, end: &End) -> Reason {
    match end {
        End::Expected => Reason::new("stopped", format!("{model} was stopped")),
        End::Crashed { reason } | End::OutOfMemory { reason, .. } | End::Unstartable { reason } => {
            reason.clone()
        }
    }
}

/// As a shell has it.
fn exit_code(exit: Exit) -> Option<i32> {
    match exit {
        Exit::Code(code) => Some(code),
        Exit::Signal(signal) => Some(128 + signal),
        Exit::Unknown => None,
    }
}
