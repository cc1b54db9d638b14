//! Life cycle of the fake engine: bind, answer 503 while loading, become ready, stop on request, die as
//! scripted.

use std::cell::{Cell, OnceCell};
use std::io;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, Semaphore};
use tokio::time::sleep;

use super::args::Args;
use super::budget::Booking;
use super::cache::PromptCache;
use super::faults::Fault;
use super::http::Listener;
use super::{answers, control, death, load, log, serve};

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) args: Args,
    pub(crate) port: u16,
    pub(crate) pid: u32,
    /// The process as answers name it.
    pub(crate) process: String,
    /// The name of the model as a JSON string.
    pub(crate) model: String,
    /// Who answers, as a JSON object.
    pub(crate) signature: String,
    /// Set when the model is loaded.
    pub(crate) booking: OnceCell<Booking>,
    pub(crate) stats: Stats,
    pub(crate) work: Work,
    pub(crate) idle: Notify,
    /// The thread that computes waits for a debugger.
    pub(crate) hangs: Cell<bool>,
    poisoned: Cell<bool>,
    /// Requests that it works on at once; the others wait. None for no limit.
    pub(crate) slots: Option<Semaphore>,
    pub(crate) cache: PromptCache,
}

#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) connections: Cell<u64>,
    pub(crate) served: Cell<u64>,
    /// Answers that were begun.
    pub(crate) begun: Cell<u64>,
    pub(crate) aborted: Cell<u64>,
    pub(crate) in_flight: Cell<u64>,
    /// Tokens of all requests that are being answered.
    pub(crate) depth: Cell<u64>,
}

/// Time in which a request was computed, which `/slots` shows as tokens.
#[derive(Debug, Default)]
pub(crate) struct Work {
    done: Cell<Duration>,
    /// Requests that are computed, and the time since which that many are.
    busy: Cell<(u32, Option<Instant>)>,
}

/// A request that is computed.
pub(crate) struct Working<'a>(&'a Work);

impl Work {
    pub(crate) fn begin(&self) -> Working<'_> {
        self.count(|busy| busy + 1);
        Working(self)
    }

    /// Tokens, one for each millisecond.
    pub(crate) fn tokens(&self) -> u64 {
        self.count(|busy| busy);
        u64::try_from(self.done.get().as_millis()).unwrap_or(u64::MAX)
    }

    fn count(&self, change: impl Fn(u32) -> u32) {
        let (busy, since) = self.busy.get();
        if let Some(since) = since.filter(|_| busy > 0) {
            self.done.set(self.done.get() + since.elapsed());
        }
        self.busy.set((change(busy), Some(Instant::now())));
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.count(|busy| busy.saturating_sub(1));
    }
}

pub(crate) fn bump(counter: &Cell<u64>) -> u64 {
    counter.set(counter.get() + 1);
    counter.get()
}

pub(crate) async fn live(args: Args) -> ExitCode {
    death::leave_no_core();
    if args.script.ignore_term {
        ignore_signals();
    }
    let listener = bind(&args).await;
    let engine = Rc::new(Engine::new(args, listener.port()));
    let accepting = tokio::task::spawn_local(serve::accept(Rc::clone(&engine), listener));
    let booking = load::load(&engine.args).await;
    // The load runs once, so the cell was empty.
    engine.booking.set(booking).ok();
    log(format_args!("srv          main: listening on http://{}:{}", engine.args.host, engine.port));
    requested_to_stop(&engine).await;
    accepting.abort();
    engine.drain().await;
    ExitCode::SUCCESS
}

async fn bind(args: &Args) -> Listener {
    if args.script.fail == Some(Fault::PortTaken) && args.script.strikes() {
        death::of_taken_port(&args.host, args.port);
    }
    match Listener::bind(&args.host, args.port).await {
        Ok(listener) => listener,
        Err(_) => death::of_taken_port(&args.host, args.port),
    }
}

fn ignore_signals() {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        // Taking the stream replaces the default action for the life of the process, read or not.
        drop(signal(kind));
    }
}

/// Resolves on SIGTERM, SIGINT or the router's exit line; never when the script ignores them.
async fn requested_to_stop(engine: &Engine) {
    let script = &engine.args.script;
    if let Some(after) = script.die_after {
        tokio::task::spawn_local(async move {
            sleep(after).await;
            death::of_signal(Signal::KILL)
        });
    }
    let exit_line = async {
        if !engine.args.has_router {
            return std::future::pending().await;
        }
        let reported = control::exit_command(script.ignore_term);
        if script.early_channel {
            control::report_early_ready()
        } else {
            control::report("ready", &answers::model_entry(&engine.args))
        }
        reported.await.ok();
    };
    if script.early_channel && engine.args.has_router {
        // Its main thread joins the one that reads stdin (`server.cpp: main @ b8799`): a signal alone ends
        // nothing.
        ignore_signals();
        return exit_line.await;
    }
    if script.ignore_term {
        exit_line.await;
        return std::future::pending().await;
    }
    tokio::select! {
        () = exit_line => {}
        () = signalled(SignalKind::terminate()) => {}
        () = signalled(SignalKind::interrupt()) => {}
    }
}

async fn signalled(kind: SignalKind) {
    let caught: io::Result<()> = async {
        signal(kind)?.recv().await;
        Ok(())
    }
    .await;
    if caught.is_err() {
        std::future::pending().await
    }
}

impl Engine {
    fn new(args: Args, port: u16) -> Self {
        let model = serde_json::Value::from(args.name()).to_string();
        let pid = std::process::id();
        let signature = format!(r#"{{"model":{model},"port":{port},"pid":{pid}}}"#);
        let slots = (args.script.slots > 0).then(|| Semaphore::new(args.script.slots));
        let (booking, stats, idle) = (OnceCell::new(), Stats::default(), Notify::new());
        let (hangs, poisoned) = (Cell::new(false), Cell::new(false));
        let cache = PromptCache::default();
        let process = answers::process();
        Self {
            args,
            port,
            pid,
            process,
            model,
            signature,
            booking,
            stats,
            work: Work::default(),
            idle,
            hangs,
            poisoned,
            slots,
            cache,
        }
    }

    /// True once the script's error that stays is there.
    pub(crate) fn is_poisoned(&self) -> bool {
        if let Some(Fault::Poisoned { after, .. } | Fault::Silent { after }) = self.args.script.fail
            && !self.poisoned.get()
            && self.stats.begun.get() >= after
        {
            self.poisoned.set(self.args.script.strikes());
        }
        self.poisoned.get()
    }

    /// Lets the requests in flight finish, then takes as long as the script says.
    async fn drain(&self) {
        while self.stats.in_flight.get() > 0 {
            self.idle.notified().await;
        }
        if self.args.script.drain > Duration::ZERO {
            sleep(self.args.script.drain).await;
        }
        if let Some(booking) = self.booking.get() {
            booking.leave();
        }
    }
}
